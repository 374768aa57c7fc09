"""The planner: from keypoints to a joint trajectory."""

import time
from collections.abc import Iterator
from typing import Literal

import numpy as np

from fleet_tools.errors import InfeasibleError, UnknownNameError
from fleet_tools.experts import keyframes, kpam, trajectory
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

    Args:
        problem: The planning problem.
        actuation: Method that finds the actuation pose.

    Raises:
        InfeasibleError: There is no such plan; the error lists the violated constraints.
        UnknownNameError, ConfigError: The task's keypoints are not those of tool and object.
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
    too_fast: dict[str, str] = {}
    for _ in range(MAX_STRETCHES):
        knots = trajectory.keyframe_knots(outline, problem.q0, q_star)
        q = trajectory.guess(robot, knots)  # cheap, and a good estimate of the free legs' lengths
        longer = _within_limits(outline, robot, trajectory.interpolate(knots, q)[1], {"free"})
        if longer == outline:
            q = trajectory.solve(robot, knots, q)
            all_knots, all_q = trajectory.interpolate(knots, q)
            longer = _within_limits(outline, robot, all_q, {"free", "followed"})
            if longer == outline:
                return trajectory.solve(robot, all_knots, all_q), outline
        too_fast = {leg.name: "steps too long" for leg in outline if leg not in longer}
        outline = longer
    raise InfeasibleError("The plan exceeds its step limits at any length.", too_fast)


def _within_limits(
    outline: list[Leg], robot: Kinematics, q: np.ndarray, kinds: set[str]
) -> list[Leg]:
    """Returns the outline with more steps in legs of some kinds that exceed limits in q, (T, n)."""
    X_WE = [robot.forward(q_k) for q_k in q]
    result, start = [], 0
    for leg in outline:
        end = start + leg.steps
        ratios = [leg.limit.ratio(X_WE[k], X_WE[k + 1]) for k in range(start, end)]
        ratios += [np.max(np.abs(q[k + 1] - q[k]) / robot.step_limit) for k in range(start, end)]
        result.append(leg.stretched(max(ratios)) if leg.kind in kinds else leg)
        start = end
    return result
