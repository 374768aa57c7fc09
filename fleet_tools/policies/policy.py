"""The policy protocol, and the policy that repeats stored actions."""

from collections.abc import Mapping
from typing import Any, Protocol

import gymnasium
import numpy as np

from fleet_tools.envs.wrappers import ThroughWrappers
from fleet_tools.errors import FleetToolsError, PolicyError

EXPLANATION = "explanation"
"""Key of a policy's `info` with a sentence that says why the episode had no success; summaries of
collections and evaluations show it."""


class Policy(Protocol):
    """Any object that acts on observations.

    It may also have `info`, a mapping to plain JSON data that is stored with its episode, such as
    {"planning_seconds": 0.03}; see also `EXPLANATION`.
    """

    def reset(self) -> None:
        """Forgets the last episode; the environment has begun the next one."""
        ...

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns an action, (6,)."""
        ...


def policy_info(policy: Policy) -> Mapping[str, Any]:
    """Returns what a policy stores with its episode; empty if it has no `info`."""
    return getattr(policy, "info", {})


class NeverCopied:
    """A policy whose memory is in another process, so that a copy would share it."""

    def __reduce__(self) -> tuple:
        """Refuses copies, those by pickle included.

        Raises:
            PolicyError: Always.
        """
        raise PolicyError(
            f"A {type(self).__name__} is not copied: what it remembers of the episode is in "
            "another process. Make another one from its source, which begins with `reset`."
        )


class StoredActions:
    """A policy that repeats stored actions.

    Args:
        actions: (T, 6), as `fleet_tools.rollouts.episode.Episode.actions`.
        env: The environment in which they are repeated, if it has wrappers.

    Raises:
        ConfigError: See `fleet_tools.envs.wrappers.ThroughWrappers`.
    """

    def __init__(self, actions: np.ndarray, env: gymnasium.Env | None = None) -> None:
        self._actions, self._through_wrappers = actions, ThroughWrappers(env)
        self._remaining = iter(actions)

    def reset(self) -> None:
        """Starts from the first action."""
        self._remaining = iter(self._actions)

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns the next action, for `env.step`.

        Raises:
            FleetToolsError: There are no more.
        """
        action = next(self._remaining, None)
        if action is None:
            raise FleetToolsError(f"All {len(self._actions)} stored actions are done.")
        return self._through_wrappers(action)
