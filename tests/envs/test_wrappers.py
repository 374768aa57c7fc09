"""Policies act through Gymnasium's wrappers, or refuse them by name."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces, wrappers

from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.envs.wrappers import require_entries
from fleet_tools.errors import ConfigError
from fleet_tools.experts.demonstrators import DAggerPolicy, NoisyExpert
from fleet_tools.experts.perception.perceived import perceived_expert, perceived_expert_category
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.policies.policy import Policy, RandomPolicy, StoredActions, ZeroPolicy
from fleet_tools.rollouts.rollout import rollout

Wrap = Callable[[gymnasium.Env], gymnasium.Env]
STEPS = 12


class Still(gymnasium.Env):
    """An environment with the action space of tool use, and without a simulation."""

    action_space = spaces.Box(-1.0, 1.0, (6,), np.float32)
    observation_space = spaces.Dict(
        {name: spaces.Box(-1.0, 1.0, (2,), np.float32) for name in ("one", "other")}
    )


class Silent(gymnasium.ActionWrapper):
    """Changes actions, and does not say how."""

    def action(self, action: np.ndarray) -> np.ndarray:
        return action / 2


class Logged(gymnasium.Wrapper):
    """Does something of its own in each step, and nothing to actions."""

    def step(self, action: Any) -> Any:
        return super().step(action)


class Padded(gymnasium.Wrapper):
    """Takes longer actions than the environment."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.action_space = spaces.Box(-1.0, 1.0, (7,), np.float32)


SAME_BITS: dict[str, Wrap] = {
    "flat observations": wrappers.FlattenObservation,
    "delayed observations": lambda env: wrappers.DelayObservation(env, 1),
    "user's": Logged,
}
"""Wrappers that leave actions alone."""

REFUSED: dict[str, Wrap] = {
    "ClipAction": wrappers.ClipAction,
    "RescaleAction": lambda env: wrappers.RescaleAction(env, np.float32(-2), np.float32(2)),
    "StickyAction": lambda env: wrappers.StickyAction(env, 0.2),
    "Silent": Silent,
    "Padded": Padded,
    "RepeatAction": lambda env: wrappers.RepeatAction(env, 2),
    "MaxAndSkipObservation": lambda env: wrappers.MaxAndSkipObservation(
        wrappers.FlattenObservation(env), 2
    ),
}
"""Wrappers through which nobody can act as meant, by what the message names."""


def own_actions(env: gymnasium.Env, make: Callable[[gymnasium.Env], Policy]) -> np.ndarray:
    """Returns what an environment executes of the first actions of a policy."""
    observation, _ = env.reset(seed=3)
    policy, executed = make(env), []
    policy.reset()
    for _ in range(STEPS):
        action = policy.act(observation)
        assert action in env.action_space
        observation, *_, info = env.step(action)
        executed.append(info["action"])
    return np.array(executed)


def dagger(env: gymnasium.Env) -> Policy:
    return DAggerPolicy(env, RandomPolicy(env, 4))


def stored(env: gymnasium.Env) -> Policy:
    actions = np.random.default_rng(2).uniform(-1, 1, (STEPS, 6)).astype(np.float32)
    return StoredActions(actions, env)


POLICIES = [ExpertPolicy, NoisyExpert, dagger, stored, RandomPolicy, ZeroPolicy]


@pytest.mark.parametrize("name", SAME_BITS)
def test_the_expert_acts_through_wrappers_with_the_same_bits(hammer: ToolUseEnv, name: str) -> None:
    plain = own_actions(hammer, ExpertPolicy)
    np.testing.assert_array_equal(own_actions(SAME_BITS[name](hammer), ExpertPolicy), plain)


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("policy", POLICIES)
def test_what_cannot_be_acted_through_is_refused_by_name(hammer, name, policy):
    refused = REFUSED[name](hammer)
    for env in (refused, wrappers.TimeLimit(refused, 9)):
        with pytest.raises(ConfigError, match=f"the wrapper {name}"):
            policy(env)


def test_entries_that_are_read_come_through_or_the_wrapper_is_named() -> None:
    plain = Still()
    for env in (wrappers.FlattenObservation(plain), wrappers.FrameStackObservation(plain, 2)):
        with pytest.raises(ConfigError, match=type(env).__name__):
            require_entries(env, ["one"])
    filtered = wrappers.TimeLimit(wrappers.FilterObservation(plain, ["one"]), 9)
    require_entries(filtered, ["one", "unknown"])
    with pytest.raises(ConfigError, match=r"FilterObservation.*'other'.*missing"):
        require_entries(filtered, ["other"])


@pytest.mark.parametrize("expert", [perceived_expert, perceived_expert_category])
def test_experts_that_see_refuse_what_hides_it(expert: Callable[[gymnasium.Env], Policy]) -> None:
    env = EnvSpec.of(task="hammer", obs_mode="point_cloud").make_tool_use()
    expert(wrappers.FilterObservation(env, sorted(env.features)))
    with pytest.raises(ConfigError, match=r"FilterObservation.*'joint_velocity'"):
        expert(wrappers.FilterObservation(env, ["joint_position"]))
    with pytest.raises(ConfigError, match="FlattenObservation"):
        expert(wrappers.FlattenObservation(env))


def test_episodes_that_cannot_be_recorded_are_refused_by_name(hammer: ToolUseEnv) -> None:
    for wrap, name in (
        (wrappers.FlattenObservation, "FlattenObservation"),
        (lambda env: wrappers.RepeatAction(env, 2), "RepeatAction"),
    ):
        with pytest.raises(ConfigError, match=name):
            rollout(wrap(hammer), ZeroPolicy(hammer), seed=1)
