"""An expert that is knocked off its way now and then, and so shows how it comes back."""

from typing import Any

import gymnasium
import numpy as np

from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.rollouts.episode import UNMEANT

SHARE = 0.3
"""Of the steps that are disturbed."""

MOST_DEVIATION = 0.3
"""Largest standard deviation of what is then added to each entry of the action."""


class DisturbedExpert:
    """An expert whose action is sometimes not the one that it meant.

    What learns from experts that never err does not know what to do after errors of its own.
    Disturbed demonstrations visit states beside the way, and the expert's next action leads back
    (Laskey et al. 2017, "DART", where each step is disturbed, and the action that was meant is
    stored; here the action is stored that was executed, as in all episodes, and `info` lists the
    steps that are not to be imitated).

    Each scene has its own strength of disturbances, from none to `MOST_DEVIATION`: a nail forgives
    more of them than a pancake. They follow from the scene, so that an attempt is the same wherever
    it is made.

    Args:
        env: A Fleet-Tools environment, wrapped or not.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        self._env = env.unwrapped
        self._expert = ExpertPolicy(env)
        self._generator, self._deviation = np.random.default_rng(0), 0.0
        self._step, self._unmeant = 0, []

    def reset(self) -> None:
        """Plans from the environment's present state.

        Raises:
            InfeasibleError: There is no plan.
        """
        self._expert.reset()
        self._generator = np.random.default_rng((self._env.scene.seed, 1))
        self._deviation = self._generator.uniform(0.0, MOST_DEVIATION)
        self._step, self._unmeant = 0, []

    @property
    def info(self) -> dict[str, Any]:
        """What episodes remember: of its plans, and which steps were disturbed."""
        return {**self._expert.info, UNMEANT: list(self._unmeant)}

    def act(self, observation: Any) -> np.ndarray:
        """Returns the action towards the next pose of the plan, or one beside it, (6,)."""
        action = self._expert.act(observation)
        if self._generator.random() < SHARE:
            self._unmeant.append(self._step)
            noise = self._generator.normal(0.0, self._deviation, action.shape)
            action = np.clip(action + noise, -1.0, 1.0).astype(np.float32)
        self._step += 1
        return action
