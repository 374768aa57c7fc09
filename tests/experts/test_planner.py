"""Plans of hammer scenes, and of a knife's."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydrake.common.eigen_geometry import AngleAxis
from pydrake.math import RotationMatrix
from support.planning_problems import arm, planning_problem
from support.shares import few

from fleet_tools.config.expert import Keyframe, Rotate, Stay, Translate
from fleet_tools.errors import InfeasibleError, UnknownNameError
from fleet_tools.experts.conditions import AtPose, condition
from fleet_tools.experts.keyframes import move
from fleet_tools.experts.planner import plan
from fleet_tools.experts.problem import PlanningProblem
from fleet_tools.robot.pose_delta import displacement

SEEDS = range(3)
TURN = (  # slow, so that several steps lie between the knots
    Keyframe(motion=Rotate(type="rotate", angle_deg=40, about="head"), speed=0.25),
    Keyframe(motion=Stay(type="stay", for_s=0.33)),
    Keyframe(motion=Translate(type="translate", by_m=(0, 0, 0.05), frame="world"), speed=1.0),
)


def turning_problem(seed: int) -> PlanningProblem:
    expert = planning_problem(seed).expert.model_copy(update={"after": TURN})
    return planning_problem(seed, expert=expert)


@pytest.mark.parametrize("actuation", ["joint_space", "pose_space"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_plan_satisfies_its_constraints(seed, actuation):
    problem, robot = planning_problem(seed), arm()
    made = plan(problem, actuation)
    np.testing.assert_allclose(made.q[0], problem.q0, atol=1e-9)
    assert len(made.q) == len(made.X_WE) == made.keyframes[-1] + 1
    assert made.actuation in made.keyframes
    for term in problem.expert.actuation.constraints:
        assert condition(term, problem).ratio(made.X_WE[made.actuation]) <= 1.01
    assert np.all(made.q >= robot.lower) and np.all(made.q <= robot.upper)
    bounds = np.repeat(
        [problem.step_bounds.translation_m, np.radians(problem.step_bounds.rotation_deg)], 3
    )
    for X_WE, X_WF in zip(made.X_WE, made.X_WE[1:], strict=False):
        assert np.all(np.abs(displacement(X_WE, X_WF)) <= bounds * (1 + 1e-4))


@pytest.mark.parametrize("seed", SEEDS)
def test_keyframes_are_at_the_poses_of_the_task_file(seed):
    problem = planning_problem(seed)
    made = plan(problem)
    star = made.keyframes.index(made.actuation)
    X_WE = made.X_WE[made.actuation]
    for k, keyframe in enumerate(problem.expert.before):
        expected = move(keyframe.motion, X_WE, 1.0, problem)
        assert AtPose("", expected).ratio(made.X_WE[made.keyframes[k]]) <= 1.1
    for k, keyframe in zip(made.keyframes[star + 1 :], problem.expert.after, strict=True):
        X_WE = move(keyframe.motion, X_WE, 1.0, problem)
        assert AtPose("", X_WE).ratio(made.X_WE[k]) <= 1.1


@pytest.mark.parametrize("seed", SEEDS)
def test_motions_are_followed_between_knots(seed):
    problem, robot = turning_problem(seed), arm()
    made = plan(problem)
    end = made.keyframes[made.keyframes.index(made.actuation) + 1]
    steps = end - made.actuation
    for moment in np.linspace(0, steps, 8 * steps + 1):
        k = min(int(moment), steps - 1) + made.actuation
        s = moment + made.actuation - k
        X_WE = robot.forward((1 - s) * made.q[k] + s * made.q[k + 1])
        start = made.X_WE[made.actuation]
        expected = move(TURN[0].motion, start, moment / steps, problem)
        assert AtPose("", expected, tolerance_m=1e-3, tolerance_deg=1).ratio(X_WE) < 1


def test_a_plan_does_not_depend_on_earlier_plans():
    first = plan(planning_problem(0))
    plan(turning_problem(1), "pose_space")
    with pytest.raises(InfeasibleError):
        plan(planning_problem(2, p_W_object={"head": np.full(3, 3.0), "base": np.zeros(3)}))
    again = plan(planning_problem(0))
    np.testing.assert_array_equal(first.q, again.q)
    assert first.keyframes == again.keyframes


def test_every_step_leads_to_the_next_keyframe_by_its_name():
    made = plan(planning_problem(0))
    expert = planning_problem(0).expert
    before = [f"before[{k}]" for k in range(len(expert.before))]
    after = [f"after[{k}]" for k in range(len(expert.after))]
    assert list(made.names) == [*before, "actuation", *after]
    for step in range(len(made.q)):
        ahead = [k for k, knot in enumerate(made.keyframes) if knot >= step]
        assert made.leg(step) == made.names[ahead[0]]


def test_a_plan_needs_no_keyframes():
    expert = planning_problem(0).expert.model_copy(update={"before": (), "after": ()})
    made = plan(planning_problem(0, expert=expert))
    assert made.keyframes == (made.actuation,) == (len(made.q) - 1,)


@given(st.floats(1.3, 2.0), st.sampled_from([-1, 1]))
@few(4)
def test_keypoints_that_contradict_each_other_want_slack(skew_deg, sign):
    exact = planning_problem(0, "knife")
    points = dict(exact.p_E_tool)
    along = points["tip"] - points["heel"]
    side = points["edge"] - points["spine"]
    across = np.cross(along, side)
    axis = across / np.linalg.norm(across)
    turn = RotationMatrix(AngleAxis(sign * np.radians(skew_deg), axis))
    points["edge"] = points["spine"] + turn @ side
    skewed = replace(exact, p_E_tool=points)
    with pytest.raises(InfeasibleError, match="axis_to_axis"):
        plan(skewed)
    slack = replace(skewed, angle_slack_deg=1.0)
    made = plan(slack)
    for term in slack.expert.actuation.constraints:
        assert condition(term, slack).ratio(made.X_WE[made.actuation]) <= 1.01


def test_an_unknown_method_is_refused_with_the_nearest():
    method: Any = "joint-space"
    with pytest.raises(UnknownNameError, match=r"Did you mean 'joint_space'"):
        plan(planning_problem(0), method)
