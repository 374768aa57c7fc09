"""Policies from outside: never trusted, so that their errors end their own episode only.

One that acts in several episodes decides itself whether what it draws at random follows from the
scene alone: by seeding its generator in `reset`.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np

from fleet_tools.policies.sources import PolicySource, blame
from fleet_tools.rollouts.episode import Policy


def make_guarded(policy: PolicySource, env: gymnasium.Env, seed: int) -> Policy:
    """Makes a policy, and guards it if it is from outside.

    Args:
        policy, env, seed: See `PolicySource.make`, which says what is raised, too.
    """
    made = policy.make(env, seed)
    return made if policy.kind == "built_in" else GuardedPolicy(lambda: made)


class GuardedPolicy:
    """A policy whose every failure is a `PolicyError`, so that it ends its own episode only.

    Args:
        make: Makes it, at the first `reset`; asked again at the next one if it fails.
    """

    def __init__(self, make: Callable[[], Policy]) -> None:
        self._make = make
        self._policy: Policy | None = None
        self._seconds = 0.0

    def reset(self) -> None:
        """Resets it.

        Raises:
            PolicyError: It cannot be made, or raised an error.
        """
        self._seconds = 0.0
        if self._policy is None:
            with blame("making it"):
                self._policy = self._make()
        with self._timed(), blame("reset"):
            self._policy.reset()

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns its action; whether that is one, the environment decides.

        Raises:
            PolicyError: It raised an error, or returned no array.
        """
        with self._timed(), blame("act"):
            return np.asarray(self._policy.act(observation))

    @property
    def info(self) -> dict[str, Any]:
        """What it wants to be remembered, if that is JSON, and "policy_seconds"."""
        try:
            own = json.loads(json.dumps(dict(getattr(self._policy, "info", {})), allow_nan=False))
        except Exception as error:
            own = {"info_error": f"{type(error).__name__}: {error}"[:500]}
        return {**own, "policy_seconds": round(self._seconds, 6)}

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            self._seconds += time.perf_counter() - begun
