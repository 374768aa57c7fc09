from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydrake.math import RigidTransform

from fleet_tools.errors import UnknownNameError
from fleet_tools.state import WorldState
from fleet_tools.success import judge, judge_all
from fleet_tools.tasks import JointDisplacement, KeypointsNear

positions = st.floats(-10, 10)
thresholds = st.floats(1e-3, 5)
START = WorldState(
    time=0.0,
    q=np.zeros(7),
    v=np.zeros(7),
    tau_external=np.zeros(7),
    X_WE=RigidTransform([0.1, 0.2, 0.3]),
    F_E=np.zeros(6),
    p_W_tool={"head": np.zeros(3)},
    X_WO=RigidTransform(),
    p_W_object={"head": np.zeros(3)},
    object_joints={"slide": 0.0, "turn": 0.0},
)


def moved(joint, threshold):
    return JointDisplacement(type="joint_displacement", joint=joint, at_least=threshold)


def at(**joints):
    return replace(START, object_joints=START.object_joints | joints)


@given(positions, positions, thresholds)
def test_a_joint_counts_from_where_it_started(start, end, threshold):
    verdict = judge(moved("slide", threshold), at(slide=start), at(slide=end))
    assert verdict.holds == (end - start >= threshold)
    assert 0.0 <= verdict.progress <= 1.0
    assert not verdict.holds or verdict.progress == 1.0


@given(positions, positions, thresholds)
def test_progress_never_falls_while_the_joint_moves_on(first, second, threshold):
    near, far = sorted([first, second])
    predicate = moved("slide", threshold)
    assert judge(predicate, START, at(slide=near)).progress <= (
        judge(predicate, START, at(slide=far)).progress
    )


@given(positions, positions, thresholds)
def test_a_conjunction_holds_if_all_do(slide, turn, threshold):
    predicates = moved("slide", threshold), moved("turn", threshold)
    now = at(slide=slide, turn=turn)
    parts = [judge(predicate, START, now) for predicate in predicates]
    whole = judge_all(predicates, START, now)
    assert whole.holds == all(part.holds for part in parts)
    assert whole.progress == pytest.approx(np.mean([part.progress for part in parts]))


@given(thresholds)
def test_a_world_that_has_not_moved_has_not_succeeded(threshold):
    verdict = judge(moved("slide", threshold), START, START)
    assert (verdict.holds, verdict.progress) == (False, 0.0)


def near(within, tool="head", object="head"):
    return KeypointsNear(type="keypoints_near", tool=tool, object=object, within_m=within)


@given(positions, thresholds)
def test_keypoints_are_near_within_their_distance(distance, within):
    now = replace(START, p_W_tool={"head": np.array([0.0, distance, 0.0])})
    verdict = judge(near(within), START, now)
    assert verdict.holds is (abs(distance) <= within)
    assert 0.0 < verdict.progress <= 1.0
    assert verdict.holds == (verdict.progress == 1.0)


@given(positions, positions, thresholds)
def test_progress_never_falls_as_keypoints_come_near(first, second, within):
    close, far = (
        judge(near(within), START, replace(START, p_W_tool={"head": np.array([0, 0, z])}))
        for z in sorted([first, second], key=abs)
    )
    assert close.progress >= far.progress


@pytest.mark.parametrize("kind", ["tool", "object"])
def test_an_unknown_keypoint_is_refused_with_the_nearest(kind):
    with pytest.raises(UnknownNameError, match=rf"keypoint of the {kind} 'haed'; did you .*'head'"):
        judge(near(0.1, **{kind: "haed"}), START, START)


def test_verdicts_are_plain_booleans():
    assert judge(moved("slide", 0.1), START, at(slide=1.0)).holds is True
    assert judge_all((moved("slide", 0.1),), START, START).holds is False


def test_an_unknown_joint_is_refused_with_the_nearest():
    with pytest.raises(UnknownNameError, match=r"'slid'; did you mean 'slide'"):
        judge(moved("slid", 0.1), START, START)


def test_points_are_seen_from_the_end_effector():
    assert np.allclose(START.in_end_effector({"a": np.zeros(3)})["a"], [-0.1, -0.2, -0.3])
