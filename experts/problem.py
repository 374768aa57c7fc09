"""Planning problem, actuation pose and plan, as values."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from pydrake.math import RigidTransform

from fleet_tools.config.control import StepBounds
from fleet_tools.config.expert import Expert
from fleet_tools.errors import ConfigError, UnknownNameError
from fleet_tools.robot.arm import Arm


@dataclass(frozen=True, eq=False)
class PlanningProblem:
    """All that the expert plans from.

    Frames: W world, E end effector, O object model.

    Attributes:
        expert: The task's keypoint terms and keyframe motions.
        control_rate_hz: Control rate.
        step_bounds: Largest motion of E in one control step.
        robot: The arm.
        q0: (n,), present positions of its joints, rad.
        p_E_tool: The tool's keypoints in E, (3,) each, m; they move with the hand.
        p_W_object: The object's keypoints in W, (3,) each, m, assumed to be at rest.
        X_WO: Pose of the object.
        p_W_place: (3,), the marked place on the table, m; None in tasks without one.
        angle_slack_deg: What is added to the tolerances of axes, since estimated keypoints may
            contradict each other.
    """

    expert: Expert
    control_rate_hz: float
    step_bounds: StepBounds
    robot: Arm
    q0: np.ndarray
    p_E_tool: Mapping[str, np.ndarray]
    p_W_object: Mapping[str, np.ndarray]
    X_WO: RigidTransform
    p_W_place: np.ndarray | None = None
    angle_slack_deg: float = 0.0

    def tool_point(self, name: str) -> np.ndarray:
        """Returns a keypoint of the tool in E, (3,), m.

        Raises:
            UnknownNameError: The tool has no such keypoint.
        """
        return _named("keypoint of the tool", name, self.p_E_tool)

    def object_point(self, name: str) -> np.ndarray:
        """Returns a keypoint of the object in W, (3,), m.

        Raises:
            UnknownNameError: The object has no such keypoint.
        """
        return _named("keypoint of the object", name, self.p_W_object)


@dataclass(frozen=True, eq=False)
class ActuationPose:
    """Pose in which the tool acts on the object.

    Attributes:
        X_WE: Pose of the end effector.
        q: (n,), joint positions with that pose, rad.
    """

    X_WE: RigidTransform
    q: np.ndarray


@dataclass(frozen=True, eq=False)
class Plan:
    """A joint trajectory with one knot per control step.

    Attributes:
        q: (T, n), joint positions at the knots, rad; the first row is the present one.
        X_WE: The end effector's poses at the knots, T of them.
        actuation: Index of the actuation pose's knot.
        keyframes: Indices of the knots at which keyframes are reached, increasing; the actuation
            pose is one of the keyframes.
        names: Names of the keyframes, such as "before[0]", "actuation" or "after[1]".
        seconds: Wall time of each planning stage.
    """

    q: np.ndarray
    X_WE: tuple[RigidTransform, ...]
    actuation: int
    keyframes: tuple[int, ...]
    names: tuple[str, ...]
    seconds: Mapping[str, float]

    def leg(self, step: int) -> str:
        """Returns the name of the keyframe to which the plan leads at a step."""
        return self.names[min(bisect_left(self.keyframes, step), len(self.names) - 1)]


def direction(start: np.ndarray, end: np.ndarray, what: str) -> np.ndarray:
    """Returns the unit vector from one point to another, (3,).

    Raises:
        ConfigError: The points coincide; `what` names the axis.
    """
    length = np.linalg.norm(end - start)
    if length < 1e-9:
        raise ConfigError(f"The {what} has no direction: its ends coincide.")
    return (end - start) / length


def _named(what: str, name: str, points: Mapping[str, np.ndarray]) -> np.ndarray:
    if name not in points:
        raise UnknownNameError(what, name, points)
    return np.asarray(points[name], dtype=float)
