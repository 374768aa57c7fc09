"""Success predicates, on states that are made up."""

from dataclasses import replace
from typing import Literal

import numpy as np
import pydantic
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from pydrake.math import RotationMatrix
from support.made_up_states import START, require_law, with_points

from fleet_tools.config.predicates import (
    AxisUpright,
    CausedByPart,
    Contact,
    JointDisplacement,
    KeypointOverPlace,
    KeypointRaised,
    KeypointsNear,
    KeypointsParted,
    Predicate,
    Still,
)
from fleet_tools.envs.success import conjunction, judge, judge_each
from fleet_tools.errors import PredicateError, UnknownNameError
from fleet_tools.sim.attribution import PartMotion
from fleet_tools.sim.world_state import WorldState

positions = st.floats(-10, 10)
thresholds = st.floats(1e-3, 5)
vectors = st.tuples(positions, positions, positions).map(np.array)
shifts = st.tuples(*[st.floats(-0.2, 0.2)] * 3).map(np.array)


def moved(joint: str, threshold: float) -> JointDisplacement:
    return JointDisplacement(type="joint_displacement", joint=joint, at_least=threshold)


def at(**joints: float) -> WorldState:
    return replace(START, object_joints=START.object_joints | joints)


@given(positions, positions, st.floats(0, 1), thresholds)
def test_a_joint_is_measured_from_its_start(start, end, share, threshold):
    less = start + share * (end - start)
    near, far = sorted([less, end], reverse=True)
    predicate, begin = moved("slide", threshold), at(slide=start)
    assert judge(predicate, begin, begin).progress == 0.0
    assert require_law(predicate, at(slide=near), at(slide=far), begin) == (
        near - start >= threshold
    )


@given(positions, positions, thresholds)
def test_several_predicates_hold_if_each_does(slide, turn, threshold):
    predicates = moved("slide", threshold), moved("turn", threshold)
    now = at(slide=slide, turn=turn)
    parts = [judge(predicate, START, now) for predicate in predicates]
    whole = conjunction(judge_each(predicates, START, now).values())
    assert whole.holds == all(part.holds for part in parts)
    assert whole.progress == pytest.approx(np.mean([part.progress for part in parts]))


def near(within: float, tool: str = "head", object: str = "head") -> KeypointsNear:
    return KeypointsNear(type="keypoints_near", tool=tool, object=object, within_m=within)


# --- Free objects ---------------------------------------------------------------------------


@given(positions, st.floats(0, 1), thresholds)
def test_keypoints_are_near_within_their_distance(distance, share, within):
    far = replace(START, p_W_tool={"head": np.array([0.0, distance, 0.0])})
    close = replace(START, p_W_tool={"head": np.array([0.0, share * distance, 0.0])})
    assert require_law(near(within), close, far) is (abs(share * distance) <= within)


def over_place(within: float) -> KeypointOverPlace:
    return KeypointOverPlace(type="keypoint_over_place", object="head", within_m=within)


@given(vectors, vectors, st.floats(0, 1), positions, thresholds)
def test_a_keypoint_is_over_the_place_whatever_its_height(place, far, share, height, within):
    marked = replace(START, p_W_place=place * [1, 1, 0])
    closer = place + share * (far - place)
    closer[2] = height
    farther = replace(marked, p_W_object={"head": far})
    assume(abs(abs(complex(*(closer - place)[:2])) - within) > 1e-9)
    holds = require_law(over_place(within), replace(marked, p_W_object={"head": closer}), farther)
    assert holds is (abs(complex(*(closer - place)[:2])) <= within)


def test_without_a_place_nothing_is_over_it():
    with pytest.raises(PredicateError, match="no marked place"):
        judge(over_place(0.1), START, START)


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


# --- Causes ---------------------------------------------------------------------------------


def caused(threshold: float, part: str = "face") -> CausedByPart:
    return CausedByPart(type="caused_by_part", part=part, change=moved("slide", threshold))


def parted(threshold: float) -> KeypointsParted:
    return KeypointsParted(type="keypoints_parted", objects=("head", "base"), at_least_m=threshold)


def with_motion(now: WorldState, slide: float) -> WorldState:
    motion = PartMotion({"slide": slide}, {"head": np.array([0.0, 0.0, slide])}, {})
    return replace(now, part_motion={"face": motion})


@given(positions, positions, positions, thresholds)
def test_a_joints_change_counts_as_far_as_the_part_caused_it(start, end, by_part, threshold):
    """Whatever else moved it: nothing without the part, and never less where it does more."""
    assume(abs(by_part - threshold) > 1e-9)
    found = judge(caused(threshold), at(slide=start), with_motion(at(slide=end), by_part))
    alone = judge(moved("slide", threshold), at(slide=0.0), at(slide=by_part))
    assert found.holds == alone.holds
    assert found.progress == pytest.approx(alone.progress, abs=1e-9)


@example(  # seen in the knife task: the hand moved both blocks, and the handle one of them on
    apart=np.array([0.0, 0.04, 0.0]),
    by_part=np.array([0.08, 0.008, 0.0]),
    by_others=np.array([-0.076, 0.049, 0.0]),
    turn=0.0,
)
@given(shifts, shifts, shifts, st.floats(0, np.pi))
def test_a_part_parts_no_more_than_it_adds_to_what_others_did(apart, by_part, by_others, turn):
    """Both criteria, by another route: |d| and |d| without the part, and the part alone."""
    assume(np.linalg.norm(apart) > 0.01)
    d = apart + by_part + by_others
    bound = min(
        np.linalg.norm(apart + by_part) - np.linalg.norm(apart),
        np.linalg.norm(d) - np.linalg.norm(apart + by_others),
    )
    R = RotationMatrix.MakeZRotation(turn)
    verdicts = [
        judge(
            CausedByPart(type="caused_by_part", part="face", change=parted(0.05)),
            replace(START, p_W_object={"head": X @ apart, "base": np.zeros(3)}),
            replace(
                START,
                p_W_object={"head": X @ d, "base": np.zeros(3)},
                part_motion={
                    "face": PartMotion({}, {"head": X @ by_part, "base": np.zeros(3)}, {})
                },
            ),
        )
        for X in (np.eye(3), R.matrix())
    ]
    expected = min(max(bound / 0.05, 0.0), 1.0)
    for verdict in verdicts:
        assert verdict.progress == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("data", "nearest"),
    [
        ({"type": "joint_displacement", "joint": "slid", "at_least": 1}, "slide"),
        ({"type": "keypoints_near", "tool": "haed", "object": "head", "within_m": 1}, "head"),
        ({"type": "keypoints_near", "tool": "head", "object": "haed", "within_m": 1}, "head"),
        ({"type": "contact", "between": ["object/blok", "table"]}, "object/block"),
        (
            {
                "type": "caused_by_part",
                "part": "fase",
                "change": {"type": "joint_displacement", "joint": "slide", "at_least": 1},
            },
            "face",
        ),
    ],
)
def test_a_name_that_does_not_exist_is_refused_with_the_nearest(data, nearest):
    predicate = pydantic.TypeAdapter(Predicate).validate_python(data)
    with pytest.raises(UnknownNameError, match=f"Did you mean '{nearest}'"):
        judge(predicate, START, with_motion(START, 0.0))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"type": "function", "function": "upside_down"}, "expected module:function"),
        ({"type": "function", "function": "a b:c"}, "expected module:function"),
        ({"type": "function", "function": ".a:c"}, "expected module:function"),
    ],
)  # fmt: skip
def test_what_can_never_hold_is_refused_when_it_is_read(data, reason):
    with pytest.raises(pydantic.ValidationError, match=reason):
        pydantic.TypeAdapter(Predicate).validate_python(data)
