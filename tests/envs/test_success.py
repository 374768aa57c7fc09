"""Success predicates, on states that are made up."""

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydrake.math import RigidTransform

from fleet_tools.config.predicates import (
    AxisUpright,
    Contact,
    JointDisplacement,
    KeypointRaised,
    KeypointsNear,
    KeypointsParted,
    Still,
)
from fleet_tools.envs.success import judge, judge_all
from fleet_tools.errors import UnknownNameError
from fleet_tools.sim.world_state import WorldState

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
    p_W_object={"head": np.zeros(3), "base": np.array([0.0, 0.0, -0.1])},
    object_joints={"slide": 0.0, "turn": 0.0},
    contacts=frozenset({("object/block", "table")}),
    F_W_tool=np.zeros(6),
    object_joint_forces={"slide": 0.0, "turn": 0.0},
    object_joint_impulses={"slide": 0.0, "turn": 0.0},
    V_WE=np.zeros(6),
    links={"block": (np.zeros(3), np.zeros(3)), "nail": (np.zeros(3), np.zeros(3))},
    motion_scale=1.0,
    limit_times={},
)


def moved(joint: str, threshold: float) -> JointDisplacement:
    return JointDisplacement(type="joint_displacement", joint=joint, at_least=threshold)


def at(**joints: float) -> WorldState:
    return replace(START, object_joints=START.object_joints | joints)


@given(positions, positions, thresholds)
def test_a_joint_is_measured_from_its_start(start, end, threshold):
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
def test_several_predicates_hold_if_each_does(slide, turn, threshold):
    predicates = moved("slide", threshold), moved("turn", threshold)
    now = at(slide=slide, turn=turn)
    parts = [judge(predicate, START, now) for predicate in predicates]
    whole = judge_all(predicates, START, now)
    assert whole.holds == all(part.holds for part in parts)
    assert whole.progress == pytest.approx(np.mean([part.progress for part in parts]))


@given(thresholds)
def test_a_world_without_motion_has_no_success(threshold):
    verdict = judge(moved("slide", threshold), START, START)
    assert (verdict.holds, verdict.progress) == (False, 0.0)


def near(within: float, tool: str = "head", object: str = "head") -> KeypointsNear:
    return KeypointsNear(type="keypoints_near", tool=tool, object=object, within_m=within)


@given(positions, thresholds)
def test_keypoints_are_near_within_their_distance(distance, within):
    now = replace(START, p_W_tool={"head": np.array([0.0, distance, 0.0])})
    verdict = judge(near(within), START, now)
    assert verdict.holds is (abs(distance) <= within)
    assert 0.0 < verdict.progress <= 1.0
    assert verdict.holds == (verdict.progress == 1.0)


@given(positions, positions, thresholds)
def test_progress_never_falls_as_keypoints_approach(first, second, within):
    close, far = (
        judge(near(within), START, replace(START, p_W_tool={"head": np.array([0, 0, z])}))
        for z in sorted([first, second], key=abs)
    )
    assert close.progress >= far.progress


@pytest.mark.parametrize("kind", ["tool", "object"])
def test_an_unknown_keypoint_is_refused_with_the_nearest(kind):
    with pytest.raises(UnknownNameError, match=rf"keypoint of the {kind}: 'haed'\. .*'head'"):
        judge(near(0.1, **{kind: "haed"}), START, START)


def test_verdicts_are_plain_booleans():
    assert judge(moved("slide", 0.1), START, at(slide=1.0)).holds is True
    assert judge_all((moved("slide", 0.1),), START, START).holds is False


def test_an_unknown_joint_is_refused_with_the_nearest():
    with pytest.raises(UnknownNameError, match=r"'slid'. Did you mean 'slide'"):
        judge(moved("slid", 0.1), START, START)


def test_points_are_expressed_in_the_end_effector():
    assert np.allclose(START.in_end_effector({"a": np.zeros(3)})["a"], [-0.1, -0.2, -0.3])


# --- Free objects ---------------------------------------------------------------------------

vectors = st.tuples(positions, positions, positions).map(np.array)


def with_points(**p_W: np.ndarray) -> WorldState:
    return replace(START, p_W_object=START.p_W_object | p_W)


@given(vectors, thresholds)
def test_a_rise_is_vertical_and_measured_from_the_start(p_W, threshold):
    predicate = KeypointRaised(type="keypoint_raised", object="head", at_least_m=threshold)
    assert judge(predicate, START, with_points(head=p_W)).holds == (p_W[2] >= threshold)
    assert not judge(predicate, with_points(head=p_W), with_points(head=p_W)).holds


@given(vectors, vectors, thresholds)
def test_points_part_as_their_distance_grows(head, base, threshold):
    predicate = KeypointsParted(
        type="keypoints_parted", objects=("head", "base"), at_least_m=threshold
    )
    now = with_points(head=head, base=base)
    assert judge(predicate, START, now).holds == (np.linalg.norm(head - base) - 0.1 >= threshold)
    both_moved = with_points(head=head, base=head - [0.0, 0.0, 0.1])
    assert not judge(predicate, START, both_moved).holds


@given(st.floats(0, 180), st.floats(-180, 180), st.floats(1, 179))
def test_an_axis_is_upright_within_its_angle(tilt, heading, within):
    lean, turn = np.radians([tilt, heading])
    axis = [np.sin(lean) * np.cos(turn), np.sin(lean) * np.sin(turn), np.cos(lean)]
    predicate = AxisUpright(type="axis_upright", object=("base", "head"), within_deg=within)
    now = with_points(base=np.ones(3), head=np.ones(3) + axis)
    if abs(tilt - within) > 1e-6:
        assert judge(predicate, START, now).holds == (tilt <= within)


@pytest.mark.parametrize("present", [True, False])
@pytest.mark.parametrize(
    ("between", "touch"),
    [
        (("object", "table"), True),
        (("table", "object"), True),
        (("object/block", "table"), True),
        (("object/nail", "table"), False),
        (("object", "tool"), False),
        (("robot", "table"), False),
        (("object", "object"), False),
    ],
)
def test_contact_between_named_bodies(between, touch, present):
    predicate = Contact(type="contact", between=between, present=present)
    assert judge(predicate, START, START).holds == (touch == present)


def test_an_unknown_body_is_refused():
    predicate = Contact(type="contact", between=("object/blok", "table"))
    with pytest.raises(UnknownNameError, match="Did you mean 'object/block'"):
        judge(predicate, START, START)


SEEN_FROM: tuple[Literal["world", "end_effector"], ...] = ("world", "end_effector")


@given(st.integers(0, 2**32), st.floats(0.01, 1.0))
def test_links_that_move_with_the_hand_are_still_relative_to_it(seed, limit):
    rng = np.random.default_rng(seed)
    V_WE = rng.normal(size=6)

    def carried(p_W: np.ndarray) -> np.ndarray:
        return V_WE[3:] + np.cross(V_WE[:3], p_W - START.X_WE.translation())

    p_W_links = {name: rng.normal(size=3) for name in START.links}
    links = {name: (p_W, carried(p_W)) for name, p_W in p_W_links.items()}
    now = replace(START, V_WE=V_WE, links=links)
    still = {
        observer: Still(type="still", seen_from=observer, below_m_s=limit) for observer in SEEN_FROM
    }
    assert judge(still["end_effector"], START, now).holds
    fastest = max(np.linalg.norm(carried(p_W)) for p_W in p_W_links.values())
    assert judge(still["world"], START, now).holds == (fastest <= limit)
    slipping = dict(now.links)
    slip = np.array([1.01 * limit, 0, 0])
    slipping["nail"] = p_W_links["nail"], carried(p_W_links["nail"]) + slip
    assert not judge(still["end_effector"], START, replace(now, links=slipping)).holds
