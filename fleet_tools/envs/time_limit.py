"""Names the time limit that is set in `gymnasium.make`, like the task's own."""

from typing import Any

import gymnasium
from gymnasium.utils import RecordConstructorArgs

from fleet_tools.envs.outcomes import RUNNING


class NamedTimeLimit(gymnasium.Wrapper, RecordConstructorArgs):
    """Sets the outcome "time_limit" where Gymnasium's TimeLimit, just inside, truncates.

    Args:
        env: The environment in its TimeLimit wrapper.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        RecordConstructorArgs.__init__(self)
        gymnasium.Wrapper.__init__(self, env)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Steps the environment; see `fleet_tools.envs.recorded.RecordedEnv`."""
        from fleet_tools.envs.recorded import recorded

        observation, reward, terminated, truncated, info = self.env.step(action)
        if truncated and info["outcome"] == RUNNING:
            info = info | {"outcome": recorded(self).end_by_time_limit()}
        return observation, float(reward), terminated, truncated, info
