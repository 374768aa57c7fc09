"""Ranks and success rates: their laws, and the same numbers computed in another way."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.submitted import SMALL, evaluation_with, overall, random_evaluation, submission

from fleet_tools.envs.outcomes import (
    OBJECT_LOST,
    POLICY_ERROR,
    SIMULATION_ERROR,
    SUCCESS,
    TIME_LIMIT,
)
from fleet_tools.leaderboard.board import make_rankings
from fleet_tools.leaderboard.standings import make_standings, rank_methods, ranks
from fleet_tools.leaderboard.submissions import Submission
from fleet_tools.utils.statistics import wilson_interval

Interval = tuple[float, float]

LIMIT = st.integers(0, 20).map(lambda k: k / 20)
INTERVALS = st.lists(
    st.tuples(LIMIT, LIMIT).map(lambda limits: (min(limits), max(limits))), max_size=12
)
OUTCOMES = st.sampled_from([SUCCESS, TIME_LIMIT, OBJECT_LOST, POLICY_ERROR, SIMULATION_ERROR])


@given(INTERVALS)
def test_a_rank_counts_the_intervals_wholly_above(intervals):
    for (_, high), rank in zip(intervals, ranks(intervals), strict=True):
        assert rank == 1 + sum(low > high for low, _ in intervals)


@settings(max_examples=25)
@given(st.lists(OUTCOMES, min_size=10, max_size=10))
def test_success_rates_agree_with_counts_by_hand(outcomes):
    trials = SMALL.trials()
    outcome_by_key = {trial.key: o for trial, o in zip(trials, outcomes, strict=True)}
    evaluation = evaluation_with(lambda trial: outcome_by_key[trial.key])
    (standing,) = rank_methods(make_standings([submission(evaluation)], SMALL))
    rates = []
    for task in SMALL.tasks:
        for split in SMALL.splits:
            counted = [
                outcome
                for trial, outcome in zip(trials, outcomes, strict=True)
                if (trial.task, trial.split) == (task, split) and outcome != SIMULATION_ERROR
            ]
            successes = counted.count(SUCCESS)
            rate = successes / len(counted) if counted else None
            stratum = standing.strata[task][split]
            assert stratum.rate == rate
            assert (stratum.low, stratum.high) == wilson_interval(successes, len(counted))
            rates += [] if rate is None else [rate]
    numbers = overall(standing)
    assert (numbers.rank, numbers.success_once) == (1, numbers.total.rate)
    if rates:
        assert numbers.total.rate is not None
        assert numbers.total.rate == pytest.approx(np.mean(rates))
        assert numbers.total.low - 1e-6 <= numbers.total.rate <= numbers.total.high + 1e-6


def test_results_of_single_tasks_are_one_training_run():
    complete = random_evaluation(0.6, seed=5)
    outcomes = {episode.key: episode.outcome for episode in complete.episodes}
    parts = [
        evaluation_with(lambda trial: outcomes[trial.key], tasks=[task]) for task in SMALL.tasks
    ]
    (one,) = rank_methods(make_standings([submission(complete)], SMALL))
    (two,) = rank_methods(
        make_standings([submission(part, f"part{k}") for k, part in enumerate(parts)], SMALL)
    )
    assert len(two.training_runs) == 1
    assert (two.overall, two.tasks, two.strata) == (one.overall, one.tasks, one.strata)


def test_a_method_without_every_tool_has_no_total_and_no_rank():
    part = submission(random_evaluation(1.0, name="part", tasks=["knife"]))
    every = submission(random_evaluation(0.0, name="all"))
    first, last = rank_methods(make_standings([part, every], SMALL))
    assert (first.name, overall(first).rank) == ("all", 1)
    assert (last.name, last.overall, list(last.tasks)) == ("part", None, ["knife"])


def test_training_runs_are_averaged_and_the_order_of_results_does_not_matter():
    evaluations = [random_evaluation(0.6, seed=k, training_seed=k) for k in range(3)]
    submissions = [submission(evaluation) for evaluation in evaluations]
    (standing,) = rank_methods(make_standings(submissions, SMALL))
    scores = [evaluation.result.scores for evaluation in evaluations]
    rates = [each.total.success.rate for each in scores if each]
    total = overall(standing).total
    assert total.of_training_runs == tuple(rates)
    assert total.rate == pytest.approx(np.mean([rate for rate in rates if rate is not None]))
    assert rank_methods(make_standings(submissions[::-1], SMALL)) == [standing]


NOISY: dict[str, Any] = {
    "obs_mode": "point_cloud",
    "cloud_source": "rays",
    "sensors": "active_stereo",
}


def test_results_with_other_cameras_are_ranked_apart():
    def of(name: str, rate: float, **env_kwargs: str) -> Submission:
        kwargs: dict[str, Any] = {"obs_mode": "point_cloud", "cloud_source": "rays", **env_kwargs}
        return submission(
            random_evaluation(rate, name=name, **kwargs), f"{name}/{env_kwargs.get('sensors')}"
        )

    ideal = [of("good", 0.95), of("poor", 0.05)]
    noisy = [of("good", 0.0, sensors="active_stereo"), of("poor", 1.0, sensors="active_stereo")]
    other = of("good", 0.5, sensors="structured_light")
    rankings = make_rankings([*ideal, *noisy, other], [SMALL])
    assert [(each.kind, each.sensors) for each in rankings] == [
        ("clouds", sensors) for sensors in ("ideal", "active_stereo", "structured_light")
    ]
    first, second, third = (
        {each.name: (overall(each).rank, overall(each).total.rate) for each in ranking.standings}
        for ranking in rankings
    )
    assert first["good"][0] == 1 and first["poor"][0] == 2
    assert second == {"poor": (1, 1.0), "good": (2, 0.0)}
    assert list(third) == ["good"]
    # Nothing changes for the ideal ones.
    (alone,) = make_rankings(ideal, [SMALL])
    assert alone == rankings[0]


def test_a_result_that_is_not_verified_takes_no_rank_from_one_with_other_cameras():
    ideal = submission(random_evaluation(0.9, name="it"))
    noisy = submission(random_evaluation(0.9, name="it", **NOISY), "it/noisy", same_outcome=None)
    rankings = make_rankings([ideal, noisy], [SMALL])
    assert [(each.kind, each.sensors) for each in rankings] == [
        ("keypoints", "ideal"),
        ("unverified", "active_stereo"),
    ]
