"""The joint trajectory through the keyframes (the paper, eq. obj_traj_opt).

The cost is a sum of squared steps, so between two keyframes the optimum is a straight line in
joint space at a constant rate. Therefore the keyframes alone are solved for first, with the cost
of each difference divided by the number of its steps, and the whole problem starts from there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydrake.solvers import MathematicalProgram

from fleet_tools.experts.conditions import SLACK, AtPose, Violation, feasible, violations
from fleet_tools.experts.keyframes import ACTUATION, Leg
from fleet_tools.experts.kinematics import Kinematics


@dataclass(frozen=True, eq=False)
class Knot:
    """Constraints on the joints at one control step.

    Attributes:
        step: Number of control steps since the start.
        pose: Pose of the end effector; None if it is not constrained.
        q: (n,), given joint positions, rad; None if they are free.
        held: Whether the joints are the same as at the knot before; then nothing else is given.
    """

    step: int
    pose: AtPose | None = None
    q: np.ndarray | None = None
    held: bool = False


def keyframe_knots(legs: Sequence[Leg], q0: np.ndarray, q_star: np.ndarray) -> list[Knot]:
    """Returns the constrained knots: the first, and those at the legs' poses.

    Args:
        legs: Outline of the plan.
        q0: (n,), joint positions at the start, rad.
        q_star: (n,), joint positions at the end of the leg to the actuation pose, rad.
    """
    knots = [Knot(0, q=q0)]
    start = 0
    for leg in legs:
        for step, X_WE in leg.poses().items():
            last = step == leg.steps
            held = leg.kind == "held"
            name = leg.name if last else f"{leg.name} at {step}/{leg.steps}"
            pose = None if held else AtPose(name, X_WE)
            q = q_star if last and leg.name == ACTUATION else None
            knots.append(Knot(start + step, pose, q, held))
        start += leg.steps
    return knots


def solve(arm: Kinematics, knots: Sequence[Knot], guess: np.ndarray) -> np.ndarray:
    """Finds the trajectory with the smallest sum of |q[k+1] - q[k]|^2 / (steps from k to k+1).

    With a knot at every step, this is the paper's problem.

    Args:
        arm: Kinematics of the arm.
        knots: Constraints, in the order of time.
        guess: (len(knots), n), initial guess, rad.

    Returns:
        (len(knots), n), joint positions, rad.

    Raises:
        InfeasibleError: None was found; it names the keyframes that are missed.
    """
    prog = MathematicalProgram()
    n = arm.plant.num_positions()
    difference = np.hstack([-np.eye(n), np.eye(n)])
    variables: list[np.ndarray] = []  # (n,) per knot; a held knot has those of the one before
    for k, knot in enumerate(knots):
        if knot.held:
            variables.append(variables[-1])
        else:
            variables.append(arm.add_positions(prog, f"q{knot.step}_"))
            if knot.q is None and knot.pose is not None:
                knot.pose.add_to(prog, variables[k], arm)
        if knot.q is not None:
            prog.AddBoundingBoxConstraint(knot.q, knot.q, variables[k])
        if k > 0 and not knot.held:
            steps = knot.step - knots[k - 1].step
            ends = np.concatenate([variables[k - 1], variables[k]])
            prog.Add2NormSquaredCost(difference / np.sqrt(steps), np.zeros(n), ends)
            farthest = steps * arm.step_limit
            prog.AddLinearConstraint(difference, -farthest, farthest, ends)
    solutions = feasible(
        prog,
        np.array(variables),
        [guess],
        lambda q: _violations(arm, knots, q),
        "The arm cannot follow the keyframes.",
    )
    return next(solutions)


def _violations(arm: Kinematics, knots: Sequence[Knot], q: np.ndarray) -> list[Violation]:
    result: list[Violation] = []
    for k, knot in enumerate(knots):
        result += violations(arm, q[k], [knot.pose] if knot.pose else [])
        if k > 0:
            steps = knot.step - knots[k - 1].step
            ratio = float(np.max(np.abs(q[k] - q[k - 1]) / (steps * arm.step_limit)))
            if ratio > 1 + SLACK:
                name = f"joint speed before step {knot.step}"
                result.append(Violation(name, ratio, f"{ratio:.2f} times the limit, at most 1"))
    return result


def interpolate(knots: Sequence[Knot], q: np.ndarray) -> tuple[list[Knot], np.ndarray]:
    """Adds the knots of all steps in between.

    Args:
        knots: In the order of time, the first at step 0.
        q: (len(knots), n), joint positions at the knots, rad.

    Returns:
        A knot for every step, and their joint positions, (T, n), interpolated linearly.
    """
    given = {knot.step: knot for knot in knots}
    steps = np.arange(knots[-1].step + 1)
    filled = np.column_stack([np.interp(steps, list(given), joint) for joint in q.T])
    return [given.get(step, Knot(step)) for step in steps.tolist()], filled


def guess(arm: Kinematics, knots: Sequence[Knot]) -> np.ndarray:
    """Returns an initial guess, (len(knots), n), rad, by inverse kinematics alone.

    It visits the knots' poses from the actuation pose outwards, so redundant joints change little.

    Args:
        arm: Kinematics of the arm.
        knots: As returned by `keyframe_knots`.
    """
    fixed = max(k for k, knot in enumerate(knots) if knot.q is not None)
    q = np.array([knots[0].q] * len(knots))
    q[fixed] = knots[fixed].q
    for k in range(fixed + 1, len(knots)):
        q[k] = _near(arm, q[k - 1], knots[k])
    for k in range(fixed - 1, 0, -1):
        q[k] = _near(arm, q[k + 1], knots[k])
    return q


def _near(arm: Kinematics, q: np.ndarray, knot: Knot) -> np.ndarray:
    """Returns joint positions near q towards a knot's pose."""
    return q if knot.pose is None else arm.approach(q, knot.pose.X_WF)
