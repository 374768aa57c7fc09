"""Intervals and tests, against their laws, published cases and SciPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from fleet_tools.utils.statistics import (
    mcnemar,
    paired_difference,
    paired_interval,
    stratified_interval,
    stratified_rate,
    wilson_interval,
)

few = settings(max_examples=25)  # an interval takes 10000 draws

COUNTS = st.integers(1, 80).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
STRATA = st.lists(COUNTS, min_size=1, max_size=6)
PAIRED = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(0, 40)).map(
        lambda counts: (counts[0], counts[1], sum(counts))
    ),
    min_size=1,
    max_size=6,
)


@given(COUNTS)
def test_wilson_is_that_of_scipy(counts):
    expected = binomtest(*counts).proportion_ci(method="wilson")
    assert wilson_interval(*counts) == pytest.approx(tuple(expected), abs=2e-6)


def test_wilson_in_a_published_case():
    # Newcombe 1998, table I, method 3: 81 of 263, 15 of 148, 0 of 20 and 1 of 29.
    cases = {(81, 263): (0.2553, 0.3662), (15, 148): (0.0624, 0.1605), (0, 20): (0.0, 0.1611)}
    for counts, expected in cases.items():
        assert wilson_interval(*counts) == pytest.approx(expected, abs=1e-4)
    assert wilson_interval(1, 29) == pytest.approx((0.0061, 0.1718), abs=1e-4)


@few
@given(STRATA, st.randoms())
def test_the_order_of_strata_changes_nothing(strata, shuffle):
    again = strata.copy()
    shuffle.shuffle(again)
    assert stratified_rate(again) == stratified_rate(strata)
    assert stratified_interval(again) == stratified_interval(strata)


@few
@given(STRATA)
def test_the_rate_lies_in_its_interval_and_that_in_the_possible(strata):
    low, high = stratified_interval(strata)
    assert 0.0 <= low <= stratified_rate(strata) + 1e-6
    assert stratified_rate(strata) - 1e-6 <= high <= 1.0
    assert low < high


@few
@given(PAIRED)
def test_exchanging_the_two_mirrors_the_difference(strata):
    exchanged = [(second, first, pairs) for first, second, pairs in strata]
    low, high = paired_interval(strata)
    if paired_difference(strata) is None:
        assert (low, high) == (-1.0, 1.0)
        return
    assert paired_interval(exchanged) == (-high, -low)
    assert paired_difference(exchanged) == -paired_difference(strata)
    assert -1.0 <= low <= paired_difference(strata) + 1e-6
    assert paired_difference(strata) - 1e-6 <= high <= 1.0


@few
@given(PAIRED, st.randoms())
def test_the_order_of_pairs_strata_changes_nothing(strata, shuffle):
    again = strata.copy()
    shuffle.shuffle(again)
    assert paired_interval(again) == paired_interval(strata)


def test_without_trials_nothing_is_known():
    assert stratified_rate([(0, 0)]) is None
    assert stratified_interval([]) == (0.0, 1.0)
    assert paired_interval([(0, 0, 0)]) == (-1.0, 1.0)
    assert stratified_rate([(1, 2), (0, 0)]) == 0.5


def test_perfect_scores_are_as_uncertain_as_wilson_says():
    assert stratified_interval([(75, 75)] * 4) == wilson_interval(300, 300)
    assert stratified_interval([(0, 75)] * 4) == wilson_interval(0, 300)


def test_one_stratum_that_varies_nearly_gives_wilsons_interval():
    assert stratified_interval([(150, 300)]) == pytest.approx(wilson_interval(150, 300), abs=0.004)


@given(st.lists(st.tuples(st.integers(0, 30), st.just(30)), min_size=2, max_size=5))
def test_strata_that_count_the_same_have_the_pooled_rate(strata):
    pooled = sum(successes for successes, _ in strata) / (30 * len(strata))
    assert stratified_rate(strata) == pytest.approx(pooled)


def _coverage(draw_interval, truth, repeats=300):
    generator = np.random.default_rng(5)
    within = [
        low <= truth <= high for low, high in (draw_interval(generator) for _ in range(repeats))
    ]
    return float(np.mean(within))


@pytest.mark.parametrize("rates", [(0.9, 0.5, 0.3), (0.85, 0.95, 0.8)])
def test_intervals_hold_the_true_rate_as_often_as_they_say(rates):
    sizes = (75, 75, 40)
    truth = float(np.mean(rates))
    covered = _coverage(
        lambda generator: stratified_interval(
            [(int(generator.binomial(n, rate)), n) for n, rate in zip(sizes, rates, strict=True)]
        ),
        truth,
    )
    assert 0.91 <= covered <= 0.985


def test_paired_intervals_hold_the_true_difference_as_often_as_they_say():
    chances = [(0.2, 0.1, 0.7), (0.2, 0.05, 0.75)]

    def draw(generator):
        counts = [generator.multinomial(75, chance) for chance in chances]
        return paired_interval([(int(first), int(second), 75) for first, second, _ in counts])

    assert 0.91 <= _coverage(draw, (0.10 + 0.15) / 2) <= 0.985


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_the_exact_binomial_test(only_first, only_second):
    assert mcnemar(only_first, only_second) == mcnemar(only_second, only_first)
    if only_first + only_second:
        expected = binomtest(only_first, only_first + only_second, 0.5).pvalue
        assert mcnemar(only_first, only_second) == pytest.approx(expected, rel=1e-9)


def test_mcnemar_at_its_ends():
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(7, 7) == 1.0
    assert mcnemar(1200, 0) == pytest.approx(2.0**-1199)
    assert mcnemar(3, 10) == pytest.approx(0.0923, abs=1e-4)
