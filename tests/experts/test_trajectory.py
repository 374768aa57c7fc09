"""Kinematics of the arm, and trajectories: the optimum through keyframes, and its constraints."""

import numpy as np
import pytest
from pydrake.math import RigidTransform
from support.planning_problems import arm, planning_problem

from fleet_tools.errors import InfeasibleError
from fleet_tools.experts import keyframes, kpam, planner
from fleet_tools.experts.conditions import AtPose
from fleet_tools.experts.kinematics import Kinematics
from fleet_tools.experts.planner import Knot


def keyframe_solution(seed: int) -> tuple[Kinematics, list[Knot], np.ndarray]:
    problem, robot = planning_problem(seed), arm()
    q_star = next(kpam.solve_joint_space(problem, robot)).q
    legs = keyframes.legs(problem, robot.forward(problem.q0), robot.forward(q_star))
    knots = planner.keyframe_knots(legs, problem.q0, q_star)
    return robot, knots, solve(robot, knots, planner.first_guess(robot, knots))


def solve(robot: Kinematics, knots: list[Knot], guess: np.ndarray) -> np.ndarray:
    return planner.solve_trajectory(robot, knots, guess, robot.velocity_limit / 6)


def cost(q: np.ndarray) -> float:
    return float(np.sum(np.square(np.diff(q, axis=0))))


@pytest.mark.parametrize("seed", range(2))
def test_between_keyframes_the_papers_optimum_is_a_straight_line(seed):
    robot, knots, q = keyframe_solution(seed)
    all_knots, line = planner.interpolate(knots, q)
    optimum = solve(robot, all_knots, line)
    assert cost(optimum) == pytest.approx(cost(line), rel=1e-4)
    rough = line + np.random.default_rng(seed).normal(scale=0.02, size=line.shape)
    assert cost(solve(robot, all_knots, rough)) >= cost(line) * (1 - 1e-4)


@pytest.mark.parametrize("seed", range(2))
def test_every_condition_holds_at_its_knot(seed):
    robot, knots, q = keyframe_solution(seed)
    for k, knot in enumerate(knots):
        if knot.q is not None:
            np.testing.assert_allclose(q[k], knot.q, atol=1e-9)
        if knot.pose is not None:
            assert knot.pose.ratio(robot.forward(q[k])) <= 1
        if knot.held:
            np.testing.assert_array_equal(q[k], q[k - 1])
    assert np.all(q >= robot.lower) and np.all(q <= robot.upper)


def test_the_cost_of_a_difference_is_divided_by_its_steps():
    q = np.array([planning_problem(0).q0] * 3)
    q[2, 0] += 0.4
    knots = [Knot(0, q=q[0]), Knot(1), Knot(4, q=q[2])]
    found = solve(arm(), knots, q)
    np.testing.assert_allclose(found[1], 0.75 * q[0] + 0.25 * q[2], atol=1e-5)


def test_a_start_beyond_the_joint_limits_is_an_error():
    robot, q0 = arm(), planning_problem(0).q0.copy()
    q0[3] = robot.upper[3] + 0.1
    with pytest.raises(InfeasibleError, match=r"joint limits: exceeded by 0\.1 rad"):
        solve(robot, [Knot(0, q=q0), Knot(1)], np.array([q0, q0]))


def test_a_keyframe_out_of_reach_is_named():
    robot, q0 = arm(), planning_problem(0).q0
    X_WE = RigidTransform(robot.forward(q0).rotation(), [2.0, 0.0, 0.3])
    knots = [Knot(0, q=q0), Knot(30, pose=AtPose("after[3]", X_WE))]
    with pytest.raises(InfeasibleError) as error:
        solve(robot, knots, np.array([q0, q0]))
    assert float(error.value.violations["after[3]"].split(" m")[0]) > 0.9


def test_joints_that_would_have_to_be_too_fast_are_an_error():
    robot, q0 = arm(), planning_problem(0).q0
    knots = [Knot(0, q=q0), Knot(1, q=q0 + 0.5 * np.eye(7)[0])]
    with pytest.raises(InfeasibleError, match=r"joint speed.*1\.3\d times"):
        solve(robot, knots, np.array([knot.q for knot in knots]))


@pytest.mark.parametrize("seed", range(5))
def test_the_guess_reaches_near_poses(seed):
    robot, q0 = arm(), planning_problem(seed).q0
    q = q0 + np.random.default_rng(seed).uniform(-0.2, 0.2, 7)
    at = AtPose("", robot.forward(q))
    assert at.ratio(robot.forward(robot.approach(q0, at.X_WF, iterations=6))) < 1


def test_a_guess_out_of_reach_stays_within_the_limits():
    robot, q0 = arm(), planning_problem().q0
    X_WF = robot.forward(q0)
    X_WF.set_translation([3.0, 0.0, 0.0])
    q = robot.approach(q0, X_WF)
    assert np.all(q >= robot.lower) and np.all(q <= robot.upper)


def test_two_arms_share_no_state():
    one, other = arm(), arm()
    before = other.plant.GetPositions(other.context)
    one.forward(planning_problem().q0)
    np.testing.assert_array_equal(other.plant.GetPositions(other.context), before)
