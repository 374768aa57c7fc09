"""Who is evaluated: a policy by its name, by module:factory, or by its checkpoint.

    expert, random, zero    the package's own
    module:factory          `factory(env)` returns a `fleet_tools.episode.Policy`; `factory` may
                            have a mapping `environment` with keywords of the environment that
                            decide what it observes, such as {"obs_mode": "point_cloud"}
    PATH                    a checkpoint of `fleet_tools.baselines.policies`

One that is made from outside acts in all episodes of its environment, so what it draws at random
follows from the scene alone only if it seeds its generator in `reset`. It is never trusted; see
`GuardedPolicy`.
"""

import contextlib
import hashlib
import importlib
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from fleet_tools.episode import Policy
from fleet_tools.errors import FleetToolsError, PolicyError, UnknownNameError
from fleet_tools.evaluation.result import PolicyIdentity
from fleet_tools.vision import OBSERVING_KEYWORDS

BUILT_IN = ("expert", "random", "zero")


def identify(source: str, name: str | None = None, obs_mode: str | None = None) -> PolicyIdentity:
    """Finds a policy, without making it.

    Args:
        source: See above.
        name: What tables are to call it; follows from the source if None.
        obs_mode: What it observes; as it says of itself if None, and "state" where it does not.

    Raises:
        UnknownNameError: There is no such policy.
        PolicyError: Its module raises an error, or holds no such factory.
        FleetToolsError: Its checkpoint cannot be read.
    """
    environment: Mapping[str, Any]
    if source in BUILT_IN:
        kind, digest, environment = "built_in", None, {}
    elif Path(source).is_file():
        kind, digest = "checkpoint", _file_digest(Path(source))
        environment = {} if obs_mode else _observed_by_checkpoint(Path(source))
    elif ":" in source:
        factory = _factory(source)
        module_file = getattr(sys.modules[source.partition(":")[0]], "__file__", None)
        kind, digest = "factory", _file_digest(Path(module_file)) if module_file else None
        environment = _environment_of(factory, source)
    else:
        remedy = "One's own is module:factory, or the path of a checkpoint."
        raise UnknownNameError("policy", source, BUILT_IN, remedy)
    path = Path(source)
    return PolicyIdentity(
        name=name or (path.stem if kind == "checkpoint" else source),
        kind=kind,
        source=path.name if kind == "checkpoint" else source,
        content_digest=digest,
        environment={**environment, **({"obs_mode": obs_mode} if obs_mode else {})},
    )


def from_anywhere(source: str) -> str:
    """Returns a policy's source, so that a process in another folder finds it, too."""
    return str(Path(source).resolve()) if Path(source).is_file() else source


def make_policy(kind: str, source: str, env: gymnasium.Env, seed: int) -> Policy:
    """Makes a policy for an environment.

    Args:
        kind: See `PolicyIdentity`.
        source: As given to `identify`; see `from_anywhere`.
        env: Where it is to act.
        seed: Of what the package's own policies draw.

    Raises:
        Exception: Whatever a policy from outside raises.
    """
    match kind, source:
        case "built_in", "expert":
            from fleet_tools.experts.policy import ExpertPolicy

            return ExpertPolicy(env)
        case "built_in", "random":
            from fleet_tools.baselines.trivial import RandomPolicy

            return RandomPolicy(env, seed)
        case "built_in", _:
            from fleet_tools.baselines.trivial import ZeroPolicy

            return ZeroPolicy(env)
        case "checkpoint", _:
            from fleet_tools.baselines.policies.policy import load_policy

            return load_policy(Path(source), env)
    return _factory(source)(env)


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
            with _blame("making it"):
                self._policy = self._make()
        with self._timed(), _blame("reset"):
            self._policy.reset()

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns its action; whether that is one, the environment decides.

        Raises:
            PolicyError: It raised an error, or returned no array.
        """
        with self._timed(), _blame("act"):
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


@contextlib.contextmanager
def _blame(doing: str) -> Iterator[None]:
    try:
        yield
    except FleetToolsError:
        raise
    except (Exception, SystemExit) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        what = f"{type(error).__name__}: {error}"[:500]
        raise PolicyError(f"{doing} raised at {where}: {what}") from error


def _factory(source: str) -> Callable[[gymnasium.Env], Policy]:
    module_name, _, attribute = source.partition(":")
    with _blame(f"Importing {module_name}"):
        module = importlib.import_module(module_name)
    factory = getattr(module, attribute, None)
    if not callable(factory):
        known = [name for name, value in vars(module).items() if callable(value) and name[0] != "_"]
        raise UnknownNameError(f"factory of policies in {module_name}", attribute, known)
    return factory


def _environment_of(factory: Callable, source: str) -> dict[str, Any]:
    environment = dict(getattr(factory, "environment", {}))
    for keyword in environment:
        if keyword not in OBSERVING_KEYWORDS:
            remedy = "The protocol decides all others."
            raise UnknownNameError(
                f"keyword of an environment that {source} may choose",
                keyword,
                OBSERVING_KEYWORDS,
                remedy,
            )
    return environment


def _observed_by_checkpoint(path: Path) -> dict[str, Any]:
    from fleet_tools.baselines.policies.checkpoint import load_checkpoint

    return load_checkpoint(path).blueprint.environment


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()[:32]
