"""Experts that demonstrate recovery: with noise in their actions, or in turns with a learner."""

from typing import Any

import gymnasium
import numpy as np

from fleet_tools.envs.tool_use_env import unwrap
from fleet_tools.envs.wrappers import require_own_actions
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.policies.policy import Policy, begin
from fleet_tools.rollouts.episode import EXPERT_ACTIONS, LEARNER_STEPS, NOISE_STEPS

NOISE_PROBABILITY = 0.3
"""Probability of noise in one step."""

MAX_DEVIATION = 0.3
"""Largest standard deviation of the noise, which is added to each entry of the action."""


class NoisyExpert:
    """An expert that adds noise to its action in some steps.

    A policy that imitates error-free demonstrations has seen no state outside their distribution.
    Noise takes demonstrations to such states, and the expert's next actions lead back (Laskey et
    al. 2017, "DART"). There, each step has noise, and the intended action is stored. Here, episodes
    store executed actions as always, and `info` lists the steps not to be imitated.

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
        require_own_actions(env)
        self._expert = ExpertPolicy(self._env)
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
        return action


LEARNER_TURN, EXPERT_TURN = 8.0, 4.0
"""Mean numbers of steps of their turns."""


class DAggerPolicy:
    """Visits the states to which a learner's errors lead, with the expert's action in each.

    In the first rounds of DAgger (Ross et al. 2011) a mixture of expert and learner acts. Here they
    act in turns of random length, so that the learner's errors can accumulate, and the expert leads
    back from them. The expert goes on with its plan from where the learner is, not from where the
    plan would be by now: otherwise its actions would depend on how slow the learner was. Episodes
    store executed actions as always, and `info` the expert's.

    The turns are drawn from the scene's seed, so an attempt is the same wherever it is made.

    Args:
        env: An environment of this package, wrapped or not, with the learner's observations.
        learner: The learner, which was made for `env`, too, so that its actions are for `env.step`.

    Raises:
        ConfigError: See `ExpertPolicy`.
    """

    def __init__(self, env: gymnasium.Env, learner: Policy) -> None:
        self._env = unwrap(env)
        self._expert, self._learner = ExpertPolicy(self._env), learner
        require_own_actions(env)
        self._generator, self._learner_acts = np.random.default_rng(0), True
        self._step = 0
        self._labels: list[tuple[int, list[float]]] = []

    def reset(self, seed: int = 0) -> None:
        """Plans from the environment's present state.

        Args:
            seed: The learner's, see `fleet_tools.policies.policy.begin`.

        Raises:
            InfeasibleError: There is no plan.
        """
        self._expert.reset()
        begin(self._learner, seed)
        self._generator = np.random.default_rng((self._env.scene.seed, 2))
        share = LEARNER_TURN / (LEARNER_TURN + EXPERT_TURN)
        self._learner_acts = bool(self._generator.random() < share)
        self._step = 0
        self._labels = []

    @property
    def info(self) -> dict[str, Any]:
        """Information about the plans, the learner's steps, and the expert's actions in these."""
        return {
            **self._expert.info,
            LEARNER_STEPS: [step for step, _ in self._labels],
            EXPERT_ACTIONS: [action for _, action in self._labels],
        }

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns the action of the one whose turn it is, for `env.step`."""
        expert, learner = self._expert.act(observation), self._learner.act(observation)
        acting = learner if self._learner_acts else expert
        if self._learner_acts:
            self._expert.yield_step()
            self._labels.append((self._step, expert.tolist()))
        turn = LEARNER_TURN if self._learner_acts else EXPERT_TURN
        if self._generator.random() < 1 / turn:
            self._learner_acts = not self._learner_acts
        self._step += 1
        return acting
