"""Laws of the comparison that replays and verification share."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_tools.rollouts.agreement import Agreement, Points, counts, distance_of_points

DISTANCES = st.none() | st.floats(0, 10)
AGREEMENTS = st.builds(
    lambda identical, same, apart: Agreement(
        identical, same or identical, 0 if identical else apart
    ),
    st.booleans(),
    st.booleans(),
    DISTANCES,
)
POINT = st.tuples(*[st.floats(-10, 10)] * 3)
POINTS = st.fixed_dictionaries(
    {"end_effector": st.lists(POINT, min_size=1, max_size=1), "keypoints": st.lists(POINT)}
)


@given(st.lists(AGREEMENTS), st.floats(0, 10), st.floats(0, 10))
def test_counts_go_from_strict_to_loose(
    agreements: list[Agreement], limit_m: float, more_m: float
) -> None:
    found, looser = counts(agreements, limit_m), counts(agreements, limit_m + more_m)
    assert found["identical"] <= found["within"] <= looser["within"] <= found["same_outcome"]
    assert found["same_outcome"] <= found["episodes"] == len(agreements)
    assert (found["largest_distance_m"] is None) == (found["measured"] == 0)


@given(POINTS, POINTS)
def test_the_distance_is_symmetric_and_zero_to_itself(one: Points, other: Points) -> None:
    assert distance_of_points(one, one) == 0
    assert distance_of_points(one, other) == distance_of_points(other, one)


@given(POINTS, POINT)
def test_a_shift_of_all_points_is_the_distance(one: Points, shift: tuple[float, ...]) -> None:
    moved = {kind: [tuple(np.add(p, shift)) for p in rows] for kind, rows in one.items()}
    found = distance_of_points(one, moved)
    assert found == pytest.approx(math.hypot(*shift), abs=1e-9)


def test_other_points_have_no_distance() -> None:
    one: Points = {"end_effector": [(0.0, 0.0, 0.0)]}
    assert distance_of_points(one, None) is None
    assert distance_of_points(one, {}) is None
    assert distance_of_points(one, {"object_keypoints": [(0.0, 0.0, 0.0)]}) is None
    assert distance_of_points(one, {"end_effector": [(0.0, 0.0, 0.0)] * 2}) is None
    assert distance_of_points(one, {"end_effector": [(math.nan, 0.0, 0.0)]}) is None
