"""Keyframe motions, and the plan they make around the actuation pose: a sequence of legs."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from pydrake.common.eigen_geometry import AngleAxis
from pydrake.math import RigidTransform, RotationMatrix

from fleet_tools.config.expert import Advance, KeyframeMotion, Rotate, Stay, Translate
from fleet_tools.config.tasks import ActionBounds
from fleet_tools.config.values import Axis
from fleet_tools.experts.problem import PlanningProblem, direction
from fleet_tools.robot.pose_delta import displacement

ACTUATION = "actuation"
"""Name of the leg that ends in the actuation pose."""

ROUNDING = 1e-5
"""Relative: by so much may a step exceed its limit."""


def move(
    motion: KeyframeMotion, X_WE: RigidTransform, fraction: float, problem: PlanningProblem
) -> RigidTransform:
    """Returns the pose that a motion has reached.

    Args:
        motion: What to do.
        X_WE: The pose in which it begins.
        fraction: How much of it is done, at a constant rate: 0 none, 1 all.
        problem: Says where the keypoints are: the object's in the world, the tool's in the hand.

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
    return direction(*map(locate, axis), f"axis {'->'.join(axis)}")


@dataclass(frozen=True)
class StepLimit:
    """How far the end effector may go in one control step."""

    translation_m: float
    rotation_rad: float

    @classmethod
    def at_speed(cls, action: ActionBounds, speed: float) -> "StepLimit":
        """A fraction of the action bounds."""
        return cls(speed * action.translation_m, speed * math.radians(action.rotation_deg))

    def ratio(self, X_WE: RigidTransform, X_WF: RigidTransform) -> float:
        """Returns the motion from one pose to another over the limit; at most 1 is one step."""
        motion = displacement(X_WE, X_WF)
        return max(
            float(np.linalg.norm(motion[:3])) / self.translation_m,
            float(np.linalg.norm(motion[3:])) / self.rotation_rad,
        )


PIECE = StepLimit(translation_m=0.03, rotation_rad=math.radians(10))
"""Of a followed path: a straight line in joint space leaves it by less than a millimetre."""


@dataclass(frozen=True, eq=False)
class Leg:
    """The way to one keyframe.

    Attributes:
        name: The keyframe's, such as "before[0]", "actuation" or "after[1]".
        kind: "followed" along a motion, "held" where the arm does not move, or "free".
        path: X_WE by the fraction of the leg that is done; a free leg only keeps to its end.
        steps: How many control steps it takes.
        pieces: Into how many, at least, the path is cut where there are steps enough, so that each
            is nearly straight in joint space.
        limit: Of one step.
    """

    name: str
    kind: Literal["free", "followed", "held"]
    path: Callable[[float], RigidTransform]
    steps: int
    pieces: int
    limit: StepLimit

    def poses(self) -> dict[int, RigidTransform]:
        """The poses X_WE to keep to, by the number of steps from the leg's start."""
        stride = max(self.steps // self.pieces, 1)
        steps = [*range(stride, self.steps, stride), self.steps]
        return {step: self.path(step / self.steps) for step in steps}

    def stretched(self, ratio: float) -> "Leg":
        """Returns a leg whose steps are shorter by a ratio, if that is more than 1."""
        steps = math.ceil(self.steps * ratio * (1 - ROUNDING))
        return replace(self, steps=steps) if steps > self.steps else self


def legs(
    problem: PlanningProblem, X_WE_now: RigidTransform, X_WE_star: RigidTransform
) -> list[Leg]:
    """Lays the plan out: now -> before... -> actuation pose -> after...

    A keyframe before the actuation pose is its motion applied to that pose; one after it, to its
    predecessor. The last motion before (backwards) and all motions after are followed; other ways
    are free, and have as many steps as a straight one needs.

    Args:
        problem: What is planned.
        X_WE_now: The pose in which the plan begins.
        X_WE_star: The actuation pose.

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
    """Returns the poses of the retreat from a pose, one per control step.

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
    limit = StepLimit.at_speed(problem.action, speed)
    leg = Leg(name, "free", lambda _: X_WF, steps=1, pieces=1, limit=limit)
    return leg.stretched(limit.ratio(X_WE, X_WF))


def _followed(
    name: str, motion: KeyframeMotion, X_WE: RigidTransform, speed: float, problem: PlanningProblem
) -> Leg:
    def path(fraction: float) -> RigidTransform:
        return move(motion, X_WE, fraction, problem)

    limit = StepLimit.at_speed(problem.action, speed)
    if isinstance(motion, Stay):
        return Leg(name, "held", path, steps=motion.steps, pieces=motion.steps, limit=limit)
    parts = 64  # equal ones, as a motion's rate is constant; so short that an arc is its chord
    leg = Leg(name, "followed", path, steps=1, pieces=1, limit=limit)
    leg = leg.stretched(parts * limit.ratio(X_WE, path(1 / parts)))
    pieces = math.ceil(parts * PIECE.ratio(X_WE, path(1 / parts)))
    return replace(leg, pieces=max(pieces, 1))
