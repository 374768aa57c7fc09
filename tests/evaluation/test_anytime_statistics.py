"""Comparisons that may stop: their laws, and the same numbers by enumeration and by quadrature."""

from functools import cache
from itertools import product
from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import beta, betabinom

from fleet_tools.evaluation.anytime_statistics import (
    LOG_THRESHOLD,
    PRIOR,
    anytime_interval,
    anytime_verdict,
    log_e_value,
    scenes_for_verdict,
)
from fleet_tools.utils.statistics import NOT_TOLD_APART, PairedCounts, is_equivalent

COUNTS = st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(0, 120)).map(
    lambda counts: (counts[0], counts[1], sum(counts))
)
MEANS = st.floats(-0.95, 0.95)
CHANCES = [(0.5, 0.5), (0.05, 0.05), (0.3, 0.1), (0.0, 0.2), (0.85, 0.05)]
"""Chances that only the first succeeds in a scene, and only the second."""


def counts_of(differences) -> PairedCounts:
    return differences.count(1), differences.count(-1), len(differences)


@pytest.mark.parametrize(("first", "second"), CHANCES)
def test_under_the_hypothesis_no_bet_gains_in_expectation(first, second):
    """Exactly, by all sequences: after each, the expected next e-value is the present one."""
    mean, chance = first - second, {1: first, -1: second, 0: 1 - first - second}
    for scenes in range(5):
        for before in product((1, -1, 0), repeat=scenes):
            now = exp(log_e_value(counts_of(before), mean))
            after = (
                probability * exp(log_e_value(counts_of((*before, difference)), mean))
                for difference, probability in chance.items()
                if probability
            )
            assert sum(after) == pytest.approx(now, rel=1e-9)


def test_blocks_of_unequal_strata_gain_nothing_in_expectation():
    """Opposite differences in two strata, whose mean is 0: after whole blocks, by enumeration."""
    strata = [{1: 0.6, -1: 0.1, 0: 0.3}, {1: 0.05, -1: 0.55, 0: 0.4}]
    assert sum(each[1] - each[-1] for each in strata) == pytest.approx(0)
    expected = 1.0
    for blocks in range(1, 4):
        former, expected = expected, 0.0
        for differences in product((1, -1, 0), repeat=2 * blocks):
            chances = (strata[k % 2][each] for k, each in enumerate(differences))
            expected += np.prod([*chances]) * exp(log_e_value(counts_of(differences)))
        assert expected <= former + 1e-9


@pytest.mark.parametrize("ahead", [0.0, 0.2])
def test_false_alarms_are_below_5_percent_however_often_one_looks(ahead):
    """Exactly, by all counts and their probabilities: a look after each of 45 scenes."""
    first, second = 0.3 + ahead / 2, 0.3 - ahead / 2
    alive, crossed = {(0, 0): 1.0}, 0.0
    for scenes in range(1, 46):
        then: dict[tuple[int, int], float] = {}
        for (a, b), probability in alive.items():
            for more, chance in (((1, 0), first), ((0, 1), second), ((0, 0), 1 - first - second)):
                key = a + more[0], b + more[1]
                then[key] = then.get(key, 0.0) + probability * chance
        alive = {}
        for (a, b), probability in then.items():
            if probability < 1e-9 or log_e_value((a, b, scenes), ahead) >= LOG_THRESHOLD:
                crossed += probability
            else:
                alive[a, b] = probability
    assert 0.002 < crossed < 0.05


@pytest.mark.parametrize("wins", [9, 30, 120, 240])
def test_in_a_list_of_scenes_with_as_many_wins_as_losses_a_random_order_seldom_errs(wins):
    """Exactly, by counting the orders: the list is finite, and each scene is drawn once."""

    @cache
    def decided(first: int, second: int) -> bool:
        return log_e_value((first, second, first + second)) >= LOG_THRESHOLD

    alive, crossed = {0: 1.0}, 0.0  # by the number of wins so far
    for scenes in range(1, 2 * wins + 1):
        then: dict[int, float] = {}
        for a, probability in alive.items():
            win = (wins - a) / (2 * wins - scenes + 1)
            for more, chance in ((1, win), (0, 1 - win)):
                if chance > 0:
                    then[a + more] = then.get(a + more, 0.0) + probability * chance
        crossed += sum(each for a, each in then.items() if decided(a, scenes - a))
        alive = {a: each for a, each in then.items() if not decided(a, scenes - a)}
    assert crossed < 0.05


@given(COUNTS, MEANS)
def test_it_is_the_wealth_of_bets_spread_over_all_shares(counts, mean):
    """By quadrature, as the docstring of the module defines it."""
    first, second, pairs = counts
    least, most = -1 / (1 - mean), 1 / (1 + mean)
    expected = log_e_value(counts, mean)

    def wealth(p: float) -> float:
        share = least + p * (most - least)
        gains = [(first, 1 - mean), (second, -1 - mean), (pairs - first - second, -mean)]
        logs = [count * log(max(1 + share * gain, 1e-300)) for count, gain in gains if count]
        return exp(sum(logs) - expected) * float(beta.pdf(p, PRIOR, PRIOR))

    found, _ = quad(wealth, 0, 1, limit=400, points=[0.1, 0.3, 0.5, 0.7, 0.9])
    assert found == pytest.approx(1, rel=1e-4)


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 60))
def test_against_no_difference_it_is_the_e_value_of_a_fair_coin(first, second, equal):
    """Only scenes in which one alone succeeds count: the likelihood ratio to a beta-binomial."""
    tosses = first + second
    coin = betabinom.logpmf(first, tosses, PRIOR, PRIOR)
    fair = betabinom.logpmf(first, tosses, 1e9, 1e9)
    expected = float(coin - fair)
    assert log_e_value((first, second, tosses + equal)) == pytest.approx(expected, abs=1e-4)


@given(COUNTS, MEANS)
def test_exchanging_the_two_mirrors_all(counts, mean):
    exchanged = counts[1], counts[0], counts[2]
    assert log_e_value(exchanged, -mean) == pytest.approx(log_e_value(counts, mean), abs=1e-9)
    low, high = anytime_interval(counts)
    assert anytime_interval(exchanged) == (-high, -low)
    words = anytime_verdict(counts, 0.1).replace("higher", "LOWER").replace("lower", "higher")
    assert anytime_verdict(exchanged, 0.1) == words.lower()


@given(COUNTS, st.sampled_from([0.02, 0.1, 0.3]))
def test_the_interval_inverts_the_test_and_has_the_verdict(counts, margin):
    first, second, pairs = counts
    low, high = anytime_interval(counts)
    observed = (first - second) / pairs if pairs else 0.0
    assert -1 <= low <= observed <= high <= 1
    for mean in np.linspace(-0.99, 0.99, 23):
        if min(abs(low - mean), abs(high - mean)) > 1e-4:
            assert (log_e_value(counts, mean) < LOG_THRESHOLD) == (low < mean < high)
    verdict = anytime_verdict(counts, margin)
    assert ("higher" in verdict, "lower" in verdict) == (low > 0, high < 0)
    assert ("equivalent" in verdict) == is_equivalent((low, high), margin)


@given(COUNTS, MEANS, MEANS)
def test_the_e_value_is_log_convex_and_at_most_1_at_the_observed_mean(counts, one, other):
    first, second, pairs = counts
    middle = log_e_value(counts, (one + other) / 2)
    assert middle <= (log_e_value(counts, one) + log_e_value(counts, other)) / 2 + 1e-9
    if abs(first - second) < pairs:
        assert log_e_value(counts, (first - second) / pairs) <= 1e-9


def test_before_the_first_scene_nothing_is_known():
    assert log_e_value((0, 0, 0), 0.3) == pytest.approx(0)
    assert anytime_interval((0, 0, 0)) == (-1.0, 1.0)
    assert anytime_verdict((0, 0, 0), 0.1) == NOT_TOLD_APART
    assert scenes_for_verdict((0, 0, 0), 0.1) is None


@given(COUNTS.filter(lambda counts: counts[2] > 0), st.sampled_from([None, 0.1]))
def test_the_estimate_has_a_verdict_if_scenes_to_come_are_like_those_so_far(counts, margin):
    first, second, pairs = counts
    scenes = scenes_for_verdict(counts, margin)
    decided = anytime_verdict(counts, margin) != NOT_TOLD_APART
    assert (scenes == pairs) == decided
    if scenes is not None and not decided:
        assert scenes > pairs
        plus = round(first * scenes / pairs)
        scaled = plus, min(round(second * scenes / pairs), scenes - plus), scenes
        assert anytime_verdict(scaled, margin) != NOT_TOLD_APART


def test_nine_wins_of_nine_are_a_verdict_and_eight_are_none():
    assert anytime_verdict((9, 0, 9), None) == "higher"
    assert anytime_verdict((0, 9, 50), None) == "lower"
    assert anytime_verdict((8, 0, 8), None) == NOT_TOLD_APART
    assert anytime_verdict((5, 5, 300), 0.1) == "equivalent within 10 points"
    assert scenes_for_verdict((4, 0, 16), None, multiple=16) == 48
    assert scenes_for_verdict((1, 1, 2), None) is None  # halves are rounded up on both sides
