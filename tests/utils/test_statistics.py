"""Intervals and tests, against their laws, published cases and SciPy."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, chi2, multinomial

from fleet_tools.utils.statistics import (
    adjusted_p_values,
    paired_difference,
    paired_interval,
    paired_p_value,
    stratified_interval,
    stratified_rate,
    told_apart,
    wilson_interval,
)

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
    low, high = binomtest(*counts).proportion_ci(method="wilson")
    assert wilson_interval(*counts) == (round(float(low), 6), round(float(high), 6))


def test_wilson_in_a_published_case():
    # Newcombe 1998, table I, method 3.
    cases = {(81, 263): (0.2553, 0.3662), (15, 148): (0.0624, 0.1605), (0, 20): (0.0, 0.1611)}
    for counts, expected in {**cases, (1, 29): (0.0061, 0.1718)}.items():
        assert wilson_interval(*counts) == pytest.approx(expected, abs=1e-4)


@given(STRATA, PAIRED, st.randoms())
def test_the_order_of_strata_changes_nothing(strata, pairs, shuffle):
    again, pairs_again = (shuffle.sample(each, len(each)) for each in (strata, pairs))
    assert stratified_rate(again) == stratified_rate(strata)
    assert stratified_interval(again) == stratified_interval(strata)
    assert paired_interval(pairs_again) == paired_interval(pairs)


@given(st.lists(st.sampled_from([0.001, 0.008, 0.011, 0.021, 0.041, 0.2, 0.6]), max_size=6))
def test_of_several_differences_those_are_told_that_every_set_with_them_tells(p_values):
    """Holm's procedure as what it is: all sets of hypotheses, each tested by Bonferroni's."""
    numbers = range(len(p_values))
    sets = [each for size in numbers for each in itertools.combinations(numbers, size + 1)]
    by_set = {each: min(1, len(each) * min(p_values[k] for k in each)) for each in sets}
    expected = [max(p for each, p in by_set.items() if k in each) for k in numbers]
    assert adjusted_p_values(p_values) == expected
    assert told_apart(p_values) == [p < 0.05 for p in expected]


@given(STRATA)
def test_the_rate_lies_in_its_interval_and_that_between_0_and_1(strata):
    low, high = stratified_interval(strata)
    rate = stratified_rate(strata)
    assert rate is not None
    assert 0.0 <= low <= rate + 1e-6
    assert rate - 1e-6 <= high <= 1.0
    assert low < high


@given(PAIRED)
def test_exchanging_the_two_mirrors_the_difference(strata):
    exchanged = [(second, first, pairs) for first, second, pairs in strata]
    low, high = paired_interval(strata)
    difference = paired_difference(strata)
    assert paired_p_value(strata) == pytest.approx(paired_p_value(exchanged), abs=1e-9)
    if difference is None:
        assert (low, high) == (-1.0, 1.0)
        return
    assert paired_interval(exchanged) == (-high, -low)
    assert paired_difference(exchanged) == -difference
    assert -1.0 <= low <= difference + 1e-6
    assert difference - 1e-6 <= high <= 1.0


def test_without_trials_nothing_is_known():
    assert stratified_rate([(0, 0)]) is None
    assert stratified_interval([]) == (0.0, 1.0)
    assert paired_interval([(0, 0, 0)]) == (-1.0, 1.0)
    assert stratified_rate([(1, 2), (0, 0)]) == 0.5


def test_perfect_scores_have_nearly_wilsons_interval():
    assert stratified_interval([(75, 75)] * 4) == pytest.approx(wilson_interval(300, 300), abs=1e-3)
    assert stratified_interval([(0, 75)] * 4) == pytest.approx(wilson_interval(0, 300), abs=1e-3)


@given(COUNTS)
def test_one_stratum_has_wilsons_interval(counts):
    assert stratified_interval([counts]) == pytest.approx(wilson_interval(*counts), abs=2e-6)


@given(st.lists(st.tuples(st.integers(0, 30), st.just(30)), min_size=2, max_size=5))
def test_strata_of_equal_size_have_the_pooled_rate(strata):
    pooled = sum(successes for successes, _ in strata) / (30 * len(strata))
    assert stratified_rate(strata) == pytest.approx(pooled)


def coverage(
    draw_interval: Callable[[np.random.Generator], tuple[float, float]],
    truth: float,
    repeats: int = 200,
) -> float:
    """Returns the fraction of random intervals that contain the truth."""
    generator = np.random.default_rng(5)
    intervals = (draw_interval(generator) for _ in range(repeats))
    return float(np.mean([low <= truth <= high for low, high in intervals]))


@pytest.mark.parametrize("rates", [(0.9, 0.5, 0.3), (0.85, 0.95, 0.8)])
def test_intervals_contain_the_true_rate_with_their_confidence(rates):
    sizes = (75, 75, 40)
    truth = float(np.mean(rates))
    covered = coverage(
        lambda generator: stratified_interval(
            [(int(generator.binomial(n, rate)), n) for n, rate in zip(sizes, rates, strict=True)]
        ),
        truth,
    )
    assert 0.91 <= covered <= 0.985


def test_paired_intervals_contain_the_true_difference_with_their_confidence():
    chances = [(0.2, 0.1, 0.7), (0.2, 0.05, 0.75)]

    def draw(generator: np.random.Generator) -> tuple[float, float]:
        counts = [generator.multinomial(75, chance) for chance in chances]
        return paired_interval([(int(first), int(second), 75) for first, second, _ in counts])

    assert 0.91 <= coverage(draw, (0.10 + 0.15) / 2) <= 0.99


@pytest.mark.parametrize("trials", [3, 6, 12])
@pytest.mark.parametrize("chances", [(0.02, 0.02), (0.3, 0.1), (0.5, 0.0), (0.9, 0.0)])
def test_few_scenes_are_enough_for_the_confidence(trials, chances):
    """In one stratum, by all outcomes and their probabilities."""
    first, second = chances
    covered = sum(
        multinomial.pmf(
            [plus, minus, trials - plus - minus], trials, [first, second, 1 - sum(chances)]
        )
        for plus in range(trials + 1)
        for minus in range(trials + 1 - plus)
        if paired_p_value([(plus, minus, trials)], first - second) >= 0.05
    )
    assert covered >= 0.95


@given(PAIRED, st.floats(-0.95, 0.95))
def test_p_value_and_interval_are_one_test(strata, difference):
    low, high = paired_interval(strata)
    if min(abs(low - difference), abs(high - difference)) > 1e-4:
        assert (paired_p_value(strata, difference) < 0.05) == (not low < difference < high)


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 60))
def test_in_one_stratum_it_is_mcnemars_test_with_correction(first, second, neither):
    """As an independent formula: (|first - second| - 1)^2 / (first + second), chi-squared."""
    pairs = first + second + neither
    p_value = paired_p_value([(first, second, pairs)])
    if abs(first - second) <= 1:
        assert p_value == 1.0
    else:
        statistic = (abs(first - second) - 1) ** 2 / (first + second)
        assert p_value == pytest.approx(chi2.sf(statistic, 1), rel=1e-6, abs=1e-12)


def test_three_scenes_of_six_are_not_enough():
    low, high = paired_interval([(3, 0, 6)])
    assert low < 0 < high
    assert paired_p_value([(3, 0, 6)]) == pytest.approx(0.248, abs=1e-3)


@given(st.integers(0, 29), st.integers(0, 30))
def test_more_success_means_no_lower_limits(count, other):
    fewer, more = ([(each, 30), (other, 30)] for each in (count, count + 1))
    assert np.all(np.array(stratified_interval(more)) >= stratified_interval(fewer))
