"""Conditions on the pose of the end effector, and programs of them that SNOPT solves."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from pydrake.math import RigidTransform
from pydrake.multibody.inverse_kinematics import (
    AngleBetweenVectorsConstraint,
    PointToPointDistanceConstraint,
    PositionConstraint,
)
from pydrake.solvers import MathematicalProgram, SnoptSolver, SolverOptions

from fleet_tools.config.expert import AxisToAxis, KeypointTerm, PointToPoint
from fleet_tools.errors import InfeasibleError
from fleet_tools.experts.kinematics import Kinematics
from fleet_tools.experts.problem import PlanningProblem, direction
from fleet_tools.robot.pose_delta import displacement


def condition(term: KeypointTerm, problem: PlanningProblem) -> "PoseCondition":
    """Returns the condition of a keypoint term, with the problem's numbers for the term's names.

    Raises:
        UnknownNameError: The tool or the object has no keypoint that the term names.
        ConfigError: The two keypoints of an axis coincide.
    """
    match term:
        case PointToPoint():
            return _point_near_point(term, problem)
        case AxisToAxis():
            return _axis_at_angle(term, problem)


# --- A point near a point -------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PointNearPoint:
    """|X_WE p_EP - p_WQ| <= tolerance (the paper, eq. kPAM 2)."""

    name: str
    p_EP: np.ndarray
    p_WQ: np.ndarray
    tolerance_m: float

    def add_to(self, prog: MathematicalProgram, q: np.ndarray, kinematics: Kinematics) -> None:
        """Constrains q, (n,), the positions of `kinematics`, by the distance of the points."""
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
        """Returns the distance divided by its tolerance; the condition holds up to 1."""
        return self.error_m(X_WE) / self.tolerance_m

    def describe(self, X_WE: RigidTransform) -> str:
        """Returns the distance and its tolerance for people."""
        return f"{self.error_m(X_WE):.4f} m, at most {self.tolerance_m:g} m"


def _point_near_point(term: PointToPoint, problem: PlanningProblem) -> PointNearPoint:
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
        """Constrains q, (n,), the positions of `kinematics`, by the angle between the axes."""
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
        """Returns the deviation of the angle between the axes from the desired one, deg."""
        a_W = X_WE.rotation() @ self.a_E
        # Exact for small angles too, where the cosine is flat.
        angle = np.arctan2(np.linalg.norm(np.cross(a_W, self.b_W)), a_W @ self.b_W)
        return float(abs(np.degrees(angle) - self.angle_deg))

    def ratio(self, X_WE: RigidTransform) -> float:
        """Returns the deviation divided by its tolerance."""
        return self.error_deg(X_WE) / self.tolerance_deg

    def describe(self, X_WE: RigidTransform) -> str:
        """Returns the deviation and its tolerance for people."""
        return f"{self.error_deg(X_WE):.2f} deg, at most {self.tolerance_deg:g} deg"


def _axis_at_angle(term: AxisToAxis, problem: PlanningProblem) -> AxisAtAngle:
    if term.object is not None:
        start, end = term.object
        target = f"{start}->{end}"
        b_W = direction(
            problem.object_point(start), problem.object_point(end), f"object's axis {target}"
        )
    else:
        world = term.world or ()  # a term has either
        target = "world " + " ".join(f"{x:g}" for x in world)
        b_W = direction(np.zeros(3), np.array(world), f"axis {target}")
    start, end = term.tool
    axis = f"{start}->{end}"
    a_E = direction(problem.tool_point(start), problem.tool_point(end), f"tool's axis {axis}")
    between = abs((term.angle_deg + 180) % 360 - 180)  # the angle of two vectors has no sign
    tolerance = term.tolerance_deg + problem.angle_slack_deg
    return AxisAtAngle(f"axis_to_axis({axis}, {target})", a_E, b_W, between, tolerance)


# --- A pose ---------------------------------------------------------------------------------

LEVER = 0.1  # m; at this distance, 0.1 deg are about 0.2 mm


@dataclass(frozen=True, eq=False)
class AtPose:
    """E is at a given pose F, up to rounding."""

    name: str
    X_WF: RigidTransform
    tolerance_m: float = 2e-4
    tolerance_deg: float = 0.1

    def add_to(self, prog: MathematicalProgram, q: np.ndarray, kinematics: Kinematics) -> None:
        """Adds six equations: three coordinates of one point, two of a second, one of a third.

        All of them are regular at the solution. A bound on the angle instead, as in Drake's
        OrientationConstraint, has a gradient that vanishes there.
        """
        x, y, _ = LEVER * np.eye(3)
        free, half = np.inf, 0.5 * LEVER
        for p_EQ, p_FQ_lower, p_FQ_upper in (
            (np.zeros(3), [0, 0, 0], [0, 0, 0]),
            (x, [half, 0, 0], [free, 0, 0]),  # excludes the opposite direction
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
        """Returns the distance, m, and the angle, deg, to the pose."""
        gap = displacement(self.X_WF, X_WE)
        return float(np.linalg.norm(gap[:3])), float(np.degrees(np.linalg.norm(gap[3:])))

    def ratio(self, X_WE: RigidTransform) -> float:
        """Returns the larger of the two errors, each divided by its tolerance."""
        metres, degrees = self.errors(X_WE)
        return max(metres / self.tolerance_m, degrees / self.tolerance_deg)

    def describe(self, X_WE: RigidTransform) -> str:
        """Returns both errors and their tolerances for people."""
        metres, degrees = self.errors(X_WE)
        return (
            f"{metres:.4f} m and {degrees:.2f} deg, "
            f"at most {self.tolerance_m:g} m and {self.tolerance_deg:g} deg"
        )


PoseCondition = PointNearPoint | AxisAtAngle | AtPose
"""A set of poses X_WE: it constrains programs, and measures how far a pose is from it."""

SLACK = 0.01
"""Fraction of a tolerance by which rounding of the solver may exceed it."""

LIMIT_TOLERANCE = 1e-6  # rad

_SNOPT = {
    # Drake squares distances and takes cosines of angles: 1 mm is bounded as 1e-6, 1 deg as 1.5e-4.
    "Major feasibility tolerance": 1e-9,
    "Minor feasibility tolerance": 1e-9,
    "Major iterations limit": 300,
}


class Violation(NamedTuple):
    """A condition that does not hold.

    Attributes:
        name: Name of the condition.
        ratio: Error divided by its tolerance, above 1.
        text: Error and tolerance, for people.
    """

    name: str
    ratio: float
    text: str


def violations(
    kinematics: Kinematics, q: np.ndarray, conditions: Iterable[PoseCondition]
) -> list[Violation]:
    """Returns which conditions and position limits are violated at positions q, (n,)."""
    X_WE = kinematics.forward(q)
    result = [
        Violation(condition.name, ratio, condition.describe(X_WE))
        for condition in conditions
        if (ratio := condition.ratio(X_WE)) > 1 + SLACK
    ]
    excess = float(np.max([kinematics.lower - q, q - kinematics.upper]))
    if excess > LIMIT_TOLERANCE:
        text = f"exceeded by {excess:.2g} rad, at most {LIMIT_TOLERANCE:g} rad"
        result.append(Violation("joint limits", excess / LIMIT_TOLERANCE, text))
    return result


def feasible(
    prog: MathematicalProgram,
    x: np.ndarray,
    guesses: Iterable[np.ndarray],
    check: Callable[[np.ndarray], Sequence[Violation]],
    failure: str,
) -> Iterator[np.ndarray]:
    """Yields the feasible local minima, at most one per guess, each with the shape of x.

    Args:
        prog: The program, with all its variables in x.
        x: Decision variables, of any shape.
        guesses: Initial guesses, each of the shape of x.
        check: Returns the violations of a value of x.
        failure: Description of the failure, for the error.

    Raises:
        InfeasibleError: None is feasible; it holds the violations of the best one.
    """
    options = SolverOptions()
    for name, value in _SNOPT.items():
        options.SetOption(SnoptSolver.id(), name, value)
    found = False
    nearest: Sequence[Violation] = ()
    for guess in guesses:
        prog.SetInitialGuess(x, guess)
        solution = SnoptSolver().Solve(prog, None, options).GetSolution(x)
        wrong = check(solution)
        if not wrong:
            found = True
            yield solution
        elif not nearest or sum(v.ratio for v in wrong) < sum(v.ratio for v in nearest):
            nearest = wrong
    if not found:
        raise InfeasibleError(failure, {v.name: v.text for v in nearest})
