"""Rates and differences over training runs: their laws, and how often they are right."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_1samp

from fleet_tools.utils.crossed_statistics import (
    crossed_interval,
    crossed_paired_difference,
    crossed_paired_interval,
    crossed_paired_p_value,
)
from fleet_tools.utils.statistics import (
    is_equivalent,
    paired_interval,
    paired_p_value,
    stratified_interval,
    wilson_interval,
)

OUTCOME_TABLES = st.integers(0, 2**32 - 1).map(
    lambda seed: [
        (np.random.default_rng([seed, k]).random((3, 12)) < 0.6).astype(float) for k in range(2)
    ]
)


@given(OUTCOME_TABLES)
def test_the_interval_of_several_training_runs_contains_their_mean(tables):
    low, high = crossed_interval(tables)
    assert 0.0 <= low <= np.mean([table.mean() for table in tables]) <= high <= 1.0
    mirrored = crossed_interval([1.0 - table for table in tables])
    np.testing.assert_allclose(mirrored, (1.0 - high, 1.0 - low), atol=2e-6)


@pytest.mark.parametrize("successes", [(7, 12), (20, 3), (1, 24)])
def test_training_runs_that_agree_tell_no_more_than_one(successes):
    scenes = [np.arange(25) < count for count in successes]
    expected = stratified_interval([(count, 25) for count in successes])
    for runs in (1, 4):
        tables = [np.repeat(row[None], runs, axis=0).astype(float) for row in scenes]
        np.testing.assert_allclose(crossed_interval(tables), expected, atol=0.021)


def test_training_runs_that_disagree_tell_less_than_their_scenes_alone():
    low, high = crossed_interval([np.array([[1.0] * 40, [0.0] * 40, [1.0] * 40])])
    pooled = stratified_interval([(80, 120)])
    assert high - low > 3 * (pooled[1] - pooled[0])
    # The same rate in each run by chance, in scenes that have nothing to do with each other.
    scattered = np.array([[1.0] * 5 + [0.0] * 5, [0.0] * 5 + [1.0] * 5, [1.0, 0.0] * 5])
    low, high = crossed_interval([scattered])
    independent = stratified_interval([(15, 30)])
    assert low < independent[0] and independent[1] < high


@pytest.mark.parametrize("runs", [2, 3])
def test_few_training_runs_that_differ_little_are_not_believed_too_much(runs):
    generator = np.random.default_rng(4)
    draws, covered = 300, 0
    for _ in range(draws):
        run = 0.3 * generator.standard_normal((runs, 1, 1))
        scene = generator.standard_normal((1, 4, 30))
        latent = run + scene + generator.standard_normal((runs, 4, 30))
        low, high = crossed_interval([(latent[:, k] > 0).astype(float) for k in range(4)])
        covered += low <= 0.5 <= high
    assert covered / draws > 0.945


def test_without_variation_the_interval_is_wilsons_of_the_scenes():
    ones = np.ones((3, 20))
    np.testing.assert_allclose(crossed_interval([ones]), (wilson_interval(20, 20)[0], 1.0))
    assert crossed_interval([]) == (0.0, 1.0)
    assert crossed_interval([np.full((2, 3), np.nan)]) == (0.0, 1.0)
    missing = np.where(np.arange(20) < 5, np.nan, ones)
    assert crossed_interval([missing])[1] == 1.0
    low, high = crossed_interval([np.eye(2)])  # the effects of runs and of scenes are none
    assert low < 0.3 and high > 0.7


DESIGNS = pytest.mark.parametrize("own_scenes", [False, True])


RUNS = st.integers(1, 5)


@st.composite
def differences(draw, runs: st.SearchStrategy[int] = RUNS) -> list[np.ndarray]:
    """Tables of differences of outcomes, of which some are of no trial."""
    count, generator = draw(runs), np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    first, second, missing = draw(st.tuples(*[st.floats(0, 1)] * 2, st.sampled_from([0, 0.1])))
    tables = []
    for _ in range(draw(st.integers(1, 4))):
        shape = count, generator.integers(2, 15)
        table = 1.0 * (generator.random(shape) < first) - (generator.random(shape) < second)
        table[generator.random(shape) < missing] = np.nan
        tables.append(table)
    return tables


@DESIGNS
@given(tables=differences(), difference=st.floats(-0.95, 0.95))
def test_interval_and_p_value_are_one_test_and_mirrored(own_scenes, tables, difference):
    low, high = crossed_paired_interval(tables, own_scenes)
    observed = crossed_paired_difference(tables)
    if observed is None:
        assert (low, high) == (-1.0, 1.0)
        return
    assert -1.0 <= low <= observed + 1e-6 and observed - 1e-6 <= high <= 1.0
    p_value = crossed_paired_p_value(tables, difference, own_scenes)
    if min(abs(low - difference), abs(high - difference)) > 1e-4:
        assert (p_value < 0.05) == (not low < difference < high)
    exchanged = [-table for table in tables]
    np.testing.assert_allclose(crossed_paired_interval(exchanged, own_scenes), (-high, -low))
    assert crossed_paired_p_value(exchanged, -difference, own_scenes) == pytest.approx(p_value)


@DESIGNS
@given(tables=differences(runs=st.just(1)), difference=st.floats(-0.95, 0.95))
def test_one_training_run_has_the_paired_interval(own_scenes, tables, difference):
    counts = [(int((t == 1).sum()), int((t == -1).sum()), int(np.isfinite(t).sum()))
              for t in tables]  # fmt: skip
    assert crossed_paired_interval(tables, own_scenes) == paired_interval(counts)
    expected = paired_p_value(counts, difference)
    assert crossed_paired_p_value(tables, difference, own_scenes) == pytest.approx(expected)


@DESIGNS
@given(tables=differences(), shuffle=st.randoms(use_true_random=False))
def test_the_order_of_runs_scenes_and_strata_changes_nothing(own_scenes, tables, shuffle):
    def order(number: int) -> list[int]:
        return shuffle.sample(range(number), number)

    runs = order(len(tables[0]))
    shuffled = []
    for table in shuffle.sample(tables, len(tables)):
        rows = table[runs]
        if own_scenes:  # a column is no scene
            shuffled.append(np.array([row[order(row.size)] for row in rows]))
        else:
            shuffled.append(rows[:, order(rows.shape[1])])
    for statistic in (crossed_paired_interval, crossed_paired_p_value):
        expected = statistic(tables, own_scenes=own_scenes)
        found = statistic(shuffled, own_scenes=own_scenes)
        np.testing.assert_allclose(found, expected, atol=1e-6, rtol=1e-5)
    rates = [(table + 1) / 2 for table in tables]
    found = crossed_interval([(table + 1) / 2 for table in shuffled], own_scenes)
    np.testing.assert_allclose(found, crossed_interval(rates, own_scenes), atol=2e-6)


@given(differences(runs=st.just(1)), st.integers(2, 5))
def test_differences_that_are_the_same_in_all_runs_tell_no_more_than_one(tables, runs):
    low, high = crossed_paired_interval(tables)
    repeated = [np.repeat(table, runs, axis=0) for table in tables]
    assert crossed_paired_p_value(repeated) >= crossed_paired_p_value(tables) - 1e-6
    again = crossed_paired_interval(repeated)
    assert again[0] <= low + 1e-5 and high - 1e-5 <= again[1]


def test_runs_with_own_scenes_are_students_where_training_decides():
    """In thousands of scenes chance is that of training alone."""
    generator = np.random.default_rng(2)
    effects = [0.25, 0.05, 0.2, 0.15]
    places = np.arange(1, 2001) / 2000
    tables = [
        np.stack(
            [np.where(generator.permutation(places) <= (1 + e) / 2, 1.0, -1.0) for e in effects]
        )
        for _ in range(2)
    ]
    expected: Any = ttest_1samp(effects, 0.0)
    limits = expected.confidence_interval(0.95)
    found = crossed_paired_interval(tables, own_scenes=True)
    np.testing.assert_allclose(found, (limits.low, limits.high), atol=0.012)
    p_value = crossed_paired_p_value(tables, own_scenes=True)
    assert p_value == pytest.approx(expected.pvalue, rel=0.4)


@given(differences())
def test_scenes_of_their_own_never_tell_more_than_independent_ones(tables):
    low, high = crossed_paired_interval(tables, own_scenes=True)
    apart = paired_interval([
        (int((t == 1).sum()), int((t == -1).sum()), int(np.isfinite(t).sum())) for t in tables
    ])  # fmt: skip
    assert low <= apart[0] + 1e-5 and apart[1] - 1e-5 <= high


def test_three_runs_that_disagree_tell_no_winner():
    """One lucky training run of three is none, however many the scenes."""
    table = np.zeros((3, 200))
    table[0] = 1.0
    for own_scenes in (False, True):
        assert crossed_paired_p_value([table], own_scenes=own_scenes) > 0.3


@DESIGNS
def test_several_policies_of_a_run_count_by_their_mean(own_scenes):
    generator = np.random.default_rng(1)
    policies = generator.integers(-1, 2, (2, 3, 20)).astype(float)
    interval = crossed_paired_interval([policies.mean(axis=0)], own_scenes)
    same = crossed_paired_interval([np.repeat(policies, 2, axis=0).mean(axis=0)], own_scenes)
    np.testing.assert_allclose(interval, same, atol=1e-6)
    assert interval[0] < policies.mean() < interval[1]


def test_runs_without_trials_count_for_nothing_and_strata_have_the_same_runs():
    table = np.random.default_rng(3).integers(-1, 2, (3, 12)).astype(float)
    more = np.concatenate([table, np.full((1, 12), np.nan)])
    for own_scenes in (False, True):
        expected = crossed_paired_interval([table], own_scenes)
        assert crossed_paired_interval([more], own_scenes) == expected
        with pytest.raises(ValueError, match="3, 4 training runs"):
            crossed_paired_interval([table, more], own_scenes)
    assert crossed_paired_interval([]) == (-1.0, 1.0) and crossed_paired_p_value([]) == 1.0
    assert crossed_paired_difference([]) is None


def drawn_differences(
    generator: np.random.Generator, of_runs: float, own_scenes: bool, shift: float = 0.0
) -> Sequence[np.ndarray]:
    """Returns differences of two methods, 3 runs in 10 scenes of each of 4 tasks, by a probit."""
    shape = (4, 3, 10)
    scenes = generator.standard_normal(shape if own_scenes else (4, 1, 10))

    def outcomes(mean: float) -> np.ndarray:
        runs = of_runs * generator.standard_normal((1, 3, 1))
        return 1.0 * (mean + runs + scenes + generator.standard_normal(shape) > 0)

    return list(outcomes(shift) - outcomes(0.0))


def share(draw: Callable[[np.random.Generator], bool], draws: int = 300) -> float:
    generator = np.random.default_rng(7)
    return sum(draw(generator) for _ in range(draws)) / draws


@DESIGNS
@pytest.mark.parametrize("of_runs", [0.0, 0.3, 1.0])
def test_equal_methods_seldom_differ_significantly(own_scenes, of_runs):
    def is_alarm(generator: np.random.Generator) -> bool:
        tables = drawn_differences(generator, of_runs, own_scenes)
        return crossed_paired_p_value(tables, own_scenes=own_scenes) < 0.05

    assert share(is_alarm) <= 0.06


@DESIGNS
def test_large_differences_are_told(own_scenes):
    def is_told(generator: np.random.Generator) -> bool:
        tables = drawn_differences(generator, 0.2, own_scenes, shift=2.0)
        return crossed_paired_p_value(tables, own_scenes=own_scenes) < 0.05

    assert share(is_told, 100) > 0.75


def test_equivalent_is_what_no_difference_of_the_margin_explains():
    assert is_equivalent((-0.04, 0.09), 0.1) and not is_equivalent((-0.04, 0.1), 0.1)
    assert not is_equivalent((-0.2, 0.0), 0.1)
    agreeing = [np.zeros((3, 30))] * 4
    for own_scenes in (False, True):
        assert is_equivalent(crossed_paired_interval(agreeing, own_scenes), 0.1)
        assert not is_equivalent(crossed_paired_interval([np.zeros((3, 5))], own_scenes), 0.1)
