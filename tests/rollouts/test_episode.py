"""Episodes as values, and the loop that makes them."""

from dataclasses import replace
from functools import cache

import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.errors import DatasetError, EpisodeOverError, InfeasibleError, PolicyError
from fleet_tools.policies.policy import StoredActions, episode_seed
from fleet_tools.rollouts.episode import Episode, EpisodeDifference, first_difference
from fleet_tools.rollouts.rollout import rollout

NO_PLAN = InfeasibleError("No plan.", {"axis": "3 deg"})


class RandomMotions:
    """A policy with pseudo-random motions, the same in each episode, that raises an error.

    Args:
        scale: Standard deviation of the motions.
        steps: Number of steps before the error; None for no error.
        error: The error.
    """

    def __init__(
        self, scale: float = 0.3, steps: int | None = None, error: Exception = NO_PLAN
    ) -> None:
        self.scale, self.steps, self.error = scale, steps, error

    def reset(self) -> None:
        self.generator, self.acted = np.random.default_rng(3), 0

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        if self.acted == self.steps:
            raise self.error
        self.acted += 1
        return self.generator.normal(scale=self.scale, size=6)


@cache
def environment() -> ToolUseEnv:
    return EnvSpec.of(task="hammer").make_tool_use()


@cache
def short_episode() -> Episode:
    return rollout(environment(), RandomMotions(steps=3), seed=5)


def test_records_every_step_until_the_policy_raises_an_error():
    env, episode = environment(), short_episode()
    assert (episode.outcome, len(episode)) == ("policy_error", 3)
    assert episode.error == "InfeasibleError: No plan. Violated: axis: 3 deg."
    assert episode.actions.shape == (3, 6)
    assert episode.actions.dtype == np.float32
    assert episode.digests.shape == (4,)
    assert {name: rows.shape for name, rows in episode.observations.items()} == {
        name: (4, *feature.space.shape) for name, feature in env.features.items()
    }
    observation, _ = env.reset(options={"scene": episode.scene})
    assert env.state_digest() == episode.digests[0]
    for k, action in enumerate(episode.actions, 1):
        observation, *_ = env.step(action)
        assert env.state_digest() == episode.digests[k]
        for name, value in observation.items():
            np.testing.assert_array_equal(value, episode.observations[name][k])


def test_an_invalid_action_is_the_policys_error_and_an_unexpected_error_is_raised():
    episode = rollout(environment(), RandomMotions(scale=np.nan), seed=1)
    assert (episode.outcome, len(episode)) == ("policy_error", 0)
    assert str(episode.error).startswith("InvalidActionError")
    with pytest.raises(ZeroDivisionError):
        rollout(environment(), RandomMotions(steps=1, error=ZeroDivisionError()), seed=1)


def test_records_the_action_that_was_executed():
    clipped = rollout(environment(), RandomMotions(scale=3.0, steps=2), seed=5)
    assert np.abs(clipped.actions).max() == 1.0
    again = rollout(environment(), StoredActions(clipped.actions), scene=clipped.scene)
    assert first_difference(clipped, again) is None


def test_same_scene_and_policy_same_episode():
    again = rollout(environment(), RandomMotions(steps=3), scene=short_episode().scene)
    assert first_difference(short_episode(), again) is None
    other = rollout(environment(), RandomMotions(steps=3), seed=6)
    difference = first_difference(short_episode(), other)
    assert difference is not None and difference.step == 0


def test_a_policy_without_a_plan_leaves_an_episode_of_no_steps():
    class Infeasible(RandomMotions):
        info = {"planning_seconds": 0.25}

        def reset(self) -> None:
            raise self.error

    episode = rollout(environment(), Infeasible(), seed=1)
    assert (episode.outcome, len(episode), len(episode.digests)) == ("policy_error", 0, 1)
    assert episode.actions.shape == (0, 6)
    assert episode.info == Infeasible.info  # a policy's is stored with its episode


@pytest.mark.parametrize("limits", [(4, 9), (9, 4), (-1, 4)])
def test_the_time_limit_of_a_wrapper_is_a_time_limit(limits):
    inner, outer = limits
    env = gymnasium.make("FleetTools/Hammer-v0", max_episode_steps=inner)
    env = gymnasium.wrappers.TimeLimit(env, outer)
    episode = rollout(env, RandomMotions(), seed=1)
    assert (episode.outcome, len(episode)) == ("time_limit", 4)
    assert episode.truncated.tolist() == [False, False, False, True]
    assert not episode.terminated.any()
    with pytest.raises(EpisodeOverError, match="time_limit"):
        env.step(np.zeros(6, np.float32))
    env.close()


def test_arrays_of_inconsistent_lengths_are_refused():
    with pytest.raises(
        DatasetError, match=r"4 rows of 'digests' in an episode with 3 actions; given: 3"
    ):
        replace(short_episode(), digests=short_episode().digests[:3])


STEPS = ("actions", "rewards", "terminated", "truncated", "success")


@given(st.sampled_from([*STEPS, "digests", "observations/joint_position"]), st.data())
def test_any_changed_bit_is_found_at_its_step(name, data):
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
    expected = EpisodeDifference(row + (name in STEPS), [name])
    assert first_difference(episode, episode) is None
    assert first_difference(episode, other) == first_difference(other, episode) == expected


def test_a_longer_episode_and_another_outcome_are_differences():
    longer = rollout(environment(), RandomMotions(steps=4), seed=5)
    difference = first_difference(short_episode(), longer)
    assert difference is not None and difference.step == 4
    assert first_difference(short_episode(), replace(short_episode(), outcome="success")) == (
        EpisodeDifference(3, ["outcome"])
    )


def test_what_a_policy_does_with_its_arrays_is_not_stored():
    class Careless(RandomMotions):
        action = np.zeros(6)

        def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
            for array in observation.values():
                array[...] = np.nan
            self.action[:] = super().act(observation)
            return self.action

    episode = rollout(environment(), Careless(steps=3), seed=5)
    assert first_difference(episode, short_episode()) is None


def test_a_policy_may_be_given_the_seed_of_its_episode():
    class Seeded(RandomMotions):
        def reset(self, seed: int = 0) -> None:
            super().reset()
            seeds.append(seed)

    seeds: list[int] = []
    episodes = [rollout(environment(), Seeded(steps=1), seed=seed) for seed in (5, 6, 5)]
    first, other, again = seeds
    assert first == again != other and min(seeds) >= 0 and max(seeds) < 2**63
    observations = episodes[0].observations
    assert first == episode_seed({name: rows[0] for name, rows in observations.items()})


def test_a_policy_acts_in_one_episode_at_a_time():
    class Nested(RandomMotions):
        def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
            with pytest.raises(PolicyError, match=r"Nested object .* acting in another episode"):
                rollout(EnvSpec.of(task="hammer").make_tool_use(), self, seed=6)
            return super().act(observation)

    class Abandoned(RandomMotions):
        def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
            raise KeyboardInterrupt

    episode = rollout(environment(), Nested(steps=3), seed=5)
    assert first_difference(episode, short_episode()) is None
    policy = Abandoned()
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            rollout(environment(), policy, seed=5)
