"""The policy protocol, and the policy that repeats stored actions."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from fleet_tools.errors import FleetToolsError

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


class StoredActions:
    """A policy that repeats stored actions.

    Args:
        actions: (T, 6), as `fleet_tools.rollouts.episode.Episode.actions`.
    """

    def __init__(self, actions: np.ndarray) -> None:
        self._actions = actions
        self._remaining = iter(actions)

    def reset(self) -> None:
        """Starts from the first action."""
        self._remaining = iter(self._actions)

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns the next action, (6,).

        Raises:
            FleetToolsError: There are no more.
        """
        action = next(self._remaining, None)
        if action is None:
            raise FleetToolsError(f"All {len(self._actions)} stored actions are done.")
        return action
