"""Success predicates of rearrangement, on states that are made up."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.made_up_states import START, points, require_law, with_points

from fleet_tools.config.predicates import (
    AtGoal,
    BodyMoved,
    InRegion,
    OnBody,
)
from fleet_tools.envs.success import judge
from fleet_tools.sim.world_state import WorldState

lengths = st.floats(0.01, 0.5)
shares = st.floats(0, 1)


def with_links(**p_W: np.ndarray) -> WorldState:
    moved = {name: (p_W[name], np.zeros(3)) for name in p_W}
    return replace(START, links=START.links | moved)


@given(points, points, shares, lengths)
def test_a_body_has_moved_by_its_distance_in_any_direction(start, way, share, least):
    predicate = BodyMoved(type="body_moved", body="object/nail", at_least_m=least)
    initial = with_links(nail=start)
    closer, farther = with_links(nail=start + way), with_links(nail=start + share * way)
    holds = require_law(predicate, closer, farther, initial)
    distance = np.linalg.norm(way)
    if abs(distance - least) > 1e-9:
        assert holds == (distance >= least)
    assert judge(predicate, initial, initial).progress == 0.0
    others_move = replace(initial, links=initial.links | {"block": (way, way)})
    assert judge(predicate, initial, others_move).progress == 0.0


@given(points, points, lengths)
def test_an_object_has_moved_as_far_as_its_farthest_link(nail, block, least):
    def moved_by(body: str) -> BodyMoved:
        return BodyMoved(type="body_moved", body=body, at_least_m=least)

    now = with_links(nail=nail, block=block)
    links = [judge(moved_by(f"object/{link}"), START, now) for link in ("nail", "block")]
    assert judge(moved_by("object"), START, now) == max(links, key=lambda each: each.progress)


@given(points, points, shares, lengths)
def test_a_goal_is_reached_within_its_distance(goal, away, share, within):
    predicate = AtGoal(type="at_goal", object="head", goal_m=tuple(goal), within_m=within)
    closer, farther = with_points(head=goal + share * away), with_points(head=goal + away)
    holds = require_law(predicate, closer, farther)
    distance = np.linalg.norm(share * away)
    if abs(distance - within) > 1e-9:
        assert holds == (distance <= within)


@given(points, points, points, lengths)
def test_a_goal_may_be_where_a_keypoint_was(base, head, later, within):
    """Where that keypoint has gone since does not matter."""
    initial, now = with_points(base=base), with_points(base=later, head=head)
    there = AtGoal(type="at_goal", object="head", start_of="base", within_m=within)
    fixed = AtGoal(type="at_goal", object="head", goal_m=tuple(base), within_m=within)
    assert judge(there, initial, now) == judge(fixed, initial, now)


@given(points, points.map(abs), points, shares)
def test_a_region_is_a_box_in_the_world(low, size, p_W, share):
    high = low + size + 0.01
    predicate = InRegion(type="in_region", object="head", low_m=tuple(low), high_m=tuple(high))
    inside = np.clip(p_W, low, high)
    closer = with_points(head=inside + share * (p_W - inside))
    holds = require_law(predicate, closer, with_points(head=p_W))
    assert judge(predicate, START, with_points(head=inside)).holds
    if share * np.linalg.norm(p_W - inside) > 1e-9:
        assert not holds


touching = frozenset({("object/block", "object/nail")})


@given(points, points, shares, lengths, st.booleans(), st.booleans())
def test_a_body_lies_on_another_if_it_touches_it_from_above(block, nail, share, least, near, low):
    predicate = OnBody(type="on_body", body="object/nail", on="object/block", at_least_m=least)
    height = block[2] + least + share
    contacts = (touching if near else frozenset()) | ({("object/nail", "table")} if low else set())

    def at_height(z: float) -> WorldState:
        state = with_links(block=block, nail=np.array([*nail[:2], z]))
        return replace(state, contacts=START.contacts | contacts)

    nearly = min(nail[2], height)
    assume(abs(nearly - block[2] - least) > 1e-9 and share > 1e-9)
    assert require_law(predicate, at_height(height), at_height(nearly)) == (near and not low)
    assert not judge(predicate, START, at_height(block[2] + 0.99 * least)).holds


@pytest.mark.parametrize("also", [("robot", "object/nail"), ("object/nail", "tool")])
def test_what_holds_a_body_is_for_other_predicates_to_say(also):
    predicate = OnBody(type="on_body", body="object/nail", on="object/block", at_least_m=0.1)
    on = replace(with_links(nail=np.array([0, 0, 0.2])), contacts=START.contacts | touching)
    held = replace(on, contacts=on.contacts | {tuple(sorted(also))})
    assert judge(predicate, START, on) == judge(predicate, START, held)
