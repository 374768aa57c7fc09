"""Scores and comparisons, from made-up episodes."""

import pytest
from evaluated import OUTCOMES, SMALL, TRIALS, a_result, an_episode, an_evaluation
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet_tools.envs.outcomes import (
    POLICY_ERROR,
    SIMULATION_ERROR,
    SUCCESS,
    TIME_LIMIT,
    WORKER_ERROR,
)
from fleet_tools.errors import ResultError
from fleet_tools.evaluation.comparison import compare
from fleet_tools.evaluation.result import Evaluation
from fleet_tools.evaluation.scores import score
from fleet_tools.evaluation.summary import as_text
from fleet_tools.utils.statistics import wilson_interval

few = settings(max_examples=20)  # an interval takes 10000 draws
MANY = st.lists(OUTCOMES, min_size=1, max_size=len(TRIALS))


@few
@given(MANY, st.randoms())
def test_the_order_of_episodes_changes_nothing_and_everything_is_counted_once(outcomes, shuffle):
    episodes = an_evaluation(outcomes).episodes
    scores = score(SMALL, episodes)
    again = episodes.copy()
    shuffle.shuffle(again)
    assert score(SMALL, again) == scores
    assert scores.total.end.successes == outcomes.count(SUCCESS)
    assert scores.total.end.trials == len(outcomes) - outcomes.count(SIMULATION_ERROR)
    assert scores.total.policy_errors == outcomes.count(POLICY_ERROR)
    for parts in (scores.tasks, scores.splits):
        for count in (
            lambda s: s.end.trials,
            lambda s: s.any_time.successes,
            lambda s: s.simulation_errors,
            lambda s: s.worker_errors,
        ):
            assert sum(map(count, parts.values())) == count(scores.total)


def test_errors_of_the_policy_count_and_those_of_the_simulator_do_not():
    outcomes = [SUCCESS, POLICY_ERROR, WORKER_ERROR, SIMULATION_ERROR]
    of_train = score(SMALL, an_evaluation(outcomes).episodes).strata["hammer"]["train"]
    assert (of_train.end.successes, of_train.end.trials) == (1, 3)
    assert (of_train.end.low, of_train.end.high) == wilson_interval(1, 3)
    assert (of_train.policy_errors, of_train.worker_errors, of_train.simulation_errors) == (1, 1, 1)


def test_success_at_any_time_is_another_number_than_success_at_the_end():
    episodes = [an_episode(t, TIME_LIMIT, once=t.index == 0) for t in TRIALS[:4]]
    scores = score(SMALL, episodes)
    assert scores.total.end.successes == 0
    assert scores.total.any_time.successes == 1


def test_the_total_weighs_each_task_and_split_the_same():
    outcomes = [SUCCESS] * 4 + [TIME_LIMIT] * 3  # of 4 in train and 3 in unseen_tools
    assert score(SMALL, an_evaluation(outcomes).episodes).total.end.rate == 0.5


def test_without_episodes_nothing_is_claimed():
    scores = score(SMALL, [])
    assert scores.total.end.rate is None
    assert (scores.total.end.low, scores.total.end.high) == (0.0, 1.0)
    assert (scores.tasks, scores.strata) == ({}, {})


@few
@given(MANY, MANY)
def test_exchanging_two_results_changes_the_signs_and_nothing_else(outcomes, others):
    one, other = an_evaluation(outcomes, "one"), an_evaluation(others, "other")
    forward, backward = compare(one, other), compare(other, one)
    assert forward.left_out == backward.left_out
    assert forward.tasks.keys() == backward.tasks.keys()
    for f, b in [(forward.total, backward.total)] + [
        (forward.tasks[task], backward.tasks[task]) for task in forward.tasks
    ]:
        assert (f.only_first, f.only_second) == (b.only_second, b.only_first)
        assert (f.low, f.high, f.p_value) == (-b.high, -b.low, b.p_value)
        assert f.difference == (None if b.difference is None else -b.difference)
    compared = forward.total
    scenes = compared.both + compared.only_first + compared.only_second + compared.neither
    assert scenes + forward.left_out == max(len(outcomes), len(others))


def test_a_result_does_not_differ_from_itself():
    one = an_evaluation([SUCCESS, TIME_LIMIT] * 5)
    same = compare(one, one).total
    assert (same.difference, same.p_value, same.only_first) == (0.0, 1.0, 0)
    assert same.low < 0 < same.high


def test_only_the_same_scenes_of_the_same_protocol_are_compared():
    one = an_evaluation([SUCCESS] * 3)
    with pytest.raises(ResultError, match="in another scene"):
        compare(one, an_evaluation([SUCCESS] * 3, scene="11"))
    other = Evaluation(a_result(SMALL.model_copy(update={"version": 2})), one.episodes)
    with pytest.raises(ResultError, match="Only results of the same protocol"):
        compare(one, other)


def test_the_table_says_how_many_and_how_sure():
    one = an_evaluation([SUCCESS, POLICY_ERROR, SUCCESS, SUCCESS], "learner")
    result = one.result.model_copy(update={"scores": score(SMALL, one.episodes)})
    other = an_evaluation([TIME_LIMIT] * 4, "zero")
    text = as_text(result, compare(one, other))
    assert "3/4 75.0%" in text
    assert "1 policy" in text
    assert "only learner" in text
    assert "+75.0%" in text
