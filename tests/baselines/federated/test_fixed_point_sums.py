"""Sums in fixed point do not depend on order or grouping, and refuse what they cannot hold."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")

from fleet_merging.errors import MergeError, MessageError
from fleet_tools.baselines.federated.aggregation import (
    CAPACITY,
    HEAVIEST,
    LARGEST,
    RESOLUTION,
    FixedPointSum,
)


@st.composite
def terms(draw: st.DrawFn) -> list[tuple[np.ndarray, int]]:
    """Draws vectors of a common size, and weights."""
    size, count = draw(st.integers(1, 6)), draw(st.integers(1, 8))
    numbers = st.floats(-7.875, 7.875, width=32)
    return [
        (np.array(draw(st.lists(numbers, min_size=size, max_size=size)), np.float32), weight)
        for weight in draw(st.lists(st.integers(1, 10_000), min_size=count, max_size=count))
    ]


def summed(parts: list[tuple[np.ndarray, int]]) -> FixedPointSum:
    total = FixedPointSum.zero(len(parts[0][0]))
    for vector, weight in parts:
        total = total.plus(vector, weight)
    return total


def same(one: FixedPointSum, other: FixedPointSum) -> bool:
    return (one.weight, one.count) == (other.weight, other.count) and np.array_equal(
        one.terms, other.terms
    )


@given(terms(), st.randoms(use_true_random=False), st.integers(0, 8))
def test_order_and_regions_do_not_matter_to_the_last_bit(parts, random, cut) -> None:
    shuffled = random.sample(parts, len(parts))
    cut = min(cut, len(parts) - 1)
    regions = summed(parts[cut:])
    if cut:
        regions = regions.joined(summed(parts[:cut]))
    assert same(summed(parts), summed(shuffled)) and same(summed(parts), regions)


@given(terms())
def test_a_mean_is_the_mean_up_to_half_a_unit(parts) -> None:
    vectors, weights = zip(*parts, strict=True)
    exact = np.average(np.array(vectors, np.float64), axis=0, weights=weights)
    assert np.abs(summed(parts).mean() - exact).max() <= RESOLUTION


@pytest.mark.parametrize("entry", [np.nan, np.inf, -np.inf, LARGEST, -1e30])
def test_a_change_that_does_not_fit_is_refused(entry: float) -> None:
    with pytest.raises(MessageError, match="smaller learning rate"):
        FixedPointSum.zero(2).plus(np.array([0.0, entry], np.float32), 1)


def test_a_full_sum_is_refused_before_it_overflows() -> None:
    largest = np.array([np.nextafter(np.float32(LARGEST), np.float32(0))])
    full = one = FixedPointSum.zero(1).plus(largest, HEAVIEST)
    for _ in range(CAPACITY // HEAVIEST - 1):
        full = full.joined(one)
    assert full.mean() == pytest.approx(LARGEST)  # not its negative
    with pytest.raises(MergeError, match="expected at most 4294967296"):
        full.joined(one)
    with pytest.raises(MessageError, match="at most 4294967296 in all"):
        full.plus(largest, 1)
    with pytest.raises(MessageError, match="expected 1 to"):
        FixedPointSum.zero(1).plus(largest, HEAVIEST + 1)
