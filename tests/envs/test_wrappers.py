"""Policies act through Gymnasium's wrappers, or refuse them by name."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces, wrappers
from hypothesis import given
from hypothesis import strategies as st

from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.envs.wrappers import ThroughWrappers, require_entries
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


class Reversed(gymnasium.ActionWrapper):
    """Takes the entries of an action in reversed order, and says how."""

    def action(self, action: np.ndarray) -> np.ndarray:
        return action[::-1]

    revert_action = action


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


def rescaled(low: float, high: float) -> Wrap:
    return lambda env: wrappers.RescaleAction(env, np.float32(low), np.float32(high))


def transformed(function: Callable[[np.ndarray], np.ndarray]) -> Wrap:
    return lambda env: wrappers.TransformAction(env, function, None)


SAME_BITS: dict[str, Wrap] = {
    "time limit": lambda env: wrappers.TimeLimit(env, 500),
    "statistics": wrappers.RecordEpisodeStatistics,
    "order": wrappers.OrderEnforcing,
    "checker": wrappers.PassiveEnvChecker,
    "reward": lambda env: wrappers.TransformReward(env, lambda reward: 2.0 * float(reward)),
    "flat observations": wrappers.FlattenObservation,
    "delayed observations": lambda env: wrappers.DelayObservation(env, 1),
    "user's": Logged,
    "clipped": wrappers.ClipAction,
    "rescaled": rescaled(-2, 2),
    "rescaled, less": rescaled(-0.25, 0.25),
    "rescaled, clipped": lambda env: wrappers.ClipAction(rescaled(-4, 4)(env)),
    "user's, rescaled": lambda env: rescaled(-4, 4)(Logged(env)),
    "turned": transformed(lambda action: -action),
    "reversed": Reversed,
    "reversed, rescaled": lambda env: rescaled(-2, 2)(Reversed(env)),
}
"""Wrappers through which actions keep their bits."""

ROUNDED: dict[str, Wrap] = {
    "rescaled to [0, 1]": rescaled(0, 1),
    "rescaled to [-10, 10]": rescaled(-10, 10),
    "rescaled by entries": lambda env: wrappers.RescaleAction(
        env, np.linspace(-3, -1, 6, dtype=np.float32), np.linspace(1, 9, 6, dtype=np.float32)
    ),
    "rescaled twice": lambda env: rescaled(0, 1)(rescaled(-3, 5)(env)),
    "affine": transformed(lambda action: (0.75 * action - 0.1).astype(np.float32)),
}
"""Wrappers through which they are rounded to what the wrapper's numbers can be."""

REFUSED: dict[str, Wrap] = {
    "StickyAction": lambda env: wrappers.StickyAction(env, 0.2),
    "Silent": Silent,
    "Padded": Padded,
    "TransformAction": transformed(np.square),
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


# Others change actions alone, whose bits `test_a_wrapper_makes_the_meant_action` compares.
@pytest.mark.parametrize("name", ["flat observations", "delayed observations", "user's, rescaled"])
def test_the_expert_acts_through_wrappers_with_the_same_bits(hammer: ToolUseEnv, name: str) -> None:
    plain = own_actions(hammer, ExpertPolicy)
    np.testing.assert_array_equal(own_actions(SAME_BITS[name](hammer), ExpertPolicy), plain)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_acts_through_wrappers(hammer, policy):
    plain = own_actions(hammer, policy)
    np.testing.assert_array_equal(own_actions(rescaled(-2, 2)(hammer), policy), plain)
    first = own_actions(rescaled(0, 1)(hammer), policy)[0]
    np.testing.assert_allclose(first, plain[0], atol=2**-23)


def test_the_expert_succeeds_where_its_actions_are_rounded(hammer: ToolUseEnv) -> None:
    env = rescaled(0, 1)(hammer)
    episode = rollout(env, ExpertPolicy(env), seed=3)
    assert episode.outcome == "success"


NUMBERS = st.floats(-1, 1, width=32, allow_subnormal=False)  # whose halves lose bits
ACTIONS = st.lists(NUMBERS, min_size=6, max_size=6)


@pytest.mark.parametrize("name", [*SAME_BITS, *ROUNDED])
@given(numbers=ACTIONS)
def test_a_wrapper_makes_the_meant_action(name: str, numbers: list[float]) -> None:
    wrap, meant = {**SAME_BITS, **ROUNDED}[name], np.array(numbers, np.float32)
    env = wrap(Still())
    action = ThroughWrappers(env)(meant)
    assert action in env.action_space
    while isinstance(env, gymnasium.Wrapper):  # as `step` does, without observations
        if isinstance(env, gymnasium.ActionWrapper):
            action = env.action(action)
        env = env.env
    if name in SAME_BITS:
        np.testing.assert_array_equal(action, meant)
    else:
        low, high = (-0.85, 0.65) if name == "affine" else (-1, 1)
        spacing = 2**-22 if name == "rescaled twice" else 2**-23
        np.testing.assert_allclose(action, meant.clip(low, high), rtol=0, atol=spacing)


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("policy", POLICIES)
def test_what_cannot_be_acted_through_is_refused_by_name(hammer, name, policy):
    for env in (refused := REFUSED[name](hammer), wrappers.ClipAction(refused)):
        with pytest.raises(ConfigError, match=f"the wrapper {name}"):
            policy(env)


@pytest.mark.parametrize(
    "function",
    [
        lambda action: action[::-1],
        lambda action: action * 0,
        lambda action: action * np.nan,
        lambda action: np.clip(2 * action, -1, 1),
        lambda action: action + np.random.default_rng().normal(size=6),
        lambda action: action[:3],
        lambda action: None,
    ],
)
def test_functions_that_are_not_affine_in_each_entry_are_refused(function):
    with pytest.raises(
        ConfigError, match=r"not affine in each entry|does not return actions of shape"
    ):
        ThroughWrappers(transformed(function)(Still()))


def test_a_function_that_fails_is_refused_with_its_error() -> None:
    def fails(action: np.ndarray) -> np.ndarray:
        raise KeyError("none")

    with pytest.raises(ConfigError, match=r"TransformAction.*KeyError"):
        ThroughWrappers(transformed(fails)(Still()))


def test_a_wrapper_with_an_inverse_of_its_own_is_asked() -> None:
    env = wrappers.DiscretizeAction(Still(), bins=3, multidiscrete=True)
    assert ThroughWrappers(env)(np.array([-1, -0.2, 0, 0.2, 0.9, 1])).tolist() == [0, 1, 1, 1, 2, 2]


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
