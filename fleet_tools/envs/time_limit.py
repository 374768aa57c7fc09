"""A time limit set in `gymnasium.make` is named like the task's own."""

from typing import Any

import gymnasium
from gymnasium.utils import RecordConstructorArgs

from fleet_tools.envs.outcomes import RUNNING


class NamedTimeLimit(gymnasium.Wrapper, RecordConstructorArgs):
    """Says "time_limit" where Gymnasium's TimeLimit, just inside, truncates without a word."""

    def __init__(self, env: gymnasium.Env) -> None:
        RecordConstructorArgs.__init__(self)
        gymnasium.Wrapper.__init__(self, env)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Steps the environment; see `fleet_tools.envs.tool_use_env.ToolUseEnv.step`."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if truncated and info["outcome"] == RUNNING:
            info = info | {"outcome": self.unwrapped.end_by_time_limit()}
        return observation, reward, terminated, truncated, info
