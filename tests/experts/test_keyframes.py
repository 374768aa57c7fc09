"""Keyframe motions, and the legs that they make."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydrake.math import RigidTransform
from support.planning_problems import planning_problem, poses

from fleet_tools.config.expert import Advance, Keyframe, OverPlace, Rotate, Stay, Translate
from fleet_tools.errors import ConfigError, UnknownNameError
from fleet_tools.experts import keyframes
from fleet_tools.experts.keyframes import move

PROBLEM = planning_problem(1)
numbers = st.floats(-0.3, 0.3)
translations = st.builds(
    lambda by_m, frame: Translate(type="translate", by_m=by_m, frame=frame),
    st.tuples(numbers, numbers, numbers),
    st.sampled_from(["world", "object", "end_effector"]),
)
tool_axes = st.permutations(["head", "side", "tail"]).map(lambda names: tuple(names[:2]))
advances = st.builds(
    lambda axis, by_m: Advance(type="advance", axis=axis, by_m=by_m), tool_axes, numbers
)
rotations = st.builds(
    lambda angle_deg, about, axis: Rotate(
        type="rotate", angle_deg=angle_deg, about=about, axis=axis
    ),
    st.floats(-170, 170),
    st.sampled_from(["head", "base"]),
    st.sampled_from([None, ("head", "base")]),
)
motions = translations | advances | rotations | st.just(Stay(type="stay", for_s=0.5))
fractions = st.floats(0, 1)


def assert_same(X: RigidTransform, Y: RigidTransform) -> None:
    np.testing.assert_allclose(X.GetAsMatrix34(), Y.GetAsMatrix34(), atol=1e-9)


@given(motions, poses)
def test_no_fraction_of_a_motion_is_the_identity(motion, X_WE):
    assert_same(move(motion, X_WE, 0.0, PROBLEM), X_WE)


@given(motions, poses, fractions)
def test_a_motion_and_its_rest_make_the_whole(motion, X_WE, fraction):
    part = move(motion, X_WE, fraction, PROBLEM)
    assert_same(move(motion, part, 1 - fraction, PROBLEM), move(motion, X_WE, 1.0, PROBLEM))


@given(st.tuples(numbers, numbers), poses, fractions)
def test_a_tool_keypoint_comes_over_the_place_at_its_height(place, X_WE, fraction):
    p_W = np.array([*place, 0.0])
    problem = dataclasses.replace(PROBLEM, p_W_place=p_W)
    motion = OverPlace(type="over_place", tool="head", object="base")
    start = X_WE @ PROBLEM.tool_point("head")
    moved = move(motion, X_WE, fraction, problem)
    end = moved @ PROBLEM.tool_point("head")
    expected = start + fraction * np.array([*(p_W - start)[:2], 0.0])
    np.testing.assert_allclose(end, expected, atol=1e-12)
    np.testing.assert_array_equal(moved.rotation().matrix(), X_WE.rotation().matrix())
    with pytest.raises(ConfigError, match="marked place"):
        move(motion, X_WE, fraction, PROBLEM)


@given(advances, poses, fractions)
def test_an_advance_translates_the_axis_along_itself(motion, X_WE, fraction):
    start, end = map(PROBLEM.tool_point, motion.axis)
    moved = move(motion, X_WE, fraction, PROBLEM)
    expected = X_WE @ (start + fraction * motion.by_m * (end - start) / np.linalg.norm(end - start))
    np.testing.assert_allclose(moved @ start, expected, atol=1e-9)
    assert_same(RigidTransform(moved.rotation()), RigidTransform(X_WE.rotation()))


@given(advances, poses, poses)
def test_an_advance_does_not_depend_on_the_grasp(motion, X_WE, X_EF):
    held = {name: X_EF @ p for name, p in PROBLEM.p_E_tool.items()}
    elsewhere = dataclasses.replace(PROBLEM, p_E_tool=held)
    as_held = move(motion, X_WE @ X_EF.inverse(), 1.0, elsewhere)
    assert_same(as_held @ X_EF, move(motion, X_WE, 1.0, PROBLEM))


@pytest.mark.parametrize("axis", [("head", "base"), ("hed", "tail")])
def test_an_advance_is_along_keypoints_of_the_tool(axis):
    motion = Advance(type="advance", axis=axis, by_m=0.1)
    with pytest.raises(UnknownNameError, match="keypoint of the tool"):
        move(motion, RigidTransform(), 1.0, PROBLEM)


def test_an_axis_without_a_direction_is_refused():
    motion = Advance(type="advance", axis=("head", "head"), by_m=0.1)
    with pytest.raises(ConfigError, match="head->head has no direction"):
        move(motion, RigidTransform(), 1.0, PROBLEM)


@given(rotations, poses, fractions)
def test_a_rotation_keeps_its_axis_and_distance(motion, X_WE, fraction):
    center = PROBLEM.p_W_object[motion.about]
    moved = move(motion, X_WE, fraction, PROBLEM)
    radius, turned = X_WE.translation() - center, moved.translation() - center
    assert np.linalg.norm(turned) == pytest.approx(np.linalg.norm(radius), abs=1e-9)
    assert turned[2] == pytest.approx(radius[2], abs=1e-9)  # these axes are all vertical
    angle = (moved.rotation() @ X_WE.rotation().inverse()).ToAngleAxis().angle()
    assert angle == pytest.approx(abs(math.radians(fraction * motion.angle_deg)), abs=1e-6)


def test_frames_of_translation():
    X_WE = RigidTransform([0.4, 0.1, 0.3])
    by_m = (0.01, 0.02, 0.03)
    moved = {
        frame: move(Translate(type="translate", by_m=by_m, frame=frame), X_WE, 1.0, PROBLEM)
        for frame in ("world", "object", "end_effector")
    }
    shift = {frame: X.translation() - X_WE.translation() for frame, X in moved.items()}
    np.testing.assert_allclose(shift["world"], by_m)
    np.testing.assert_allclose(shift["object"], PROBLEM.X_WO.rotation() @ np.array(by_m))
    np.testing.assert_allclose(shift["end_effector"], X_WE.rotation() @ np.array(by_m))


@given(motions, poses, st.floats(0.1, 1))
def test_followed_legs_keep_within_their_limit_in_the_fewest_steps(motion, X_WE, speed):
    expert = PROBLEM.expert.model_copy(update={"after": (Keyframe(motion=motion, speed=speed),)})
    leg = keyframes.legs(dataclasses.replace(PROBLEM, expert=expert), X_WE, X_WE)[-1]
    steps = [leg.path(k / leg.steps) for k in range(leg.steps + 1)]
    assert max(map(leg.limit.ratio, steps, steps[1:])) <= 1 + 1e-4
    if leg.kind == "followed" and leg.steps > 1:
        fewer = [leg.path(k / (leg.steps - 1)) for k in range(leg.steps)]
        assert max(map(leg.limit.ratio, fewer, fewer[1:])) > 1 - 0.02  # a chord is shorter


def test_the_legs_join_into_one_way():
    X_WE_now, X_WE_star = RigidTransform([0.5, 0.0, 0.4]), RigidTransform([0.4, 0.1, 0.2])
    legs = keyframes.legs(PROBLEM, X_WE_now, X_WE_star)
    assert [leg.name for leg in legs][:2] == ["before[0]", "actuation"]
    assert_same(legs[0].path(1.0), legs[1].path(0.0))
    assert_same(legs[1].path(1.0), X_WE_star)
    for leg, following in itertools.pairwise(legs[1:]):
        assert_same(leg.path(1.0), following.path(0.0))


@given(st.lists(motions, max_size=3), poses, st.floats(0.1, 1))
def test_a_retreat_makes_its_motions_one_by_one_in_steps_within_the_limit(retreat, X_WE, speed):
    steps = tuple(Keyframe(motion=motion, speed=speed) for motion in retreat)
    expert = PROBLEM.expert.model_copy(update={"retreat": steps})
    problem = dataclasses.replace(PROBLEM, expert=expert)
    path = [X_WE, *keyframes.retreat(problem, X_WE)]
    limit = keyframes.StepLimit.at_speed(PROBLEM.step_bounds, speed)
    assert all(limit.ratio(a, b) <= 1 + 1e-3 for a, b in itertools.pairwise(path))
    end = X_WE
    for motion in retreat:
        end = move(motion, end, 1.0, PROBLEM)
    assert_same(path[-1], end)
