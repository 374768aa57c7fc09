"""The joint trajectory through the keyframes (the paper, eq. obj_traj_opt).

Its cost is that of a chain of springs: between two keyframes the shortest way is a straight line
in joint space, at a constant rate. So the keyframes alone are solved for first, with springs that
are softer the more steps they span, and the whole problem starts from a solution.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydrake.solvers import MathematicalProgram

from fleet_tools.experts.keyframes import ACTUATION, Leg
from fleet_tools.experts.kinematics import Kinematics
from fleet_tools.experts.solver import SLACK, Violation, feasible, violations
from fleet_tools.experts.terms import AtPose


@dataclass(frozen=True, eq=False)
class Knot:
    """What is asked of the joints at one control step.

    Attributes:
        step: When, in control steps since the start.
        pose: Where the end effector is, or None.
        q: (7,), joint positions if they are given, rad, or None.
        held: Whether the joints are where they were one knot ago; then nothing else is asked.
    """

    step: int
    pose: AtPose | None = None
    q: np.ndarray | None = None
    held: bool = False


def keyframe_knots(legs: Sequence[Leg], q0: np.ndarray, q_star: np.ndarray) -> list[Knot]:
    """Lists the knots of which something is asked: the first, and those at the legs' poses.

    Args:
        legs: The plan's outline.
        q0: (7,), joint positions at the start, rad.
        q_star: (7,), joint positions at the end of the leg to the actuation pose, rad.
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
    """Finds the trajectory with the least sum of |q[k+1] - q[k]|^2 / (steps from k to k+1).

    With a knot at every step this is the paper's problem.

    Args:
        arm: What moves.
        knots: What is asked, in the order of time.
        guess: (len(knots), 7), rad.

    Returns:
        (len(knots), 7), rad.

    Raises:
        InfeasibleError: None was found; it names the keyframes that are missed.
    """
    prog = MathematicalProgram()
    difference = np.hstack([-np.eye(7), np.eye(7)])
    variables: list[np.ndarray] = []  # (7,) per knot; where the joints are held, the same again
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
            prog.Add2NormSquaredCost(difference / np.sqrt(steps), np.zeros(7), ends)
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
    result = []
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
    """Fills in the steps between knots.

    Args:
        knots: In the order of time, the first at step 0.
        q: (len(knots), 7), rad.

    Returns:
        A knot for every step, and joint positions at all of them, (T, 7), linear between knots.
    """
    given = {knot.step: knot for knot in knots}
    steps = np.arange(knots[-1].step + 1)
    filled = np.column_stack([np.interp(steps, list(given), joint) for joint in q.T])
    return [given.get(step, Knot(step)) for step in steps.tolist()], filled


def guess(arm: Kinematics, knots: Sequence[Knot]) -> np.ndarray:
    """Follows the keyframes' poses from the actuation pose outwards, by inverse kinematics alone.

    Returns:
        (len(knots), 7), rad.
    """
    fixed = max(k for k, knot in enumerate(knots) if knot.q is not None)
    q = np.array([knots[0].q] * len(knots))
    q[fixed] = knots[fixed].q
    for k in range(fixed + 1, len(knots)):
        held = knots[k].held
        q[k] = q[k - 1] if held else arm.approach(q[k - 1], knots[k].pose.X_WF)
    for k in range(fixed - 1, 0, -1):
        q[k] = arm.approach(q[k + 1], knots[k].pose.X_WF)
    return q
