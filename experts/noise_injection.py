"""An expert with noise injected into its actions, for demonstrations of recovery."""

from typing import Any

import gymnasium
import numpy as np

from fleet_tools.envs.tool_use_env import unwrap
from fleet_tools.envs.wrappers import ThroughWrappers
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.rollouts.episode import NOISE_STEPS

NOISE_PROBABILITY = 0.3
"""Probability of noise in one step."""

MAX_DEVIATION = 0.3
"""Largest standard deviation of the noise, which is added to each entry of the action."""


class NoisyExpert:
    """An expert that adds noise to its action in some steps.

    A policy that imitates error-free demonstrations has seen no state outside their distribution.
    Noise takes demonstrations to such states, and the expert's next actions lead back (Laskey et
    al. 2017, "DART": there, each step has noise, and the intended action is stored; here, episodes
    store executed actions as always, and `info` lists the steps not to be imitated).

    The standard deviation of the noise differs between scenes, uniformly in [0, `MAX_DEVIATION`],
    because tasks tolerate different amounts. All noise is drawn from the scene's seed, so an
    attempt is the same wherever it is made.

    Args:
        env: An environment of this package, wrapped or not.

    Raises:
        ConfigError: See `ExpertPolicy`.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        self._env = unwrap(env)
        self._expert, self._through_wrappers = ExpertPolicy(self._env), ThroughWrappers(env)
        self._generator, self._deviation = np.random.default_rng(0), 0.0
        self._step = 0
        self._noise_steps: list[int] = []

    def reset(self) -> None:
        """Plans from the environment's present state.

        Raises:
            InfeasibleError: There is no plan.
        """
        self._expert.reset()
        self._generator = np.random.default_rng((self._env.scene.seed, 1))
        self._deviation = self._generator.uniform(0.0, MAX_DEVIATION)
        self._step = 0
        self._noise_steps = []

    @property
    def info(self) -> dict[str, Any]:
        """Information about the plans, and the steps with noise."""
        return {**self._expert.info, NOISE_STEPS: list(self._noise_steps)}

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns the expert's action, with noise in some steps, for `env.step`."""
        action = self._expert.act(observation)
        if self._generator.random() < NOISE_PROBABILITY:
            self._noise_steps.append(self._step)
            noise = self._generator.normal(0.0, self._deviation, action.shape)
            action = np.clip(action + noise, -1.0, 1.0).astype(np.float32)
        self._step += 1
        return self._through_wrappers(action)
