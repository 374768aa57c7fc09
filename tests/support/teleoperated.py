"""Sessions of teleoperation with a real browser, in which a script moves the devices."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from support.chromium import open_page

from fleet_tools.dataset import DatasetWriter
from fleet_tools.dataset.header import describe
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import ToolUseEnv, unwrap
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.studio.teleoperation.devices import DEAD_ZONE, Inputs
from fleet_tools.studio.teleoperation.operator_policy import NAME, RealTime
from fleet_tools.studio.teleoperation.session import TeleoperationSession, open_session

if TYPE_CHECKING:
    from playwright.sync_api import Page

PATIENCE_S = 60.0


@contextmanager
def opened(
    folder: Path,
    task: str,
    *,
    episodes: int | None = 1,
    seed: int = 0,
    verify: bool = False,
    make_pace: Callable[[ToolUseEnv, Inputs, float], RealTime] = lambda env, *rest: RealTime(*rest),
    **env_kwargs: object,
) -> Iterator[TeleoperationSession]:
    """Opens a session as the program does."""
    spec = EnvSpec.of(task, obs_mode="state", **env_kwargs)
    env = unwrap(spec.make())
    header = describe(env, spec, policy=NAME, seed=seed, keep_failures=True)
    with (
        DatasetWriter(folder, header) as writer,
        open_session(
            env,
            writer,
            episodes=episodes,
            verify=verify,
            make_pace=lambda *given: make_pace(env, *given),
        ) as session,
    ):
        yield session


def act_in(
    session: TeleoperationSession,
    person: Callable[["Page"], None],
    *,
    width: int = 800,
    height: int = 500,
) -> None:
    """Runs a session until it is complete, or until a person has done all; then comes Ctrl-C.

    Args:
        session: The session.
        person: Acts on the page, in a thread.
        width: Width of the page, pixels.
        height: Height of the page, pixels.
    """
    over, interrupted = threading.Event(), threading.Event()

    def act() -> None:
        try:
            with open_page(session.url, width=width, height=height) as page:
                person(page)
        finally:
            if not over.is_set():
                interrupted.set()

    with ThreadPoolExecutor(1) as executor:
        acting = executor.submit(act)
        with suppress(KeyboardInterrupt):
            session.run(interrupted=interrupted.is_set)
        over.set()
        acting.result()


def wait_for_phase(page: "Page", text: str) -> None:
    """Waits until the page says something of the phase."""
    page.get_by_role("status").filter(has_text=text).wait_for(timeout=1000 * PATIENCE_S)


def end_and_save(page: "Page") -> None:
    """Ends the episode in progress, and saves it."""
    page.keyboard.press("Enter")
    wait_for_phase(page, "save, discard or retry?")
    page.keyboard.press("Enter")


# --- A gamepad that the expert's plan moves -------------------------------------------------


class ExpertWishes(RealTime):
    """Steps as soon as the devices ask for what the expert would do.

    The expert is told nothing, and does nothing but to say what it would do; whether the arm does
    it, is up to the devices.

    Args:
        env: The environment, in which the expert plans.
        inputs: The devices.

    Attributes:
        wishes: Actions (6,) that the devices are to ask for, as they come.
    """

    def __init__(self, env: ToolUseEnv, inputs: Inputs) -> None:
        self._expert = ExpertPolicy(env)
        self._wish: np.ndarray | None = None
        self._inputs = inputs
        self.phase = "ready"
        self.wishes: queue.SimpleQueue[np.ndarray] = queue.SimpleQueue()

    @property
    def fraction(self) -> float:
        """All of the step has passed."""
        return 1.0

    @property
    def remaining_s(self) -> float:
        """A few milliseconds."""
        return 0.005

    @property
    def real_time_factor(self) -> None:
        """Unknown."""

    def begin(self) -> None:
        """Begins an episode."""
        self._expert.reset()
        self._wish, self.phase = None, "running"

    def due(self) -> bool:
        """Returns whether the devices ask for the expert's action."""
        if self._wish is None:
            self._wish = self._expert.act({}).astype(float)
            self.wishes.put(self._wish)
        given = self._inputs.given()
        asked = sum((command.twist for command in given.commands), np.zeros(6))
        done = np.allclose(asked, self._wish, rtol=0, atol=1e-9)
        if done:
            self._wish = None
        return done


CONNECT_GAMEPAD = """() => {
    window.pad = {connected: true, axes: [0, 0, 0, 0], buttons: Array(17).fill({value: 0})};
    navigator.getGamepads = () => [null, window.pad];
}"""
"""Gives the page a gamepad at rest, whose state is what the browser would tell."""

MOVE_GAMEPAD = """([axes, buttons]) => {
    window.pad.axes = axes;
    window.pad.buttons = buttons.map((value) => ({value}));
}"""


def gamepad_for(twist: np.ndarray) -> tuple[list[float], list[float]]:
    """Returns axes and buttons of a gamepad that ask for a twist, (6,)."""
    x, y, z, roll, pitch, yaw = (
        float(np.sign(v) * (abs(v) * (1 - DEAD_ZONE) + DEAD_ZONE)) if v else 0.0 for v in twist
    )
    buttons = [0.0] * 17
    buttons[4], buttons[5] = max(-roll, 0.0), max(roll, 0.0)
    buttons[6], buttons[7] = max(-z, 0.0), max(z, 0.0)
    return [-y, -x, -yaw, -pitch], buttons


def act_out(page: "Page", wishes: "queue.SimpleQueue[np.ndarray]") -> None:
    """Moves the gamepad as wished, and saves the episode at its end."""
    page.evaluate(CONNECT_GAMEPAD)
    page.get_by_label("hand").check()
    deadline = time.monotonic() + PATIENCE_S
    while "save, discard" not in page.inner_text("#phase"):
        assert time.monotonic() < deadline
        with suppress(queue.Empty):
            page.evaluate(MOVE_GAMEPAD, gamepad_for(wishes.get(timeout=0.2)))
    page.evaluate(MOVE_GAMEPAD, [[0.0] * 4, [0.0] * 17])
    page.keyboard.press("Enter")
    wait_for_phase(page, "The dataset is complete")
