"""The actuation pose: it satisfies the task, at a local minimum of the cost."""

import itertools
from typing import Any

import numpy as np
import pytest
from pydrake.common.eigen_geometry import AngleAxis
from pydrake.math import RigidTransform, RotationMatrix
from scipy.optimize import minimize
from support.planning_problems import arm, planning_problem

from fleet_tools.config.expert import AxisToAxis
from fleet_tools.errors import InfeasibleError
from fleet_tools.experts import kpam
from fleet_tools.experts.conditions import AtPose, condition, violations
from fleet_tools.experts.kinematics import Kinematics
from fleet_tools.experts.problem import PlanningProblem

SOLVERS = [kpam.solve_joint_space, kpam.solve_pose_space]
SEEDS = range(3)


def keypoint_motion(
    problem: PlanningProblem, before: RigidTransform, X_WE: RigidTransform
) -> float:
    """Returns the sum of squared displacements of the tool's keypoints, m^2."""
    moved = [X_WE @ p_EP - before @ p_EP for p_EP in problem.p_E_tool.values()]
    return float(np.sum(np.square(moved)))


def with_actuation(problem_seed: int, **update: Any) -> PlanningProblem:
    expert = planning_problem(problem_seed).expert
    actuation = expert.actuation.model_copy(update=update)
    return planning_problem(problem_seed, expert=expert.model_copy(update={"actuation": actuation}))


def cost(problem: PlanningProblem, q: np.ndarray, robot: Kinematics) -> float:
    actuation = problem.expert.actuation
    motion = keypoint_motion(problem, robot.forward(problem.q0), robot.forward(q))
    joints = np.sum(np.square(q - problem.q0))
    return float(actuation.keypoint_motion_cost * motion + actuation.joint_motion_cost * joints)


@pytest.mark.parametrize("solve", SOLVERS)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_solution_satisfies_the_terms_and_the_joint_limits(solve, seed):
    problem, robot = planning_problem(seed), arm()
    terms = [condition(term, problem) for term in problem.expert.actuation.constraints]
    count = 2 if seed else None  # all of one problem
    poses = list(itertools.islice(solve(problem, robot), count))
    assert len(poses) > 1
    for pose in poses:
        assert not violations(robot, pose.q, terms)
        assert AtPose("", pose.X_WE).ratio(robot.forward(pose.q)) <= 1


@pytest.mark.parametrize("seed", SEEDS)
def test_another_optimizer_finds_no_lower_cost_nearby(seed):
    problem, robot = planning_problem(seed), arm()
    q_star = next(kpam.solve_joint_space(problem, robot)).q
    terms = [condition(term, problem) for term in problem.expert.actuation.constraints]
    other = minimize(
        lambda q: cost(problem, q, robot),
        q_star,
        method="SLSQP",
        bounds=list(zip(robot.lower + kpam.MARGIN, robot.upper - kpam.MARGIN, strict=True)),
        constraints={
            "type": "ineq",
            "fun": lambda q: [1 - t.ratio(robot.forward(q)) ** 2 for t in terms],
        },
    )
    assert max(t.ratio(robot.forward(other.x)) for t in terms) < 1.01
    assert cost(problem, q_star, robot) <= other.fun * (1 + 1e-3)


@pytest.mark.parametrize("seed", SEEDS)
def test_optimizing_the_pose_moves_keypoints_at_most_as_far_as_optimizing_joints(seed):
    problem, robot = with_actuation(seed, joint_motion_cost=0.0), arm()
    X_WE_now = robot.forward(problem.q0)
    by_pose, by_joints = (
        keypoint_motion(problem, X_WE_now, next(solve(problem, robot)).X_WE)
        for solve in (kpam.solve_pose_space, kpam.solve_joint_space)
    )
    assert by_pose <= by_joints * (1 + 1e-4)


@pytest.mark.parametrize("solve", SOLVERS)
def test_an_object_out_of_reach_is_an_error_with_the_distance(solve):
    problem = planning_problem(0)
    shift = np.array([3.0, 0.0, 0.0])
    out_of_reach = planning_problem(
        0,
        p_W_object={name: p + shift for name, p in problem.p_W_object.items()},
        X_WO=RigidTransform(problem.X_WO.rotation(), problem.X_WO.translation() + shift),
    )
    with pytest.raises(InfeasibleError) as error:
        next(solve(out_of_reach, arm()))
    name = {
        kpam.solve_joint_space: "point_to_point(head, head)",
        kpam.solve_pose_space: "actuation pose",
    }[solve]
    metres = float(error.value.violations[name].split(" m")[0])
    assert 2.0 < metres < 3.5


@pytest.mark.parametrize("solve", SOLVERS)
def test_contradictory_terms_are_named(solve):
    terms = tuple(
        AxisToAxis(type="axis_to_axis", tool=("side", "head"), world=world, tolerance_deg=1)
        for world in ((0, 0, -1), (0, 0, 1))
    )
    with pytest.raises(InfeasibleError) as error:
        next(solve(with_actuation(0, constraints=terms), arm()))
    violated = error.value.violations
    assert set(violated) <= {
        "axis_to_axis(side->head, world 0 0 -1)",
        "axis_to_axis(side->head, world 0 0 1)",
    }
    assert sum(float(text.split(" deg")[0]) for text in violated.values()) >= 178


def test_the_tool_may_begin_upside_down():
    problem = planning_problem(0)
    flip = RigidTransform(RotationMatrix(AngleAxis(np.pi, [1.0, 0.0, 0.0])), np.zeros(3))
    flipped = planning_problem(0, p_E_tool={name: flip @ p for name, p in problem.p_E_tool.items()})
    for solve in SOLVERS:
        pose = next(solve(flipped, arm()))
        for term in flipped.expert.actuation.constraints:
            assert condition(term, flipped).ratio(pose.X_WE) <= 1.01
