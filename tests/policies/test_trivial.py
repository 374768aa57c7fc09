"""Policies without knowledge."""

from collections.abc import Callable

import numpy as np
import pytest
from support.environments import IDS

from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.policies.policy import RandomPolicy, ZeroPolicy
from fleet_tools.rollouts.rollout import rollout

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("environment_id", IDS)
def test_a_robot_without_motion_never_succeeds(
    make: Callable[..., ToolUseEnv], environment_id: str, seed: int
) -> None:
    env = make(environment_id)
    episode = rollout(env, ZeroPolicy(env), seed=seed)
    assert episode.outcome == "time_limit"
    assert not episode.actions.any()
    assert not episode.success.any()


def test_random_actions_fill_the_space_and_follow_from_the_seed(
    make: Callable[..., ToolUseEnv],
) -> None:
    env = make(IDS[0])
    first, again, other = (RandomPolicy(env, seed) for seed in (1, 1, 2))
    actions = np.array([first.act({}) for _ in range(1000)])
    assert all(env.action_space.contains(action) for action in actions)
    assert np.abs(actions.mean(axis=0)).max() < 0.1
    assert (actions.min(axis=0) < -0.95).all() and (actions.max(axis=0) > 0.95).all()
    np.testing.assert_array_equal(actions, [again.act({}) for _ in range(1000)])
    assert not np.array_equal(actions[0], other.act({}))
