"""Keyframe motions, and the plan's outline: a sequence of legs around the actuation pose."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from pydrake.common.eigen_geometry import AngleAxis
from pydrake.math import RigidTransform, RotationMatrix

from fleet_tools.config.control import StepBounds, steps_of
from fleet_tools.config.expert import Advance, KeyframeMotion, OverPlace, Rotate, Stay, Translate
from fleet_tools.config.values import Axis
from fleet_tools.errors import ConfigError
from fleet_tools.experts.problem import PlanningProblem, direction
from fleet_tools.robot.pose_delta import displacement

ACTUATION = "actuation"
"""Name of the leg that ends in the actuation pose."""

ROUNDING = 1e-5
"""Relative tolerance of step limits."""


def move(
    motion: KeyframeMotion, X_WE: RigidTransform, fraction: float, problem: PlanningProblem
) -> RigidTransform:
    """Returns the end effector's pose during a motion.

    Args:
        motion: The motion.
        X_WE: Pose at its start.
        fraction: Completed fraction of it, at a constant rate, in [0, 1].
        problem: Gives the keypoints: the object's in the world, the tool's in the end effector.

    Raises:
        UnknownNameError, ConfigError: The motion's axis does not fit the keypoints.
    """
    match motion:
        case Translate():
            R_WF = {
                "world": RotationMatrix(),
                "object": problem.X_WO.rotation(),
                "end_effector": X_WE.rotation(),
            }[motion.frame]
            p = X_WE.translation() + R_WF @ (fraction * np.array(motion.by_m))
            return RigidTransform(X_WE.rotation(), p)
        case Advance():
            a_E = _direction(motion.axis, problem.tool_point)
            p = X_WE.translation() + X_WE.rotation() @ (fraction * motion.by_m * a_E)
            return RigidTransform(X_WE.rotation(), p)
        case OverPlace():
            if problem.p_W_place is None:
                raise ConfigError(
                    "The motion `over_place` needs a marked place, but the task has none. Add "
                    "`randomization: {place: ...}`."
                )
            way = problem.p_W_place - X_WE @ problem.tool_point(motion.tool)
            p = X_WE.translation() + fraction * way * [1.0, 1.0, 0.0]
            return RigidTransform(X_WE.rotation(), p)
        case Rotate():
            angle = fraction * math.radians(motion.angle_deg)
            a_W = np.array([0.0, 0.0, 1.0])
            if motion.axis is not None:
                a_W = _direction(motion.axis, problem.object_point)
            R = RotationMatrix(AngleAxis(angle, a_W))
            p_WC = problem.object_point(motion.about)
            return RigidTransform(R @ X_WE.rotation(), p_WC + R @ (X_WE.translation() - p_WC))
        case Stay():
            return X_WE


def _direction(axis: Axis, locate: Callable[[str], np.ndarray]) -> np.ndarray:
    start, end = axis
    return direction(locate(start), locate(end), f"axis {start}->{end}")


@dataclass(frozen=True)
class StepLimit:
    """Largest motion of the end effector in one control step."""

    translation_m: float
    rotation_rad: float

    @classmethod
    def at_speed(cls, bounds: StepBounds, speed: float) -> "StepLimit":
        """Returns a fraction of the action bounds."""
        return cls(speed * bounds.translation_m, speed * math.radians(bounds.rotation_deg))

    def ratio(self, X_WE: RigidTransform, X_WF: RigidTransform) -> float:
        """Returns the motion from one pose to another, relative to the limit."""
        motion = displacement(X_WE, X_WF)
        return max(
            float(np.linalg.norm(motion[:3])) / self.translation_m,
            float(np.linalg.norm(motion[3:])) / self.rotation_rad,
        )


PIECE = StepLimit(translation_m=0.03, rotation_rad=math.radians(10))
"""Piece of a path from which a straight line in joint space deviates by less than 1 mm."""


@dataclass(frozen=True, eq=False)
class Leg:
    """Part of the plan that leads to one keyframe.

    Attributes:
        name: Name of the keyframe, such as "before[0]", "actuation" or "after[1]".
        kind: "followed" if the end effector follows a motion's path, "held" if the arm does not
            move, "free" if only the end pose matters.
        path: Function from the completed fraction of the leg to X_WE.
        steps: Number of control steps.
        pieces: Minimum number of pieces, if there are enough steps, into which the path is cut so
            that each is nearly straight in joint space.
        limit: Largest motion in one step.
    """

    name: str
    kind: Literal["free", "followed", "held"]
    path: Callable[[float], RigidTransform]
    steps: int
    pieces: int
    limit: StepLimit

    def poses(self) -> dict[int, RigidTransform]:
        """Returns the poses X_WE to visit, by the number of steps from the leg's start."""
        stride = max(self.steps // self.pieces, 1)
        steps = [*range(stride, self.steps, stride), self.steps]
        return {step: self.path(step / self.steps) for step in steps}

    def stretched(self, ratio: float) -> "Leg":
        """Returns a leg whose steps are shorter by a ratio, if it is above 1."""
        steps = math.ceil(self.steps * ratio * (1 - ROUNDING))
        return replace(self, steps=steps) if steps > self.steps else self


def legs(
    problem: PlanningProblem, X_WE_now: RigidTransform, X_WE_star: RigidTransform
) -> list[Leg]:
    """Returns the plan's outline: now -> before... -> actuation pose -> after...

    A keyframe before the actuation pose is its motion applied to that pose; a keyframe after it,
    to its predecessor. The last motion before (backwards) and all motions after are followed; the
    other legs are free, with as many steps as a straight path needs.

    Raises:
        UnknownNameError, ConfigError: A motion's axis does not fit the keypoints.
    """
    expert = problem.expert
    result = []
    X_WE = X_WE_now
    for i, keyframe in enumerate(expert.before):
        X_WF = move(keyframe.motion, X_WE_star, 1.0, problem)
        result.append(_free(f"before[{i}]", X_WE, X_WF, keyframe.speed, problem))
        X_WE = X_WF
    speed = expert.actuation.speed
    if expert.before:
        motion = expert.before[-1].motion
        leg = _followed(ACTUATION, motion, X_WE_star, speed, problem)
        result.append(replace(leg, path=lambda fraction: leg.path(1 - fraction)))
    else:
        result.append(_free(ACTUATION, X_WE, X_WE_star, speed, problem))
    X_WE = X_WE_star
    for i, keyframe in enumerate(expert.after):
        result.append(_followed(f"after[{i}]", keyframe.motion, X_WE, keyframe.speed, problem))
        X_WE = result[-1].path(1.0)
    return result


def retreat(problem: PlanningProblem, X_WE: RigidTransform) -> list[RigidTransform]:
    """Returns the poses of a retreat, one per control step.

    Raises:
        UnknownNameError, ConfigError: A motion's axis does not fit the keypoints.
    """
    poses = []
    for i, keyframe in enumerate(problem.expert.retreat):
        leg = _followed(f"retreat[{i}]", keyframe.motion, X_WE, keyframe.speed, problem)
        poses += [leg.path(step / leg.steps) for step in range(1, leg.steps + 1)]
        X_WE = poses[-1]
    return poses


def _free(
    name: str, X_WE: RigidTransform, X_WF: RigidTransform, speed: float, problem: PlanningProblem
) -> Leg:
    limit = StepLimit.at_speed(problem.step_bounds, speed)
    leg = Leg(name, "free", lambda _: X_WF, steps=1, pieces=1, limit=limit)
    return leg.stretched(limit.ratio(X_WE, X_WF))


def _followed(
    name: str, motion: KeyframeMotion, X_WE: RigidTransform, speed: float, problem: PlanningProblem
) -> Leg:
    def path(fraction: float) -> RigidTransform:
        return move(motion, X_WE, fraction, problem)

    limit = StepLimit.at_speed(problem.step_bounds, speed)
    if isinstance(motion, Stay):
        steps = steps_of(motion.for_s, problem.control_rate_hz)
        return Leg(name, "held", path, steps=steps, pieces=steps, limit=limit)
    parts = 64  # equal, because a motion's rate is constant; an arc is nearly its chord
    leg = Leg(name, "followed", path, steps=1, pieces=1, limit=limit)
    leg = leg.stretched(parts * limit.ratio(X_WE, path(1 / parts)))
    pieces = math.ceil(parts * PIECE.ratio(X_WE, path(1 / parts)))
    return replace(leg, pieces=max(pieces, 1))
