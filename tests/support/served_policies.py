"""Policies of a few lines, and their servers on this machine."""

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np

from fleet_tools.envs.array_spec import ArraySpec
from fleet_tools.policies.conversation import Served
from fleet_tools.policies.policy import Policy
from fleet_tools.policies.policy_client import PolicyClient
from fleet_tools.policies.policy_server import PolicyServer
from fleet_tools.policies.wire_messages import Hello

LAYOUT = {
    "state": ArraySpec(kind="state", shape=(3,), dtype="float32", unit="m", frame="world"),
    "tool_cloud": ArraySpec(kind="points", shape=(16, 4), dtype="float32", unit="m", frame="E"),
    "wrist_rgb": ArraySpec(kind="rgb", shape=(2, 3, 3), dtype="uint8", unit="", frame=None),
}
ACTION = ArraySpec(
    kind="action", shape=(6,), dtype="float32", unit="m, rad", frame="E", scale=(0.05,) * 6
)


def hello(**changes: Any) -> Hello:
    """Returns the hello of a policy on `LAYOUT`."""
    fields = {
        "policy": "a policy of the tests",
        "blueprint_digest": "0" * 16,
        "content_digest": "0" * 32,
        "observation": LAYOUT,
        "action": ACTION,
        "control_period_s": 5.0,
    }
    return Hello(**{**fields, **changes})


def observation(seed: int = 0) -> dict[str, np.ndarray]:
    """Returns a random observation of `LAYOUT`."""
    generator = np.random.default_rng(seed)
    return {
        name: (100 * generator.random(spec.shape)).astype(spec.dtype)
        for name, spec in LAYOUT.items()
    }


class Remembering:
    """Acts on all observations since its reset, so that lost or foreign ones change its actions."""

    def reset(self) -> None:
        """Forgets them."""
        self._state = np.zeros(6, np.float32)

    def act(self, observation: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns a function of all of them."""
        seen = np.resize(observation["state"], 6)
        self._state = np.tanh(0.7 * self._state[::-1] + 0.01 * seen).astype(np.float32)
        return self._state.copy()


class Scripted:
    """Acts by a function of the number of the step, which may sleep or raise."""

    def __init__(self, act: Callable[[int], Any]) -> None:
        self._act, self._step = act, -1

    def reset(self) -> None:
        """Does nothing: its steps are those of the connection."""

    def act(self, observation: Mapping[str, np.ndarray]) -> Any:
        """Returns the function's value."""
        self._step += 1
        return self._act(self._step)


def constant(step: int) -> np.ndarray:
    """Returns an action that names its step."""
    return np.full(6, (step + 1) / 100, np.float32)


def slow_at_first(step: int) -> np.ndarray:
    """Returns `constant`, after a second in the first step."""
    time.sleep(1.0 if step == 0 else 0.0)
    return constant(step)


def held(steps: Collection[int], release: threading.Event) -> Callable[[int], np.ndarray]:
    """Returns `constant`, which in some steps waits for a release."""

    def act(step: int) -> np.ndarray:
        if step in steps:
            release.wait(30)
        return constant(step)

    return act


@contextlib.contextmanager
def serving(make: Callable[[], Policy], **options: Any) -> Iterator[PolicyServer]:
    """Serves a policy while the context is open; options are the server's, or of the hello."""
    own = {name: options.pop(name) for name in _OPTIONS & options.keys()}
    with serving_as(Served(hello(**options), make), **own) as server:
        yield server


_OPTIONS = {"port", "token", "max_connections"}


@contextlib.contextmanager
def serving_as(served: Served, **options: Any) -> Iterator[PolicyServer]:
    """Serves while the context is open."""
    with PolicyServer(served, **options) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
    thread.join()


def actions(connection: PolicyClient, seeds: range) -> list[bytes]:
    """Returns a connection's actions at random observations, after a reset."""
    connection.reset()
    return [connection.act(observation(seed)).tobytes() for seed in seeds]


def episode(url: str, seeds: range) -> list[bytes]:
    """Returns the same of a connection of its own."""
    connection = PolicyClient.at(url)
    found = actions(connection, seeds)
    connection.close()
    return found


def opened(server: PolicyServer, **options: Any) -> Any:
    """Connects as a stranger does, without a client of this package."""
    from websockets.sync.client import connect

    return connect(server.url, compression=None, proxy=None, **options)
