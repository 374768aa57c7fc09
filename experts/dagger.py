"""DAgger: a learner and the expert take turns, and the expert's action is known in each step."""

from typing import Any

import gymnasium
import numpy as np

from fleet_tools.envs.tool_use_env import unwrap
from fleet_tools.envs.wrappers import ThroughWrappers
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.policies.policy import Policy
from fleet_tools.rollouts.episode import EXPERT_ACTIONS, LEARNER_STEPS

LEARNER_TURN, EXPERT_TURN = 8.0, 4.0
"""Mean numbers of steps of their turns."""


class DAggerPolicy:
    """Visits the states to which a learner's errors lead, with the expert's action in each.

    In the first rounds of DAgger (Ross et al. 2011) a mixture of expert and learner acts. Here they
    act in turns of random length, so that the learner's errors can accumulate, and the expert leads
    back from them. The expert goes on with its plan from where the learner is, not from where the
    plan would be by now: otherwise its actions would depend on how slow the learner was. Episodes
    store executed actions as always, and `info` those of the expert.

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
        self._through_wrappers = ThroughWrappers(env)
        self._generator, self._learner_acts = np.random.default_rng(0), True
        self._step = 0
        self._labels: list[tuple[int, list[float]]] = []

    def reset(self) -> None:
        """Plans from the environment's present state.

        Raises:
            InfeasibleError: There is no plan.
        """
        self._expert.reset()
        self._learner.reset()
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
        acting = learner if self._learner_acts else self._through_wrappers(expert)
        if self._learner_acts:
            self._expert.yield_step()
            self._labels.append((self._step, expert.tolist()))
        turn = LEARNER_TURN if self._learner_acts else EXPERT_TURN
        if self._generator.random() < 1 / turn:
            self._learner_acts = not self._learner_acts
        self._step += 1
        return acting
