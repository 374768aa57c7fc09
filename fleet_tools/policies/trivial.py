"""Policies that know nothing: what every score is to be measured against."""

from typing import Any

import gymnasium
import numpy as np


class ZeroPolicy:
    """Does nothing."""

    def __init__(self, env: gymnasium.Env) -> None:
        self._action = np.zeros(env.action_space.shape, env.action_space.dtype)

    def reset(self) -> None:
        """Has nothing to forget."""

    def act(self, observation: Any) -> np.ndarray:
        """Returns zeros."""
        return self._action.copy()


class RandomPolicy:
    """Draws every action uniformly from the action space.

    Args:
        env: The environment.
        seed: Of the policy's own generator.
    """

    def __init__(self, env: gymnasium.Env, seed: int = 0) -> None:
        self._space = env.action_space
        self._generator = np.random.default_rng(seed)

    def reset(self) -> None:
        """Goes on with its generator, so that episodes differ."""

    def act(self, observation: Any) -> np.ndarray:
        """Returns a random action."""
        draw = self._generator.uniform(self._space.low, self._space.high)
        return draw.astype(self._space.dtype)
