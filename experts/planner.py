"""The planner: from keypoints to a joint trajectory.

The cost of the trajectory (the paper, eq. obj_traj_opt) is a sum of squared steps, so between two
keyframes the optimum is a straight
line in joint space at a constant rate. Therefore the keyframes alone are solved for first, with
the cost of each difference divided by the number of its steps, and the whole problem starts from
there.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydrake.solvers import MathematicalProgram

from fleet_tools.errors import InfeasibleError, UnknownNameError
from fleet_tools.experts import keyframes, kpam
from fleet_tools.experts.conditions import SLACK, AtPose, Violation, feasible, violations
from fleet_tools.experts.keyframes import ACTUATION, Leg
from fleet_tools.experts.kinematics import Kinematics, arm_kinematics
from fleet_tools.experts.problem import ActuationPose, Plan, PlanningProblem

MAX_STRETCHES = 10
"""Largest number of times that a plan is slowed down to meet the step limits."""

MAX_POSES = 4
"""Largest number of actuation poses for which a trajectory is computed."""

SAME_RAD = 0.05
"""Actuation poses count as equal if no joint differs by more, rad."""

ActuationMethod = Literal["joint_space", "pose_space"]
"""Method that finds the actuation pose: over the joints, or over the pose alone, followed by
inverse kinematics; the paper compares the two."""

ACTUATION_SOLVERS = {"joint_space": kpam.solve_joint_space, "pose_space": kpam.solve_pose_space}


def plan(problem: PlanningProblem, actuation: ActuationMethod = "joint_space") -> Plan:
    """Plans a whole episode; a pure function of its arguments.

    No step of the plan exceeds the action bounds times the speed of the keyframe it leads to.

    Raises:
        InfeasibleError: There is no such plan; the error lists the violated constraints.
        UnknownNameError, ConfigError: The task's keypoints are not the tool's and object's.
    """
    if actuation not in ACTUATION_SOLVERS:
        raise UnknownNameError("actuation method", actuation, ACTUATION_SOLVERS)
    robot = arm_kinematics(problem.robot)
    seconds = {"actuation": 0.0, "trajectory": 0.0}
    q, outline = _first_with_trajectory(
        problem, robot, ACTUATION_SOLVERS[actuation](problem, robot), seconds
    )
    ends = np.cumsum([leg.steps for leg in outline]).tolist()
    return Plan(
        q=q,
        X_WE=tuple(robot.forward(q_k) for q_k in q),
        actuation=ends[[leg.name for leg in outline].index(ACTUATION)],
        keyframes=tuple(ends),
        names=tuple(leg.name for leg in outline),
        seconds=seconds,
    )


def _first_with_trajectory(
    problem: PlanningProblem,
    robot: Kinematics,
    poses: Iterator[ActuationPose],
    seconds: dict[str, float],
) -> tuple[np.ndarray, list[Leg]]:
    """Solves for a trajectory through the first actuation pose for which there is one.

    The nearest pose may be so close to joint limits that the motions around it are infeasible.
    """
    tried: list[np.ndarray] = []
    failures: list[InfeasibleError] = []
    clock = time.perf_counter()
    for pose in poses:
        now = time.perf_counter()
        seconds["actuation"] += now - clock
        if not any(np.abs(pose.q - q).max() < SAME_RAD for q in tried):
            tried.append(pose.q)
            try:
                return _trajectory(problem, robot, pose.q)
            except InfeasibleError as error:
                failures.append(error)
            finally:
                seconds["trajectory"] += time.perf_counter() - now
        if len(tried) == MAX_POSES:
            break
        clock = time.perf_counter()
    raise failures[0]


def _trajectory(
    problem: PlanningProblem, robot: Kinematics, q_star: np.ndarray
) -> tuple[np.ndarray, list[Leg]]:
    """Solves for the trajectory, (T, n), with as many steps as the step limits require."""
    outline = keyframes.legs(problem, robot.forward(problem.q0), robot.forward(q_star))
    step_limit = robot.velocity_limit / problem.control_rate_hz
    too_fast: dict[str, str] = {}
    for _ in range(MAX_STRETCHES):
        knots = keyframe_knots(outline, problem.q0, q_star)
        q = first_guess(robot, knots)  # cheap, and a good estimate of the free legs' lengths
        all_q = interpolate(knots, q)[1]
        longer = _within_limits(outline, robot, all_q, step_limit, {"free"})
        if longer == outline:
            q = solve_trajectory(robot, knots, q, step_limit)
            all_knots, all_q = interpolate(knots, q)
            longer = _within_limits(outline, robot, all_q, step_limit, {"free", "followed"})
            if longer == outline:
                return solve_trajectory(robot, all_knots, all_q, step_limit), outline
        too_fast = {leg.name: "steps too long" for leg in outline if leg not in longer}
        outline = longer
    raise InfeasibleError("The plan exceeds the limits of a step at every length.", too_fast)


def _within_limits(
    outline: list[Leg],
    robot: Kinematics,
    q: np.ndarray,
    step_limit: np.ndarray,
    kinds: set[str],
) -> list[Leg]:
    """Returns the outline with more steps in legs of some kinds that exceed limits in q, (T, n)."""
    X_WE = [robot.forward(q_k) for q_k in q]
    result, start = [], 0
    for leg in outline:
        end = start + leg.steps
        ratios = [leg.limit.ratio(X_WE[k], X_WE[k + 1]) for k in range(start, end)]
        ratios += [np.max(np.abs(q[k + 1] - q[k]) / step_limit) for k in range(start, end)]
        result.append(leg.stretched(max(ratios)) if leg.kind in kinds else leg)
        start = end
    return result


# --- The trajectory through keyframes --------------------------------------------------------


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


def solve_trajectory(
    arm: Kinematics, knots: Sequence[Knot], guess: np.ndarray, step_limit: np.ndarray
) -> np.ndarray:
    """Finds the trajectory with the smallest sum of |q[k+1] - q[k]|^2 / (steps from k to k+1).

    With a knot at every step, this is the paper's problem.

    Args:
        arm: Kinematics of the arm.
        knots: Constraints, in the order of time.
        guess: (len(knots), n), initial guess, rad.
        step_limit: (n,), largest change of each joint in one control step, rad.

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
            farthest = steps * step_limit
            prog.AddLinearConstraint(difference, -farthest, farthest, ends)
    solutions = feasible(
        prog,
        np.array(variables),
        [guess],
        lambda q: _knot_violations(arm, knots, q, step_limit),
        "The arm cannot follow the keyframes.",
    )
    return next(solutions)


def _knot_violations(
    arm: Kinematics, knots: Sequence[Knot], q: np.ndarray, step_limit: np.ndarray
) -> list[Violation]:
    result: list[Violation] = []
    for k, knot in enumerate(knots):
        result += violations(arm, q[k], [knot.pose] if knot.pose else [])
        if k > 0:
            steps = knot.step - knots[k - 1].step
            ratio = float(np.max(np.abs(q[k] - q[k - 1]) / (steps * step_limit)))
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


def first_guess(arm: Kinematics, knots: Sequence[Knot]) -> np.ndarray:
    """Returns an initial guess, (len(knots), n), rad, by inverse kinematics alone.

    It visits the knots' poses from the actuation pose outwards, so redundant joints change little.
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
