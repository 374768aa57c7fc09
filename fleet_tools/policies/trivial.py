"""Policies without knowledge, with which every success rate is to be compared."""

import gymnasium
import numpy as np
from gymnasium import spaces

from fleet_tools.envs.wrappers import ThroughWrappers
from fleet_tools.errors import ConfigError


class ZeroPolicy:
    """Returns zero actions.

    Args:
        env: The environment; through its wrappers, too, the actions are its zeros.

    Raises:
        ConfigError: Its actions are no arrays, or see `ThroughWrappers`.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        space = _action_space(env)
        self._action, self._through_wrappers = (
            np.zeros(space.shape, space.dtype),
            ThroughWrappers(env),
        )

    def reset(self) -> None:
        """Does nothing."""

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns zeros, (6,), as `env.step` takes them."""
        return self._through_wrappers(self._action.copy())


class RandomPolicy:
    """Draws every action uniformly from the environment's own action space.

    Args:
        env: The environment.
        seed: Seed of the policy's own generator.

    Raises:
        ConfigError: Its actions are no arrays, or see `ThroughWrappers`.
    """

    def __init__(self, env: gymnasium.Env, seed: int = 0) -> None:
        self._space, self._through_wrappers = _action_space(env), ThroughWrappers(env)
        self._generator = np.random.default_rng(seed)

    def reset(self) -> None:
        """Keeps the generator's state, so that episodes differ."""

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns a random action, (6,), as `env.step` takes it."""
        draw = self._generator.uniform(self._space.low, self._space.high)
        return self._through_wrappers(draw.astype(self._space.dtype))


def _action_space(env: gymnasium.Env) -> spaces.Box:
    space = env.unwrapped.action_space
    if not isinstance(space, spaces.Box):
        raise ConfigError(f"The actions of {env} are no arrays, but a {type(space).__name__}.")
    return space
