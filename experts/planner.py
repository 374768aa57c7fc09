"""From keypoints to a joint trajectory: the expert's plan."""

import time
from collections.abc import Iterator
from typing import Literal

import numpy as np

from fleet_tools.errors import InfeasibleError, UnknownNameError
from fleet_tools.experts import keyframes, kpam, trajectory
from fleet_tools.experts.keyframes import ACTUATION, Leg
from fleet_tools.experts.kinematics import Kinematics, arm
from fleet_tools.experts.problem import ActuationPose, Plan, PlanningProblem

MAX_STRETCHES = 10

MAX_POSES = 4
"""Around so many different actuation poses, at most, a trajectory is looked for."""

SAME_RAD = 0.05
"""Actuation poses whose joints differ by less are one and the same."""

ACTUATION_SOLVERS = {"joint_space": kpam.solve_joint_space, "pose_space": kpam.solve_pose_space}


def plan(
    problem: PlanningProblem, actuation: Literal["joint_space", "pose_space"] = "joint_space"
) -> Plan:
    """Plans a whole episode; a pure function of its arguments.

    No step of the plan exceeds the action bounds times the speed of the keyframe it leads to.

    Args:
        problem: The task, the arm and the keypoints.
        actuation: How the actuation pose is found: over the joints, or over the pose alone and
            then by inverse kinematics, as the paper compares them.

    Raises:
        InfeasibleError: There is no such plan; it says what is violated, and by how much.
        UnknownNameError, ConfigError: The task's keypoints are not those of tool and object.
    """
    if actuation not in ACTUATION_SOLVERS:
        raise UnknownNameError("way to the actuation pose", actuation, ACTUATION_SOLVERS)
    robot = arm()
    watch = {"actuation": 0.0, "trajectory": 0.0}
    q, outline = _first_with_trajectory(
        problem, robot, ACTUATION_SOLVERS[actuation](problem, robot), watch
    )
    ends = np.cumsum([leg.steps for leg in outline]).tolist()
    return Plan(
        q=q,
        X_WE=tuple(robot.forward(q_k) for q_k in q),
        actuation=ends[[leg.name for leg in outline].index(ACTUATION)],
        keyframes=tuple(ends),
        seconds=watch,
    )


def _first_with_trajectory(
    problem: PlanningProblem,
    robot: Kinematics,
    poses: Iterator[ActuationPose],
    watch: dict[str, float],
) -> tuple[np.ndarray, list[Leg]]:
    """Solves for a trajectory through the first actuation pose around which there is one.

    The nearest pose may leave the arm no room for the motions around it, such as a wrist that has
    turned as far as it goes.
    """
    tried: list[np.ndarray] = []
    failure = None
    clock = time.perf_counter()
    for pose in poses:
        now = time.perf_counter()
        watch["actuation"] += now - clock
        if not any(np.abs(pose.q - q).max() < SAME_RAD for q in tried):
            tried.append(pose.q)
            try:
                return _trajectory(problem, robot, pose.q)
            except InfeasibleError as error:
                failure = failure or error
            finally:
                watch["trajectory"] += time.perf_counter() - now
        if len(tried) == MAX_POSES:
            break
        clock = time.perf_counter()
    raise failure


def _trajectory(
    problem: PlanningProblem, robot: Kinematics, q_star: np.ndarray
) -> tuple[np.ndarray, list[Leg]]:
    """Solves for the trajectory, (T, 7), with as many steps as the action bounds ask for."""
    outline = keyframes.legs(problem, robot.forward(problem.q0), robot.forward(q_star))
    for _ in range(MAX_STRETCHES):
        knots = trajectory.keyframe_knots(outline, problem.q0, q_star)
        q = trajectory.guess(robot, knots)  # cheap, and tells how long the free ways are
        longer = _within_limits(outline, robot, trajectory.interpolate(knots, q)[1], {"free"})
        if longer == outline:
            q = trajectory.solve(robot, knots, q)
            all_knots, all_q = trajectory.interpolate(knots, q)
            longer = _within_limits(outline, robot, all_q, {"free", "followed"})
        if longer == outline:
            return trajectory.solve(robot, all_knots, all_q), outline
        too_fast = {leg.name: "steps too long" for leg in outline if leg not in longer}
        outline = longer
    raise InfeasibleError("The plan does not get slow enough.", too_fast)


def _within_limits(
    outline: list[Leg], robot: Kinematics, q: np.ndarray, kinds: set[str]
) -> list[Leg]:
    """Stretches the legs of some kinds whose steps are too long in a trajectory q, (T, 7)."""
    X_WE = [robot.forward(q_k) for q_k in q]
    result, start = [], 0
    for leg in outline:
        end = start + leg.steps
        ratios = [leg.limit.ratio(X_WE[k], X_WE[k + 1]) for k in range(start, end)]
        ratios += [np.max(np.abs(q[k + 1] - q[k]) / robot.step_limit) for k in range(start, end)]
        result.append(leg.stretched(max(ratios)) if leg.kind in kinds else leg)
        start = end
    return result
