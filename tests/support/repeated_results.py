"""Results of single scenes whose actions are repeated, by programs that do not use `evaluate`."""

from functools import cache

import gymnasium
import numpy as np

from fleet_tools import ExpertPolicy
from fleet_tools.envs.tool_use_env import unwrap
from fleet_tools.evaluation.config import EvaluationConfig
from fleet_tools.evaluation.result import EpisodeResult, decode_actions
from fleet_tools.evaluation.run import describe
from fleet_tools.evaluation.trial import make_trials


class FailingExpert(ExpertPolicy):
    """The expert, which fails in scenes of odd seeds.

    With the spatula it drops the slab there, after the success predicates have held for a moment.
    Elsewhere it does nothing.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self._env = unwrap(env)

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        if self._env.scene.seed % 2 == 0:
            return super().act(observation)
        if self._env.task_name != "spatula":
            return np.zeros(6, np.float32)
        if not self._env.get_state().success_once:
            return super().act(observation)
        return np.array([0, 0, 0, 1, 1, 0], np.float32)


@cache
def result_of(task: str, number: int, split: str = "train") -> EpisodeResult:
    """Returns the result of a scene of the nominal level, as `evaluate` makes it."""
    config = EvaluationConfig(
        policy=f"{__name__}:FailingExpert",
        track="privileged",
        tool=task,
        split=split,
        scenes=number + 1,
    )
    policy, result, trials = describe(config)
    return make_trials(result, policy)(trials[-1])


def action_of(episode: EpisodeResult, step: int) -> np.ndarray:
    """Returns the action of a step, (6,), of the last one beyond the end."""
    actions = decode_actions(episode.actions)
    return actions[min(step, len(actions) - 1)]
