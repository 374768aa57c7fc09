"""Episodes as values, and the loop that makes them."""

from dataclasses import replace
from functools import cache

import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_tools.errors import DatasetError, InfeasibleError
from fleet_tools.registration import make_environment
from fleet_tools.rollouts.episode import Difference, StoredActions, first_difference, rollout


@cache
def environment():
    return make_environment(task="hammer")


class Wiggle:
    """Small pseudo-random motions, the same in each episode; fails after so many, if told to."""

    def __init__(self, scale=0.3, steps=None, error=None):
        self.scale, self.steps, self.error = scale, steps, error

    def reset(self):
        self.generator, self.acted = np.random.default_rng(3), 0

    def act(self, observation):
        if self.acted == self.steps:
            raise self.error
        self.acted += 1
        return self.generator.normal(scale=self.scale, size=6)


def wiggle(**options):
    return Wiggle(error=InfeasibleError("No way.", {"axis": "3 deg"}), **options)


@cache
def short_episode():
    return rollout(environment(), wiggle(steps=3), seed=5)


def test_records_every_step_until_the_policy_gives_up():
    env, episode = environment(), short_episode()
    assert (episode.outcome, len(episode)) == ("policy_error", 3)
    assert episode.error == "InfeasibleError: No way. Violated: axis: 3 deg."
    assert episode.actions.shape == (3, 6)
    assert episode.actions.dtype == np.float32
    assert episode.digests.shape == (4,)
    assert {name: rows.shape for name, rows in episode.observations.items()} == {
        name: (4, *space.shape) for name, space in env.observation_space.items()
    }
    observation, _ = env.reset(options={"scene": episode.scene})
    assert env.state_digest() == episode.digests[0]
    for k, action in enumerate(episode.actions, 1):
        observation, *_ = env.step(action)
        assert env.state_digest() == episode.digests[k]
        for name, value in observation.items():
            np.testing.assert_array_equal(value, episode.observations[name][k])


def test_records_the_action_that_was_executed():
    wild = rollout(environment(), wiggle(scale=3.0, steps=2), seed=5)
    assert np.abs(wild.actions).max() == 1.0
    again = rollout(environment(), StoredActions(wild.actions), scene=wild.scene)
    assert first_difference(wild, again) is None


def test_same_scene_and_policy_same_episode():
    again = rollout(environment(), wiggle(steps=3), scene=short_episode().scene)
    assert first_difference(short_episode(), again) is None
    other = rollout(environment(), wiggle(steps=3), seed=6)
    assert first_difference(short_episode(), other).step == 0


def test_policy_that_cannot_even_plan_leaves_an_episode_of_no_steps():
    class Lost(Wiggle):
        def reset(self):
            raise self.error

    episode = rollout(environment(), Lost(error=InfeasibleError("No plan.", {})), seed=1)
    assert (episode.outcome, len(episode), len(episode.digests)) == ("policy_error", 0, 1)
    assert episode.actions.shape == (0, 6)


def test_action_that_is_none_is_the_policys_error():
    episode = rollout(environment(), Wiggle(scale=np.nan), seed=1)
    assert (episode.outcome, len(episode)) == ("policy_error", 0)
    assert episode.error.startswith("InvalidActionError")


def test_bug_in_a_policy_is_no_outcome():
    with pytest.raises(ZeroDivisionError):
        rollout(environment(), Wiggle(steps=1, error=ZeroDivisionError()), seed=1)


def test_time_limit_of_a_wrapper_is_a_time_limit():
    env = gymnasium.make("FleetTools/Hammer-v0", max_episode_steps=4)
    episode = rollout(env, Wiggle(), seed=1)
    assert (episode.outcome, len(episode)) == ("time_limit", 4)
    assert episode.truncated.tolist() == [False, False, False, True]
    assert not episode.terminated.any()
    env.close()


def test_policy_may_leave_a_note():
    class Noting(Wiggle):
        info = {"planning_seconds": 0.25}

    error = InfeasibleError("Done.", {})
    assert rollout(environment(), Noting(steps=1, error=error), seed=1).info == Noting.info


def test_arrays_that_do_not_belong_together_are_refused():
    with pytest.raises(DatasetError, match=r"3 actions has 4 rows of 'digests'; given: 3"):
        replace(short_episode(), digests=short_episode().digests[:3])


STEPS = ("actions", "rewards", "terminated", "truncated", "success")


@given(st.sampled_from([*STEPS, "digests", "observations/joint_position"]), st.data())
def test_any_changed_bit_is_found_where_it_is(name, data):
    episode = short_episode()
    arrays = {**episode.step_arrays(), **episode.state_arrays()}
    changed = arrays[name].copy()
    row = data.draw(st.integers(0, len(changed) - 1))
    entry = data.draw(st.integers(0, changed[row].size - 1))
    bits = changed[row : row + 1].reshape(-1)[entry : entry + 1].view(np.uint8)
    bits[data.draw(st.integers(0, len(bits) - 1))] ^= 1
    if name.startswith("observations/"):
        key = name.removeprefix("observations/")
        other = replace(episode, observations={**episode.observations, key: changed})
    else:
        other = replace(episode, **{name: changed})
    expected = Difference(row + (name in STEPS), [name])
    assert first_difference(episode, episode) is None
    assert first_difference(episode, other) == first_difference(other, episode) == expected


def test_longer_episode_and_other_outcome_are_differences():
    longer = rollout(environment(), wiggle(steps=4), seed=5)
    assert first_difference(short_episode(), longer).step == 4
    assert first_difference(short_episode(), replace(short_episode(), outcome="success")) == (
        Difference(3, ["outcome"])
    )
