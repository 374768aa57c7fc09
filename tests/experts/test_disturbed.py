"""The expert that is knocked off its way, and comes back."""

import numpy as np
import pytest
from conftest import IDS

from fleet_tools.experts.noise_injection import MOST_DEVIATION, SHARE, DisturbedExpert
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.rollouts.episode import UNMEANT, rollout

HAMMER = "FleetTools/Hammer-v0"


class Watched(DisturbedExpert):
    """Keeps what the expert within meant."""

    def reset(self):
        super().reset()
        self.meant, act = [], self._expert.act

        def kept(observation):
            self.meant.append(act(observation))
            return self.meant[-1]

        self._expert.act = kept


def test_it_does_what_it_meant_but_for_the_steps_that_it_lists(make):
    assert HAMMER in IDS
    env = make(HAMMER)
    shares = []
    for seed in range(6):
        policy = Watched(env)
        episode = rollout(env, policy, seed=seed)
        listed = episode.info[UNMEANT]
        other = (episode.actions != np.array(policy.meant)).any(axis=1)
        assert np.flatnonzero(other).tolist() == listed
        assert np.abs(episode.actions - policy.meant)[listed].max(initial=0) < 6 * MOST_DEVIATION
        assert episode.succeeded and "plans" in episode.info
        shares.append(other.mean())
    assert np.mean(shares) == pytest.approx(SHARE, abs=0.15)


def test_disturbances_follow_from_the_scene(make):
    env = make(HAMMER)
    policy = DisturbedExpert(env)
    first = rollout(env, policy, seed=3)
    rollout(env, policy, seed=4)
    again, fresh = (rollout(env, each, seed=3) for each in (policy, DisturbedExpert(env)))
    for other in (again, fresh):
        np.testing.assert_array_equal(first.actions, other.actions)
        assert first.info[UNMEANT] == other.info[UNMEANT]
    undisturbed = rollout(env, ExpertPolicy(env), seed=3)
    assert UNMEANT not in undisturbed.info
