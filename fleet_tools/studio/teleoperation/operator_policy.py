"""The person as a policy: acts on observations like any other, when a step is due."""

import math
import time
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from pydrake.math import RigidTransform, RotationMatrix

from fleet_tools.errors import PolicyError
from fleet_tools.robot.pose_delta import displacement
from fleet_tools.studio.teleoperation.devices import Inputs, Request, action_of, within_bounds

NAME = "teleoperation"
"""Name of the policy in datasets."""

FRAME_S = 1 / 30
"""Longest time between two images on the page, s."""

Phase = Literal["ready", "running", "paused"]


# --- When the next control step is due --------------------------------------------------------


class RealTime:
    """Control steps at wall-clock time, from the first motion on, while a page is open.

    A simulation that is slower than the clock is not made up for: the next step is due at once.

    Args:
        inputs: The devices.
        period_s: Duration of a control step, s.

    Attributes:
        phase: Whether the episode waits for the first motion, runs, or waits for a page.
    """

    def __init__(self, inputs: Inputs, period_s: float) -> None:
        self._inputs, self._period = inputs, period_s
        self.begin()

    def begin(self) -> None:
        """Begins an episode, whose clock starts with the first motion."""
        self.phase: Phase = "ready"
        self._steps, self._elapsed = 0, 0.0
        self._last, self._due = 0.0, 0.0

    @property
    def fraction(self) -> float:
        """How much of the time until the next step has passed, in [0, 1]."""
        return 1.0 - min(self.remaining_s / self._period, 1.0) if self.phase == "running" else 1.0

    @property
    def remaining_s(self) -> float:
        """Time until the next step; infinite where it waits for the person."""
        return max(self._due - time.monotonic(), 0.0) if self.phase == "running" else math.inf

    @property
    def real_time_factor(self) -> float | None:
        """Simulated time over wall time in this episode, without pauses; None before two steps."""
        return self._steps * self._period / self._elapsed if self._elapsed > 0 else None

    def due(self) -> bool:
        """Returns whether the next step is due, which is then taken."""
        now = time.monotonic()
        if not self._inputs.watched:
            self.phase = "ready" if self.phase == "ready" else "paused"
            return False
        if self.phase != "running":
            if self.phase == "ready" and not self._inputs.given().moves:
                return False
            self.phase, self._due = "running", now + self._period
            self._last = now
            return True
        if now < self._due:
            return False
        self._steps, self._elapsed = self._steps + 1, self._elapsed + now - self._last
        self._last, self._due = now, max(self._due + self._period, now)
        return True


# --- The policy -------------------------------------------------------------------------------


class OperatorPolicy:
    """Builds actions from the present state of the devices.

    A request ends the episode with a `PolicyError`; so it is stored, if at all, as a failure.

    Args:
        inputs: The devices.
        action_scale: (6,), the motion for which each entry of an action is 1, m and rad.
        pace: Decides when a step is due.
        show: Shows a new state to the person.
        show_between: Shows how much of the time until the next step has passed, in [0, 1].

    Attributes:
        request: The request that ended the episode; None if "save" did, or none.
        retries: How often the present scene was begun again, which its episode tells.
    """

    def __init__(
        self,
        inputs: Inputs,
        action_scale: np.ndarray,
        pace: RealTime,
        show: Callable[[], None],
        show_between: Callable[[float], None],
    ) -> None:
        self._inputs, self._scale, self._pace = inputs, action_scale, pace
        self._show, self._show_between = show, show_between
        self.request: Request | None = None
        self.retries = 0
        self._devices: set[str] = set()

    def reset(self) -> None:
        """Begins an episode; the dragged pose of the last one is forgotten."""
        self.request, self._devices = None, set()
        self._inputs.clear()
        self._pace.begin()

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Waits until the step is due, and returns the action that the devices ask for, (6,).

        Raises:
            PolicyError: The person ended the episode.
        """
        self._show()
        begun = self._pace.phase != "ready"
        while not self._pace.due():
            self._end_if_asked(begun)
            self._show_between(self._pace.fraction)
            self._inputs.wait(min(FRAME_S, self._pace.remaining_s))
        self._end_if_asked(begun)
        given = self._inputs.take()
        self._devices |= {command.device for command in given.commands}
        X_WE = _pose(observation["end_effector_pose"])
        if given.commands or given.target is None:
            return action_of(given.commands, X_WE.rotation().matrix())
        self._devices.add("gizmo")
        return action_toward(X_WE, given.target, self._scale)

    @property
    def info(self) -> dict[str, Any]:
        """The devices that moved the arm, the retries of the scene, and the real-time factor."""
        factor = self._pace.real_time_factor
        return {
            "devices": sorted(self._devices),
            "retries": self.retries,
            "real_time_factor": None if factor is None else round(factor, 3),
        }

    def _end_if_asked(self, begun: bool) -> None:
        request = self._inputs.take_request()
        if request is None or (request == "save" and not begun):
            return  # there is nothing to be saved yet
        self.request = None if request == "save" else request  # "save" asks again, at the end
        raise PolicyError("the person ended the episode before the task did")


def _pose(rows: np.ndarray) -> RigidTransform:
    """Returns a pose from an observation, whose rotation is rounded, (3, 4) float32."""
    numbers = rows.astype(np.float64)
    return RigidTransform(RotationMatrix.ProjectToRotationMatrix(numbers[:, :3]), numbers[:, 3])


def action_toward(X_WE: RigidTransform, X_WT: RigidTransform, scale: np.ndarray) -> np.ndarray:
    """Returns the action from a pose towards a target, (6,) float32, in [-1, 1].

    It is straight and turns about one axis; it ends at the target where that is within one step.
    `scale` is the motion for which each entry of an action is 1, (6,), m and rad.
    """
    return within_bounds(displacement(X_WE, X_WT) / scale)
