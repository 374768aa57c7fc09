"""Who acts: a policy by its name, by module:factory, or by its checkpoint.

    expert, disturbed_expert, random, zero      the package's own
    module:factory      `factory(env)` returns a `fleet_tools.rollouts.episode.Policy`; `factory` may have a
                        mapping `environment` with keywords of the environment that decide what it
                        observes, such as {"obs_mode": "point_cloud"}
    PATH                a checkpoint of `fleet_tools.baselines.policies`

All programs that let a policy act find it here.
"""

import contextlib
import hashlib
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import gymnasium

from fleet_tools.errors import FleetToolsError, PolicyError, UnknownNameError
from fleet_tools.rollouts.episode import Policy
from fleet_tools.utils.imports import load_function


@dataclass(frozen=True)
class PolicySource:
    """Where a policy comes from; a value that other processes can make the policy from.

    Attributes:
        kind: What it is.
        source: As `find` takes it; a checkpoint's path is absolute.
        content_digest: Hash of the checkpoint, or of the module's file; None for the package's own.
        environment: Keywords of the environment in which it sees what it reads.
    """

    kind: Literal["built_in", "factory", "checkpoint"]
    source: str
    content_digest: str | None
    environment: dict[str, Any]

    @property
    def name(self) -> str:
        """Its source, wherever a checkpoint's file lies."""
        return Path(self.source).name if self.kind == "checkpoint" else self.source

    def __str__(self) -> str:
        """Names it so that another content is another name, such as "best.safetensors (3f2a)"."""
        return f"{self.name} ({self.content_digest})" if self.content_digest else self.name

    def make(self, env: gymnasium.Env, seed: int = 0) -> Policy:
        """Makes the policy.

        Args:
            env: Where it is to act.
            seed: Of what `random` draws.

        Raises:
            PolicyError: Its file is no longer the one that was found, or its factory raises an
                error.
            FleetToolsError: It cannot act in this environment.
        """
        if self.kind == "built_in":
            return _BUILT_IN[self.source](env, seed)
        factory = self.kind == "factory"
        make = _factory(self.source) if factory else partial(_load, Path(self.source))
        with blame("making it"):
            if _digest(_file(self.kind, self.source)) != self.content_digest:
                raise PolicyError(
                    f"{self.source} is no longer what it was at the beginning. Begin anew, with a "
                    "copy that nobody changes."
                )
            return make(env)


def find(source: str) -> PolicySource:
    """Finds a policy, without making it.

    Args:
        source: See above.

    Raises:
        UnknownNameError: There is no such policy.
        PolicyError: Its module raises an error, or holds no such factory.
        FleetToolsError: Its checkpoint cannot be read.
    """
    if source in _BUILT_IN:
        return PolicySource("built_in", source, None, {})
    if Path(source).is_file():
        path = Path(source).absolute()  # a link keeps its name
        return PolicySource("checkpoint", str(path), _digest(path), _observed_by_checkpoint(path))
    if ":" in source:
        environment = _environment_of(_factory(source), source)
        return PolicySource("factory", source, _digest(_file("factory", source)), environment)
    remedy = "One's own is module:factory, or the path of a checkpoint."
    raise UnknownNameError("policy", source, _BUILT_IN, remedy)


@contextlib.contextmanager
def blame(doing: str) -> Iterator[None]:
    """Turns whatever a policy's own code raises inside into a `PolicyError`.

    Args:
        doing: What it was at.

    Raises:
        PolicyError: It raised something that is no error of this package.
    """
    try:
        yield
    except FleetToolsError:
        raise
    except (Exception, SystemExit) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        what = f"{type(error).__name__}: {error}"[:500]
        raise PolicyError(f"{doing} raised at {where}: {what}") from error


# --- The package's own --------------------------------------------------------------------------


def _expert(env: gymnasium.Env, seed: int) -> Policy:
    from fleet_tools.experts.policy import ExpertPolicy

    return ExpertPolicy(env)


def _disturbed_expert(env: gymnasium.Env, seed: int) -> Policy:
    from fleet_tools.experts.noise_injection import DisturbedExpert

    return DisturbedExpert(env)


def _random(env: gymnasium.Env, seed: int) -> Policy:
    from fleet_tools.policies.trivial import RandomPolicy

    return RandomPolicy(env, seed)


def _zero(env: gymnasium.Env, seed: int) -> Policy:
    from fleet_tools.policies.trivial import ZeroPolicy

    return ZeroPolicy(env)


_BUILT_IN: dict[str, Callable[[gymnasium.Env, int], Policy]] = {
    "expert": _expert,
    "disturbed_expert": _disturbed_expert,
    "random": _random,
    "zero": _zero,
}


# --- From outside -------------------------------------------------------------------------------


def _factory(source: str) -> Callable[[gymnasium.Env], Policy]:
    with blame(f"Importing {source.partition(':')[0]}"):
        return load_function(source, "factory of policies")


def _file(kind: str, source: str) -> Path | None:
    """What a policy's digest is of; a factory's module is imported, and may have no file."""
    if kind == "checkpoint":
        return Path(source)
    file = getattr(sys.modules[source.partition(":")[0]], "__file__", None)
    return Path(file) if file else None


def _environment_of(factory: Callable, source: str) -> dict[str, Any]:
    from fleet_tools.perception.observation_config import OBSERVING_KEYWORDS

    environment = dict(getattr(factory, "environment", {}))
    for keyword in environment:
        if keyword not in OBSERVING_KEYWORDS:
            what = f"keyword of an environment that {source} may choose"
            remedy = "All others are for those who let it act."
            raise UnknownNameError(what, keyword, OBSERVING_KEYWORDS, remedy)
    return environment


def _load(path: Path, env: gymnasium.Env) -> Policy:
    from fleet_tools.baselines.policies.policy import load_policy

    return load_policy(path, env)


def _observed_by_checkpoint(path: Path) -> dict[str, Any]:
    from fleet_tools.baselines.policies.checkpoint import load_checkpoint

    return load_checkpoint(path).blueprint.environment


def _digest(path: Path | None) -> str | None:
    if path is None:
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()[:32]
