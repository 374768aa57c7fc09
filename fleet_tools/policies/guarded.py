"""The guard around foreign policies, whose errors end their own episode only.

A policy that acts in several episodes decides itself whether its random draws follow from the scene
alone: by seeding its generator in `reset`.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gymnasium
import numpy as np

from fleet_tools.policies.policy import Policy, policy_info
from fleet_tools.policies.sources import PolicySource, policy_errors


def make_guarded(policy: PolicySource, env: gymnasium.Env, seed: int) -> Policy:
    """Makes a policy, and guards it if it is foreign.

    Args:
        policy: Where it comes from.
        env: The environment in which it is to act.
        seed: See `PolicySource.make`, also for the errors raised.
    """
    made = policy.make(env, seed)
    return made if policy.kind == "built_in" else GuardedPolicy(partial(_itself, made))


def _itself(policy: Policy) -> Policy:
    return policy


class GuardedPolicy:
    """A policy whose every failure is a `PolicyError`, so that it ends its own episode only.

    Args:
        make: Makes the policy, at the first `reset`; called again at the next one if it fails.
    """

    def __init__(self, make: Callable[[], Policy]) -> None:
        self._make = make
        self._policy: Policy | None = None
        self._seconds = 0.0

    def reset(self) -> None:
        """Resets the policy.

        Raises:
            PolicyError: It cannot be made, or raised an error.
        """
        self._seconds = 0.0
        if self._policy is None:
            with policy_errors("making it"):
                self._policy = self._make()
        with self._timed(), policy_errors("reset"):
            self._policy.reset()

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns the policy's action; whether it is valid, the environment decides.

        Raises:
            PolicyError: It raised an error, or returned no array.
        """
        with self._timed(), policy_errors("act"):
            if self._policy is None:
                raise RuntimeError("reset() comes before act()")
            return np.asarray(self._policy.act(observation))

    @property
    def info(self) -> dict[str, Any]:
        """The policy's `info`, if it is JSON, and "policy_seconds", the time that it took."""
        try:
            given = {} if self._policy is None else dict(policy_info(self._policy))
            own = json.loads(json.dumps(given, allow_nan=False))
        except Exception as error:
            own = {"info_error": f"{type(error).__name__}: {error}"[:500]}
        return {**own, "policy_seconds": round(self._seconds, 6)}

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self._seconds += time.perf_counter() - started
