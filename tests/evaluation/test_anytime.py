"""Comparisons that may stop, from invented episodes: whatever is chosen after seeing outcomes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.evaluated import OUTCOMES, SMALL, TRIALS, a_result, an_episode
from support.shares import few

from fleet_tools.envs.outcomes import SIMULATION_ERROR, SUCCESS, TIME_LIMIT
from fleet_tools.errors import ResultError
from fleet_tools.evaluation.anytime import AnytimeComparison
from fleet_tools.evaluation.anytime_statistics import anytime_interval, anytime_verdict
from fleet_tools.evaluation.policy_provenance import PolicyProvenance
from fleet_tools.evaluation.protocol import Protocol, Scenes, Trial
from fleet_tools.evaluation.result import Evaluation, Result

LONG = SMALL.model_copy(
    update={"splits": {"train": Scenes(scenes=40, first_seed=SMALL.splits["train"].first_seed)}}
)


def policy(source: str, **changes: Any) -> PolicyProvenance:
    return PolicyProvenance(
        **{
            "name": source,
            "kind": "factory",
            "source": source,
            "content_digest": source,
            "env_kwargs": {},
            "track": "observations",
            **changes,
        }
    )


def one_with(protocol: Protocol, source: str, **changes: Any) -> Result:
    return a_result(protocol, policy=policy(source), **changes)


def all_alike(protocol: Protocol, source: str, outcome: str) -> Evaluation:
    episodes = [an_episode(trial, outcome) for trial in protocol.trials()]
    return Evaluation(one_with(protocol, source), episodes)


def comparison(
    protocol: Protocol = SMALL, outcome: str = TIME_LIMIT, margin: float | None = None
) -> AnytimeComparison:
    return AnytimeComparison.of(
        one_with(protocol, "mine"),
        all_alike(protocol, "theirs", outcome),
        protocol.trials(),
        margin,
    )


def keys(trials) -> list:
    return [trial.key for trial in trials]


@few(10)
@given(st.permutations(TRIALS))
def test_the_order_mixes_all_pairs_and_does_not_depend_on_that_of_the_request(requested):
    one = AnytimeComparison.of(
        one_with(SMALL, "mine"), all_alike(SMALL, "theirs", SUCCESS), requested, None
    )
    assert sorted(keys(one.trials)) == sorted(keys(TRIALS))
    strata = {(trial.task, trial.split) for trial in TRIALS}
    assert len(one.blocks) == 3  # of 4 scenes in train and 3 in unseen_tools
    for block, same in zip(one.blocks, comparison().blocks, strict=True):
        assert {(trial.task, trial.split) for trial in block} == strata
        assert {*keys(block)} == {*keys(same)}


def test_those_scenes_that_are_looked_at_first_do_not_come_first():
    order = [trial.index for trial in comparison(LONG).trials if trial.task == "hammer"]
    assert sorted(order) == list(range(40))
    assert len({*order[:10]} & {*range(10)}) < 8
    other = LONG.model_copy(update={"version": 2})
    assert order != [trial.index for trial in comparison(other).trials if trial.task == "hammer"]


@given(st.lists(OUTCOMES, min_size=len(TRIALS), max_size=len(TRIALS)), st.randoms())
def test_the_order_in_which_episodes_end_changes_nothing(outcomes, generator):
    episodes = [an_episode(trial, each) for trial, each in zip(TRIALS, outcomes, strict=True)]
    test = comparison(margin=0.3)
    told = test.look(episodes)
    shuffled = generator.sample(episodes, len(episodes))
    assert test.look(shuffled) == told
    for end in range(len(shuffled)):  # a look at any time, as after a resumption, is of a prefix
        early = test.look(shuffled[:end])
        assert early.scenes <= told.scenes
        assert early == told or not early.decided


def test_it_is_the_test_of_the_counts_in_blocks_until_the_verdict():
    test = comparison(LONG)
    episodes = [an_episode(trial) for trial in test.trials]
    for end in range(0, 24, 2):
        told = test.look(episodes[:end])
        scenes = min(end, 10)  # nine wins of nine decide, and a block has two
        counts = scenes, 0, scenes
        assert (told.scenes, told.requested, told.block) == (scenes, 80, 2)
        assert told.verdict == anytime_verdict(counts, None)
        assert (told.low, told.high) == anytime_interval(counts)
        assert told.decided == (end >= 10)
        assert told.needed == (None if end == 0 else 10 - scenes)


def test_whoever_chooses_scenes_after_seeing_outcomes_gains_nothing():
    """Half of all scenes are lost; the chooser hides these, or runs the others first."""
    test = comparison(LONG, SUCCESS)
    lost = {trial.key for trial in LONG.trials() if trial.index % 2}
    all_of_them = [
        an_episode(trial, TIME_LIMIT if trial.key in lost else SUCCESS) for trial in test.trials
    ]
    honest = test.look(all_of_them)
    assert honest.verdict == "lower"
    hidden = [episode for episode in all_of_them if episode.key not in lost]
    gap = next(k for k, block in enumerate(test.blocks) if lost & {*keys(block)})
    told = test.look(hidden)
    assert told.scenes == 2 * gap < honest.scenes
    assert not told.decided
    assert test.look([*hidden, *(each for each in all_of_them if each.key in lost)]) == honest


def test_a_block_in_which_the_simulator_failed_counts_for_neither():
    test = comparison(LONG)
    failed = test.blocks[0][1].key

    def episode(trial: Trial):
        return an_episode(trial, SIMULATION_ERROR if trial.key == failed else SUCCESS)

    told = test.look([episode(trial) for trial in test.trials[:8]])
    assert (told.scenes, told.difference) == (6, 1.0)


def test_two_that_never_differ_are_equivalent_and_not_without_a_margin():
    episodes = [an_episode(trial, TIME_LIMIT) for trial in LONG.trials()]
    told = comparison(LONG, margin=0.1).look(episodes)
    assert told.verdict == "equivalent within 10 points"
    assert told.scenes < 80
    assert not comparison(LONG).look(episodes).decided


def test_exchanging_the_two_changes_the_signs_only():
    wins = {trial.key for trial in LONG.trials() if trial.index % 3 == 0}
    mine = [an_episode(t, SUCCESS if t.key in wins else TIME_LIMIT) for t in LONG.trials()]
    forward = comparison(LONG).look(mine)
    other = Evaluation(one_with(LONG, "mine"), mine)
    theirs = all_alike(LONG, "theirs", TIME_LIMIT)
    backward = AnytimeComparison.of(theirs.result, other, LONG.trials(), None).look(theirs.episodes)
    assert (forward.verdict, backward.verdict) == ("higher", "lower")
    assert (forward.scenes, forward.e_value) == (backward.scenes, backward.e_value)
    assert (forward.low, forward.high) == (-backward.high, -backward.low)


def test_another_scene_under_the_same_seed_is_refused_at_the_first_look():
    test = comparison()
    with pytest.raises(ResultError, match="began in different scenes"):
        test.look([an_episode(test.trials[0], scene_digest="11")])


def refused(result: Result, other: Evaluation, message: str) -> None:
    with pytest.raises(ResultError, match=message):
        AnytimeComparison.of(result, other, TRIALS, 0.1)


def test_what_cannot_be_compared_is_refused_before_anything_runs():
    mine, theirs = one_with(SMALL, "mine"), all_alike(SMALL, "theirs", SUCCESS)
    second = SMALL.model_copy(update={"version": 2})
    refused(one_with(second, "mine"), theirs, "Only results of the same protocol")
    elsewhere = {"fleet_tools": "0", "drake": "1.40.0"}
    refused(one_with(SMALL, "mine", packages=elsewhere), theirs, "their physics may differ")
    few = Evaluation(theirs.result, theirs.episodes[:-2])
    refused(mine, few, "'theirs' lacks 2 of the 14 requested scenes, such as 1 of knife, unseen")
    told = comparison().look([])
    stopped = theirs.result.model_copy(update={"stopped": told})
    refused(mine, Evaluation(stopped, theirs.episodes), "was stopped after 0 scenes.* without --")


@pytest.mark.parametrize("kind", ["factory", "checkpoint", "built_in"])
def test_the_same_policy_under_another_name_is_refused(kind):
    known = {"kind": kind, "content_digest": None if kind == "built_in" else "theirs"}
    episodes = all_alike(SMALL, "theirs", SUCCESS).episodes
    theirs = Evaluation(a_result(SMALL, policy=policy("theirs", **known)), episodes)
    source = "copy.safetensors" if kind == "checkpoint" else "theirs"
    renamed = policy(source, **known, name="renamed")
    refused(a_result(SMALL, policy=renamed), theirs, "to the same policy as this evaluation")
    sensors = {"obs_mode": "point_cloud", "sensors": "active_stereo"}
    noisy = a_result(SMALL, policy=policy(source, **known, env_kwargs=sensors))
    AnytimeComparison.of(noisy, theirs, TRIALS, 0.1)


def test_a_server_may_be_another_policy_each_time():
    remote = a_result(SMALL, policy=policy("ws://a", kind="remote", content_digest=None))
    other = Evaluation(remote, all_alike(SMALL, "theirs", SUCCESS).episodes)
    AnytimeComparison.of(remote, other, TRIALS, 0.1)
