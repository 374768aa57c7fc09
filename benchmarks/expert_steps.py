"""Episodes of the expert, step by step."""

from collections.abc import Iterable, Iterator

import numpy as np

from fleet_tools.envs.outcomes import RUNNING
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.experts.policy import ExpertPolicy


def expert_steps(
    env: ToolUseEnv, seeds: Iterable[int]
) -> Iterator[tuple[ExpertPolicy, np.ndarray]]:
    """Runs the expert's episodes, and yields it with its next action before each step.

    Args:
        env: The environment; the caller steps it with the action.
        seeds: Seeds of the episodes' scenes.
    """
    for seed in seeds:
        observation, _ = env.reset(seed=seed)
        expert = ExpertPolicy(env)
        expert.reset()
        while env.get_state().outcome == RUNNING:
            yield expert, expert.act(observation)  # the expert reads the env, not an observation
