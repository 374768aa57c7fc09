"""The policy protocol, the guard around policies of others, and policies of a few lines."""

import contextlib
import hashlib
import inspect
import json
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import gymnasium
import numpy as np
from gymnasium import spaces

from fleet_tools.envs.wrappers import require_own_actions
from fleet_tools.errors import ConfigError, FleetToolsError, PolicyError, shown

if TYPE_CHECKING:
    from fleet_tools.policies.sources import PolicySource

EXPLANATION = "explanation"
"""Key of a policy's `info` with a sentence that says why the episode had no success; summaries of
collections and evaluations show it."""


class Policy(Protocol):
    """Any object that acts on observations, in one episode at a time.

    Actions follow from the observations since `reset`, so that episodes have the same bits in every
    order and in any process. A policy that draws random numbers defines `reset(self, seed=0)`, and
    makes its generators from this seed, see `episode_seed`.

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
    """Returns the info that a policy stores with its episode; empty if it has no `info`."""
    return getattr(policy, "info", {})


def episode_seed(observation: Mapping[str, np.ndarray]) -> int:
    """Returns the seed that `reset` is given, from 0 to 2^63 - 1.

    It is a hash of the episode's first observation, and thus tells nothing else of the scene.
    """
    digest = hashlib.blake2b(digest_size=8)
    for name in sorted(observation):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(observation[name]).tobytes())
    return int.from_bytes(digest.digest(), "little") >> 1


def begin(policy: Policy, seed: int) -> None:
    """Resets a policy; one whose `reset` has a parameter `seed` is given it."""
    try:
        seeded = "seed" in inspect.signature(policy.reset).parameters
    except (TypeError, ValueError):  # of compiled code
        seeded = False
    if seeded:
        cast(Any, policy).reset(seed=seed)
    else:
        policy.reset()


_acting: set[int] = set()
_claiming = threading.Lock()


def claim(policy: Policy) -> Callable[[], None]:
    """Claims a policy for an episode, or for a connection; returns a function that releases it.

    The caller holds the policy until then.

    Raises:
        PolicyError: It acts in another episode at present.
    """
    with _claiming:
        if id(policy) in _acting:
            raise PolicyError(
                f"The policy {shown(policy)} is still acting in another episode. A policy object "
                "handles one episode at a time: make one for each environment, thread and "
                "connection."
            )
        _acting.add(id(policy))
    return partial(_acting.discard, id(policy))


class NeverCopied:
    """A policy whose memory is in another process, so that a copy would share it."""

    def __reduce__(self) -> tuple:
        """Refuses copies, those by pickle included.

        Raises:
            PolicyError: Always.
        """
        raise PolicyError(
            f"A {type(self).__name__} cannot be copied, because its state is in another process. "
            "Make another one from its source and call `reset`."
        )


# --- Policies of others ---------------------------------------------------------------------


@contextlib.contextmanager
def policy_errors(activity: str) -> Iterator[None]:
    """Turns the errors of a policy's own code into a `PolicyError`.

    Args:
        activity: What the policy is doing, for the message.

    Raises:
        PolicyError: The code raised something that is not an error of this package.
    """
    try:
        yield
    except FleetToolsError:
        raise
    except (Exception, SystemExit) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        what = f"{type(error).__name__}: {error}"[:500]
        raise PolicyError(f"{activity} raised at {where}: {what}") from error


def make_guarded(policy: "PolicySource", env: gymnasium.Env, seed: int) -> Policy:
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

    def reset(self, seed: int = 0) -> None:
        """Resets the policy.

        Args:
            seed: See `begin`.

        Raises:
            PolicyError: It cannot be made, or raised an error.
        """
        self._seconds = 0.0
        if self._policy is None:
            with policy_errors("making it"):
                self._policy = self._make()
        with self._timed(), policy_errors("reset"):
            begin(self._policy, seed)

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


# --- Policies of a few lines ----------------------------------------------------------------


class StoredActions:
    """A policy that repeats stored actions.

    Args:
        actions: (T, 6), as `fleet_tools.rollouts.episode.Episode.actions`.
        env: The environment in which they are repeated, if it has wrappers.

    Raises:
        ConfigError: See `fleet_tools.envs.wrappers.require_own_actions`.
    """

    def __init__(self, actions: np.ndarray, env: gymnasium.Env | None = None) -> None:
        require_own_actions(env)
        self._actions = actions
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
            raise FleetToolsError(
                f"All {len(self._actions)} stored actions have been replayed; call reset()."
            )
        return action


class ZeroPolicy:
    """Returns zero actions.

    Args:
        env: The environment.

    Raises:
        ConfigError: Its actions are no arrays, or see `require_own_actions`.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        space = _action_space(env)
        require_own_actions(env)
        self._action = np.zeros(space.shape, space.dtype)

    def reset(self) -> None:
        """Does nothing."""

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns zeros, (6,), as `env.step` takes them."""
        return self._action.copy()


class RandomPolicy:
    """Draws every action uniformly from the environment's own action space.

    Args:
        env: The environment.
        seed: Seed of the policy's own generator.

    Raises:
        ConfigError: Its actions are no arrays, or see `require_own_actions`.
    """

    def __init__(self, env: gymnasium.Env, seed: int = 0) -> None:
        require_own_actions(env)
        self._space = _action_space(env)
        self._generator = np.random.default_rng(seed)

    def reset(self) -> None:
        """Keeps the generator's state, so that episodes differ."""

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns a random action, (6,), as `env.step` takes it."""
        draw = self._generator.uniform(self._space.low, self._space.high)
        return draw.astype(self._space.dtype)


def _action_space(env: gymnasium.Env) -> spaces.Box:
    space = env.unwrapped.action_space
    if not isinstance(space, spaces.Box):
        raise ConfigError(
            f"Expected actions that are arrays (Box); {env} has the action space "
            f"{type(space).__name__}."
        )
    return space
