"""Policies that know nothing."""

import numpy as np
import pytest
from conftest import IDS

from fleet_tools.policies.trivial import RandomPolicy, ZeroPolicy
from fleet_tools.rollouts.episode import rollout


@pytest.mark.parametrize("environment_id", IDS)
def test_a_robot_that_does_nothing_never_succeeds(make, environment_id):
    env = make(environment_id)
    for seed in range(3):
        episode = rollout(env, ZeroPolicy(env), seed=seed)
        assert episode.outcome == "time_limit"
        assert not episode.actions.any()


def test_random_actions_fill_the_space_and_follow_from_the_seed(make):
    env = make(IDS[0])
    first, again, other = (RandomPolicy(env, seed) for seed in (1, 1, 2))
    actions = np.array([first.act(None) for _ in range(1000)])
    assert all(env.action_space.contains(action) for action in actions)
    assert np.abs(actions.mean(axis=0)).max() < 0.1
    assert (actions.min(axis=0) < -0.95).all() and (actions.max(axis=0) > 0.95).all()
    np.testing.assert_array_equal(actions, [again.act(None) for _ in range(1000)])
    assert not np.array_equal(actions[0], other.act(None))
