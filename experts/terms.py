"""What the expert's conditions on the pose of the end effector mean.

Every condition says it twice, independently: as a constraint of Drake for the solver, and as plain
geometry for those who check what the solver returns and explain what it could not satisfy.
"""

from dataclasses import dataclass
from functools import singledispatch
from typing import Protocol

import numpy as np
from pydrake.math import RigidTransform
from pydrake.multibody.inverse_kinematics import (
    AngleBetweenVectorsConstraint,
    PointToPointDistanceConstraint,
    PositionConstraint,
)
from pydrake.solvers import MathematicalProgram

from fleet_tools.config.expert import AxisToAxis, PointToPoint
from fleet_tools.experts.kinematics import Kinematics
from fleet_tools.experts.problem import PlanningProblem, direction
from fleet_tools.robot.pose_delta import displacement


class Condition(Protocol):
    """A set of poses X_WE."""

    name: str

    def add_to(self, prog: MathematicalProgram, q: np.ndarray, kinematics: Kinematics) -> None:
        """Constrains decision variables q, (n,), the positions of `kinematics`."""

    def ratio(self, X_WE: RigidTransform) -> float:
        """Returns the error over its tolerance; the condition holds where this is at most 1."""

    def describe(self, X_WE: RigidTransform) -> str:
        """Returns the error and its tolerance, to be read, such as "0.120 m, at most 0.001 m"."""


@singledispatch
def condition(term, problem: PlanningProblem) -> Condition:
    """Puts a problem's numbers in the place of the names in a keypoint term.

    Raises:
        UnknownNameError: The term names a keypoint that the tool or the object has not got.
        ConfigError: An axis runs between two keypoints that coincide.
    """
    raise TypeError(f"{type(term).__name__} is not a keypoint term.")


# --- A point near a point -------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PointNearPoint:
    """|X_WE p_EP - p_WQ| <= tolerance (the paper, eq. kPAM 2)."""

    name: str
    p_EP: np.ndarray
    p_WQ: np.ndarray
    tolerance_m: float

    def add_to(self, prog: MathematicalProgram, q: np.ndarray, kinematics: Kinematics) -> None:
        W = kinematics.plant.world_frame()
        constraint = PointToPointDistanceConstraint(
            kinematics.plant,
            kinematics.E,
            self.p_EP,
            W,
            self.p_WQ,
            distance_lower=0.0,
            distance_upper=self.tolerance_m,
            plant_context=kinematics.context,
        )
        prog.AddConstraint(constraint, q)

    def error_m(self, X_WE: RigidTransform) -> float:
        """Returns the distance of the points, m."""
        return float(np.linalg.norm(X_WE @ self.p_EP - self.p_WQ))

    def ratio(self, X_WE: RigidTransform) -> float:
        return self.error_m(X_WE) / self.tolerance_m

    def describe(self, X_WE: RigidTransform) -> str:
        return f"{self.error_m(X_WE):.4f} m, at most {self.tolerance_m:g} m"


@condition.register
def _(term: PointToPoint, problem: PlanningProblem) -> PointNearPoint:
    p_WQ = problem.object_point(term.object) + problem.X_WO.rotation() @ np.array(term.offset_m)
    name = f"point_to_point({term.tool}, {term.object})"
    return PointNearPoint(name, problem.tool_point(term.tool), p_WQ, term.tolerance_m)


# --- An axis at an angle to an axis ---------------------------------------------------------


@dataclass(frozen=True, eq=False)
class AxisAtAngle:
    """|angle(R_WE a_E, b_W) - angle| <= tolerance, for angles in [0, 180] (eq. kPAM 3)."""

    name: str
    a_E: np.ndarray
    b_W: np.ndarray
    angle_deg: float
    tolerance_deg: float

    def add_to(self, prog: MathematicalProgram, q: np.ndarray, kinematics: Kinematics) -> None:
        W = kinematics.plant.world_frame()
        constraint = AngleBetweenVectorsConstraint(
            kinematics.plant,
            kinematics.E,
            self.a_E,
            W,
            self.b_W,
            angle_lower=np.radians(max(self.angle_deg - self.tolerance_deg, 0)),
            angle_upper=np.radians(min(self.angle_deg + self.tolerance_deg, 180)),
            plant_context=kinematics.context,
        )
        prog.AddConstraint(constraint, q)

    def error_deg(self, X_WE: RigidTransform) -> float:
        """Returns how far the angle between the axes is from the one that is wanted, deg."""
        a_W = X_WE.rotation() @ self.a_E
        # Exact for small angles too, where the cosine is flat.
        angle = np.arctan2(np.linalg.norm(np.cross(a_W, self.b_W)), a_W @ self.b_W)
        return float(abs(np.degrees(angle) - self.angle_deg))

    def ratio(self, X_WE: RigidTransform) -> float:
        return self.error_deg(X_WE) / self.tolerance_deg

    def describe(self, X_WE: RigidTransform) -> str:
        return f"{self.error_deg(X_WE):.2f} deg, at most {self.tolerance_deg:g} deg"


@condition.register
def _(term: AxisToAxis, problem: PlanningProblem) -> AxisAtAngle:
    if term.object is not None:
        target = "->".join(term.object)
        b_W = direction(*map(problem.object_point, term.object), f"object's axis {target}")
    else:
        target = "world " + " ".join(f"{x:g}" for x in term.world)
        b_W = direction(np.zeros(3), np.array(term.world), f"axis {target}")
    axis = "->".join(term.tool)
    a_E = direction(*map(problem.tool_point, term.tool), f"tool's axis {axis}")
    between = abs((term.angle_deg + 180) % 360 - 180)  # vectors know no sense of rotation
    return AxisAtAngle(f"axis_to_axis({axis}, {target})", a_E, b_W, between, term.tolerance_deg)


# --- A pose ---------------------------------------------------------------------------------

LEVER = 0.1  # m; at this distance 0.1 deg and 0.2 mm are much the same


@dataclass(frozen=True, eq=False)
class AtPose:
    """E is at a given pose F, up to tolerances that only rounding may use."""

    name: str
    X_WF: RigidTransform
    tolerance_m: float = 2e-4
    tolerance_deg: float = 0.1

    def add_to(self, prog: MathematicalProgram, q: np.ndarray, kinematics: Kinematics) -> None:
        """Locates E as a workpiece is: three coordinates of one point, two of a second, one more.

        Six equations, all of them regular at the solution. A bound on the angle instead, as in
        Drake's OrientationConstraint, has a gradient that vanishes there.
        """
        x, y, _ = LEVER * np.eye(3)
        free, half = np.inf, 0.5 * LEVER
        for p_EQ, p_FQ_lower, p_FQ_upper in (
            (np.zeros(3), [0, 0, 0], [0, 0, 0]),
            (x, [half, 0, 0], [free, 0, 0]),  # half: not the other way round
            (y, [-free, half, 0], [free, free, 0]),
        ):
            constraint = PositionConstraint(
                kinematics.plant,
                kinematics.plant.world_frame(),
                self.X_WF,
                p_FQ_lower,
                p_FQ_upper,
                kinematics.E,
                p_EQ,
                plant_context=kinematics.context,
            )
            prog.AddConstraint(constraint, q)

    def errors(self, X_WE: RigidTransform) -> tuple[float, float]:
        """Returns distance, m, and angle, deg, to the pose."""
        gap = displacement(self.X_WF, X_WE)
        return float(np.linalg.norm(gap[:3])), float(np.degrees(np.linalg.norm(gap[3:])))

    def ratio(self, X_WE: RigidTransform) -> float:
        metres, degrees = self.errors(X_WE)
        return max(metres / self.tolerance_m, degrees / self.tolerance_deg)

    def describe(self, X_WE: RigidTransform) -> str:
        metres, degrees = self.errors(X_WE)
        return (
            f"{metres:.4f} m and {degrees:.2f} deg, "
            f"at most {self.tolerance_m:g} m and {self.tolerance_deg:g} deg"
        )
