"""Scores and comparisons, from invented episodes."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.evaluated import OUTCOMES, SMALL, TRIALS, a_result, an_episode, an_evaluation
from support.shares import few

from fleet_tools.envs.outcomes import (
    POLICY_ERROR,
    SIMULATION_ERROR,
    SUCCESS,
    TIME_LIMIT,
    WORKER_ERROR,
)
from fleet_tools.errors import ResultError
from fleet_tools.evaluation.level_cost import level_cost
from fleet_tools.evaluation.result import Evaluation, Score
from fleet_tools.evaluation.score_tables import as_text
from fleet_tools.evaluation.scores import compare, score
from fleet_tools.utils.statistics import paired_interval, wilson_interval

FEW = few(10)  # an interval takes 10000 draws
MANY = st.lists(OUTCOMES, min_size=1, max_size=len(TRIALS))


@FEW
@given(MANY, st.randoms())
def test_each_episode_counts_once_whatever_the_order(outcomes, generator):
    episodes = an_evaluation(outcomes).episodes
    scores = score(SMALL, episodes)
    shuffled = episodes.copy()
    generator.shuffle(shuffled)
    assert score(SMALL, shuffled) == scores
    assert scores.total.success.successes == outcomes.count(SUCCESS)
    assert scores.total.success.trials == len(outcomes) - outcomes.count(SIMULATION_ERROR)
    assert scores.total.policy_errors == outcomes.count(POLICY_ERROR)
    counts: list[Callable[[Score], int]] = [
        lambda s: s.success.trials,
        lambda s: s.success_once.successes,
        lambda s: s.simulation_errors,
        lambda s: s.worker_errors,
    ]
    for groups in (scores.tasks, scores.splits):
        for count in counts:
            assert sum(map(count, groups.values())) == count(scores.total)


def test_errors_of_the_policy_are_failures_and_a_simulator_that_did_not_begin_is_no_trial():
    outcomes = [SUCCESS, POLICY_ERROR, WORKER_ERROR, SIMULATION_ERROR]
    of_train = score(SMALL, an_evaluation(outcomes).episodes).strata["hammer"]["train"]
    assert (of_train.success.successes, of_train.success.trials) == (1, 3)
    assert (of_train.success.low, of_train.success.high) == wilson_interval(1, 3)
    assert (of_train.policy_errors, of_train.worker_errors, of_train.simulation_errors) == (1, 1, 1)


def test_a_policy_that_makes_the_simulator_fail_has_failed():
    episodes = [an_episode(TRIALS[0]), an_episode(TRIALS[1], SIMULATION_ERROR, steps=1)]
    total = score(SMALL, episodes).total
    assert (total.success.successes, total.success.trials, total.simulation_errors) == (1, 2, 1)


def test_success_once_counts_apart_and_each_task_and_split_has_the_same_weight():
    episodes = [an_episode(t, TIME_LIMIT, success_once=t.index == 0) for t in TRIALS[:4]]
    total = score(SMALL, episodes).total
    assert (total.success.successes, total.success_once.successes) == (0, 1)
    outcomes = [SUCCESS] * 4 + [TIME_LIMIT] * 3  # of 4 in train and 3 in unseen_tools
    assert score(SMALL, an_evaluation(outcomes).episodes).total.success.rate == 0.5


def test_without_episodes_there_is_no_rate():
    scores = score(SMALL, [])
    found = scores.total.success
    assert (found.rate, found.low, found.high) == (None, 0.0, 1.0)
    assert (scores.tasks, scores.strata) == ({}, {})


@FEW
@given(MANY, MANY)
def test_exchanging_two_results_changes_the_signs_only(outcomes, others):
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
    with pytest.raises(ResultError, match="began in different scenes"):
        compare(one, an_evaluation([SUCCESS] * 3, scene_digest="11"))
    other = Evaluation(a_result(SMALL.model_copy(update={"version": 2})), one.episodes)
    with pytest.raises(ResultError, match="Only results of the same protocol"):
        compare(one, other)


def test_the_table_has_counts_rates_and_differences():
    one = an_evaluation([SUCCESS, POLICY_ERROR, SUCCESS, SUCCESS], "learner")
    result = one.result.model_copy(update={"scores": score(SMALL, one.episodes)})
    other = an_evaluation([TIME_LIMIT] * 4, "zero")
    text = as_text(result, compare(one, other))
    assert all(part in text for part in ("3/4 75.0%", "1 policy", "only learner", "+75.0%"))
    first, second = text.split("\n\n")
    for table in (first, second):
        rows = [line.split() for line in table.splitlines()[1:]]
        assert rows[-1][0] == "total"
        assert all(row[0] in ("task", "hammer", "knife", "all", "total") for row in rows)


# --- What a level costs ---------------------------------------------------------------------

PUSHED = SMALL.model_copy(
    update={
        "level": "pushed",
        "depth_error_scale": 2.0,
        "splits": {k: each.model_copy(update={"scenes": 2}) for k, each in SMALL.splits.items()},
    }
)


def at_level(outcomes: Mapping[tuple[str, str, int], str], **changes: Any) -> Evaluation:
    """Returns an evaluation at a level, with the outcomes of nominal scenes of the same keys."""
    episodes = [
        an_episode(trial, outcomes[trial.key], scene_digest="other")
        for trial in PUSHED.trials()
        if trial.key in outcomes
    ]
    return Evaluation(a_result(PUSHED, **changes), episodes)


@FEW
@given(st.lists(OUTCOMES, min_size=len(TRIALS), max_size=len(TRIALS)), st.data())
def test_a_level_costs_what_is_lost_in_scenes_of_the_same_keys(outcomes, data):
    nominal = an_evaluation(outcomes)
    plain = {episode.key: episode.outcome for episode in nominal.episodes}
    harder = {trial.key: data.draw(OUTCOMES) for trial in PUSHED.trials()}
    cost = level_cost(nominal, at_level(harder))
    both = [k for k in harder if SIMULATION_ERROR not in (plain[k], harder[k])]
    assert cost.total.pairs == len(both) == sum(each.pairs for each in cost.tasks.values())
    assert len(both) == sum(each.pairs for each in cost.splits.values())
    for task, found in cost.tasks.items():
        strata = []
        for split in PUSHED.splits:
            keys = [k for k in both if k[:2] == (task, split)]
            lost = sum(plain[k] == SUCCESS != harder[k] for k in keys)
            gained = sum(plain[k] != SUCCESS == harder[k] for k in keys)
            strata.append((lost, gained, len(keys)))
        rates = [(lost - gained) / pairs for lost, gained, pairs in strata if pairs]
        assert found.difference == pytest.approx(sum(rates) / len(rates))
        assert (found.low, found.high) == paired_interval([each for each in strata if each[2]])
    same = level_cost(nominal, at_level(plain))
    assert same.total.difference in (0, None)


def test_a_cost_is_told_in_a_sentence():
    nominal = an_evaluation([SUCCESS] * len(TRIALS))
    lost = {trial.key: TIME_LIMIT if trial.task == "knife" else SUCCESS for trial in TRIALS}
    cost = level_cost(nominal, at_level(lost))
    assert str(cost).startswith("The level pushed costs somebody 50 points (")
    assert "hammer 0 points (" in str(cost) and "knife 100 points (" in str(cost)


def test_results_that_are_not_matched_have_no_cost():
    nominal, level = an_evaluation([SUCCESS]), at_level({})
    other_seeds = {k: each.model_copy(update={"first_seed": each.first_seed + 9})
                   for k, each in SMALL.splits.items()}  # fmt: skip
    moved = Evaluation(a_result(SMALL.model_copy(update={"splits": other_seeds})), [])
    tasks = Evaluation(a_result(SMALL, task_digests={"hammer": "0", "knife": "0"}), [])
    for first in (level, moved, tasks):
        with pytest.raises(ResultError, match="is not the nominal level of"):
            level_cost(first, level)
    with pytest.raises(ResultError, match="is the nominal level"):
        level_cost(nominal, nominal)
    with pytest.raises(ResultError, match="Use `evaluate --nominal`"):
        compare(nominal, level)
    policy = nominal.result.policy
    for changes in ({"source": "random"}, {"training_seed": 3}, {"env_kwargs": {"robot": "ur5e"}}):
        other = nominal.result.model_copy(update={"policy": policy.model_copy(update=changes)})
        with pytest.raises(ResultError, match="different policies"):
            level_cost(Evaluation(other, []), level)
    clouds = {"obs_mode": "point_cloud", "cloud_source": "rays"}
    seen = [{**clouds, "sensors": "active_stereo"}, clouds]
    pair = [policy.model_copy(update={"env_kwargs": each}) for each in seen]
    noisy, ideal = (each.result.model_copy(update={"policy": p}) for each, p in
                    zip((level, nominal), pair, strict=True))  # fmt: skip
    with pytest.raises(ResultError, match="no finished scene in common"):  # cameras are the level's
        level_cost(Evaluation(ideal, []), Evaluation(noisy, []))
