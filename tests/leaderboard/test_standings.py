"""Ranks and numbers: laws, and the same numbers counted by another route."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from submitted import SMALL, drawn, made_up, submission

from fleet_tools.envs.outcomes import POLICY_ERROR, SIMULATION_ERROR, SUCCESS, TIME_LIMIT
from fleet_tools.leaderboard.standings import ranks, standings
from fleet_tools.utils.statistics import crossed_interval, stratified_interval, wilson_interval

BOUND = st.integers(0, 20).map(lambda k: k / 20)
INTERVALS = st.lists(st.tuples(BOUND, BOUND).map(sorted).map(tuple), max_size=12)
OUTCOMES = st.sampled_from([SUCCESS, TIME_LIMIT, POLICY_ERROR, SIMULATION_ERROR])


@given(INTERVALS)
def test_a_rank_counts_those_that_are_surely_better(intervals):
    for (_, high), rank in zip(intervals, ranks(intervals), strict=True):
        assert rank == 1 + sum(low > high for low, _ in intervals)


@given(INTERVALS, st.randoms())
def test_the_order_of_methods_changes_no_rank(intervals, random):
    order = random.sample(range(len(intervals)), len(intervals))
    assert ranks([intervals[k] for k in order]) == [ranks(intervals)[k] for k in order]


@given(INTERVALS)
def test_who_overlaps_with_everybody_better_shares_their_rank(intervals):
    ranked = ranks(intervals)
    for (_, high), rank in zip(intervals, ranked, strict=True):
        overlaps_all = all(low <= high for low, _ in intervals)
        assert (rank == 1) == overlaps_all
    if intervals:
        assert min(ranked) == 1
    for (low, _), rank in zip(intervals, ranked, strict=True):
        for (_, other_high), other in zip(intervals, ranked, strict=True):
            assert not other_high < low or other > rank  # wholly below is behind


def test_disjoint_intervals_are_ranked_from_one():
    assert ranks([(0.1, 0.2), (0.7, 0.8), (0.4, 0.5)]) == [3, 1, 2]
    assert ranks([(0.1, 0.4), (0.3, 0.6), (0.5, 0.8)]) == [2, 1, 1]


@settings(max_examples=25)
@given(st.lists(OUTCOMES, min_size=10, max_size=10))
def test_numbers_are_those_that_counting_by_hand_gives(outcomes):
    left = iter(outcomes)
    evaluation = made_up(lambda trial: next(left))
    (row,) = standings([submission(evaluation)], SMALL)
    trials = SMALL.trials()
    rates = []
    for task in SMALL.tasks:
        for split in SMALL.splits:
            came = [
                outcome
                for trial, outcome in zip(trials, outcomes, strict=True)
                if (trial.task, trial.split) == (task, split) and outcome != SIMULATION_ERROR
            ]
            rate = came.count(SUCCESS) / len(came) if came else None
            assert row.strata[task][split].rate == rate
            low, high = wilson_interval(came.count(SUCCESS), len(came))
            assert (row.strata[task][split].low, row.strata[task][split].high) == (low, high)
            rates += [] if rate is None else [rate]
    if rates:
        assert row.total.rate == pytest.approx(np.mean(rates))
        assert row.total.low - 1e-6 <= row.total.rate <= row.total.high + 1e-6
    assert (row.rank, row.any_time) == (1, row.total.rate)


def test_results_of_single_tasks_are_one_training():
    whole = drawn(0.6, seed=5)
    parts = [
        made_up(
            lambda trial: next(e.outcome for e in whole.episodes if e.key == trial.key),
            tasks=[task],
        )
        for task in SMALL.tasks
    ]
    (one,) = standings([submission(whole)], SMALL)
    (two,) = standings([submission(part, f"part{k}") for k, part in enumerate(parts)], SMALL)
    assert (two.total, two.tasks, two.splits, two.strata) == (
        one.total, one.tasks, one.splits, one.strata,
    )  # fmt: skip


def test_without_every_tool_there_is_no_total_and_no_rank():
    part = submission(drawn(1.0, name="part", tasks=["knife"]))
    rows = standings([part, submission(drawn(0.0, name="all"))], SMALL)
    assert [(row.name, row.rank) for row in rows] == [("all", 1), ("part", None)]
    assert rows[1].total is None and rows[1].splits == {} and list(rows[1].tasks) == ["knife"]


def test_trainings_are_averaged_and_the_order_of_results_changes_nothing():
    trainings = [drawn(0.6, seed=k, training_seed=k) for k in range(3)]
    submissions = [submission(training) for training in trainings]
    (row,) = standings(submissions, SMALL)
    rates = [training.result.scores.total.end.rate for training in trainings]
    assert row.total.of_trainings == tuple(rates)
    assert row.total.rate == pytest.approx(np.mean(rates))
    assert standings(submissions[::-1], SMALL) == [row]


TABLES = st.integers(0, 2**32 - 1).map(
    lambda seed: [
        (np.random.default_rng([seed, k]).random((3, 12)) < 0.6).astype(float) for k in range(2)
    ]
)


@settings(max_examples=20)
@given(TABLES)
def test_several_trainings_have_an_interval_around_their_mean(tables):
    low, high = crossed_interval(tables)
    assert 0.0 <= low <= np.mean([table.mean() for table in tables]) <= high <= 1.0
    mirrored = crossed_interval([1.0 - table for table in tables])
    np.testing.assert_allclose(mirrored, (1.0 - high, 1.0 - low), atol=2e-6)


@pytest.mark.parametrize("successes", [(7, 12), (20, 3), (1, 24)])
def test_trainings_that_agree_say_no_more_than_one(successes):
    scenes = [np.arange(25) < count for count in successes]
    expected = stratified_interval([(count, 25) for count in successes])
    for trainings in (1, 4):
        tables = [np.repeat(row[None], trainings, axis=0).astype(float) for row in scenes]
        np.testing.assert_allclose(crossed_interval(tables), expected, atol=0.021)


def test_trainings_that_disagree_say_less_than_their_scenes_would():
    luck = [np.array([[1.0] * 40, [0.0] * 40, [1.0] * 40])]
    low, high = crossed_interval(luck)
    assert (low, high) == (0.0, 1.0)
    pooled = stratified_interval([(80, 120)])
    assert high - low > 3 * (pooled[1] - pooled[0])


def test_where_nothing_varies_the_interval_is_wilsons_of_the_scenes():
    ones = np.ones((3, 20))
    np.testing.assert_allclose(crossed_interval([ones]), (wilson_interval(20, 20)[0], 1.0))
    assert crossed_interval([]) == (0.0, 1.0)
    assert crossed_interval([np.full((2, 3), np.nan)]) == (0.0, 1.0)
    missing = np.where(np.arange(20) < 5, np.nan, ones)
    assert crossed_interval([missing])[1] == 1.0
