"""Kinematics of the arm: initial guesses, and independent copies."""

import numpy as np
import pytest
from support.planning_problems import arm, planning_problem

from fleet_tools.experts.conditions import AtPose


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
