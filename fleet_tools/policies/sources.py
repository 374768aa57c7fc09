"""Policies by name, by module:factory, by checkpoint, or by the address of a server.

    expert, noisy_expert, perceived_expert, perceived_expert_category, random, zero
                        built in
    module:factory      `factory(env)` returns a `fleet_tools.policies.policy.Policy`; `factory` may
                        have a mapping `env_kwargs` with keyword arguments of the environment that
                        affect its observations, such as {"obs_mode": "point_cloud"}
    PATH                a checkpoint of `fleet_tools.baselines.policies`
    fleet-tools/NAME    a checkpoint of this release, see `fleet_tools.policies.released`
    dagger:PATH         a checkpoint that takes turns with the expert, to collect what the expert
                        would do where the checkpoint goes
    ws://HOST:PORT      the policy of a server, as `python -m fleet_tools.serve` starts one; wss://
                        beyond this machine

All programs that run a policy find it here.
"""

import hashlib
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import gymnasium
import pydantic

from fleet_tools.envs.observation_modes import canonical_kwargs, own_code, policy_kwargs
from fleet_tools.errors import PolicyError, UnknownNameError
from fleet_tools.policies.policy import Policy, policy_errors
from fleet_tools.policies.released import PREFIX, find_file
from fleet_tools.utils.imports import load_function, trust

PolicyName = Annotated[
    str,
    pydantic.Field(
        description="expert, noisy_expert, perceived_expert, perceived_expert_category, random or "
        "zero; module:factory, where factory(env) returns an object with reset() and "
        "act(observation); the path of a checkpoint; fleet-tools/NAME, one of this release; "
        "dagger:PATH, a checkpoint in turns with the expert; or the address of a policy's server, "
        "ws://HOST:PORT or wss://HOST:PORT."
    ),
]
"""An option that names a policy."""


Kind = Literal["built_in", "factory", "checkpoint", "dagger", "remote"]
Track = Literal["observations", "privileged"]
"""Inputs of a policy: its observations alone, or the simulator's state, too."""


@dataclass(frozen=True)
class _BuiltIn:
    """A policy of the package, imported when it is made.

    Attributes:
        factory: Its class or factory, as module:name.
        description: What it does, for tables.
        seeded: Whether it takes a seed beside the environment.
        privileged: Whether it reads the simulator's state.
        env_kwargs: See `PolicySource`.
    """

    factory: str
    description: str
    seeded: bool = False
    privileged: bool = False
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)


_WHOLE_CLOUDS = {"obs_mode": "point_cloud", "cloud_size": [2048, 2048]}
"""Observations with all points that two cameras see."""

_BUILT_IN = {
    "expert": _BuiltIn(
        "fleet_tools.experts.policy:ExpertPolicy",
        "Plans from keypoints and the simulator's state, with feedback",
        privileged=True,
    ),
    "noisy_expert": _BuiltIn(
        "fleet_tools.experts.demonstrators:NoisyExpert",
        "The expert, with noise injected into its actions",
        privileged=True,
    ),
    "perceived_expert": _BuiltIn(
        "fleet_tools.experts.perception.perceived:perceived_expert",
        "Plans from point clouds; it is told which tool and object there are",
        env_kwargs=_WHOLE_CLOUDS,
    ),
    "perceived_expert_category": _BuiltIn(
        "fleet_tools.experts.perception.perceived:perceived_expert_category",
        "Plans from point clouds; it knows the models of training, not those of the scene",
        env_kwargs=_WHOLE_CLOUDS,
    ),
    "random": _BuiltIn(
        "fleet_tools.policies.policy:RandomPolicy", "Uniformly random actions", seeded=True
    ),
    "zero": _BuiltIn("fleet_tools.policies.policy:ZeroPolicy", "Zero actions: the arm stays"),
}

_DAGGER = "dagger:"
_DAGGER_POLICY = "fleet_tools.experts.demonstrators:DAggerPolicy"
_LOAD_CHECKPOINT_POLICY = "fleet_tools.baselines.policies.policy:load_checkpoint_policy"
_REMOTE_POLICY = "fleet_tools.policies.remote_policy:RemotePolicy"
_READ_HELLO = "fleet_tools.policies.remote_policy:read_hello"
_ENV_KWARGS_OF_CHECKPOINT = "fleet_tools.baselines.policies.checkpoint:env_kwargs_of"


@dataclass(frozen=True)
class PolicySource:
    """Source of a policy, a value from which other processes can make the policy.

    Attributes:
        kind: Kind of the source.
        source: Its name, as `find_policy` takes it; a checkpoint's path is absolute.
        content_digest: Hash of the checkpoint, which a server states of its own, or of the module's
            file; None for built-in policies.
        env_kwargs: Keyword arguments of the environment that give the observations it reads.
    """

    kind: Kind
    source: str
    content_digest: str | None
    env_kwargs: dict[str, Any]

    @property
    def name(self) -> str:
        """The source, without the folder of a checkpoint."""
        without_folder = self.kind in ("built_in", "factory", "remote")
        name = self.source if without_folder else Path(self.source).name
        return _DAGGER + name if self.kind == "dagger" else name

    @property
    def is_foreign(self) -> bool:
        """Whether code of others acts, whose episodes might depend on their order."""
        return self.kind in ("factory", "remote")

    def __str__(self) -> str:
        """Returns a name that differs for different content, as "best.safetensors (3f2a)"."""
        return f"{self.name} ({self.content_digest})" if self.content_digest else self.name

    def make(self, env: gymnasium.Env, seed: int = 0) -> Policy:
        """Makes the policy.

        Args:
            env: The environment in which it is to act.
            seed: Seed of the policy `random`.

        Raises:
            PolicyError: Its file has changed since it was found, its factory raises an error, or
                its server does not answer.
            FleetToolsError: It cannot act in this environment.
        """
        if self.kind == "built_in":
            built_in = _BUILT_IN[self.source]
            make = load_function(built_in.factory)
            return make(env, seed) if built_in.seeded else make(env)
        if self.kind == "remote":
            return load_function(_REMOTE_POLICY)(self.source, env, self.content_digest)
        factory = _factory(self.source) if self.kind == "factory" else None
        with policy_errors("making it"):
            if _digest(_file(self.kind, self.source)) != self.content_digest:
                raise PolicyError(
                    f"{self.source} has changed since the start of this run. Start again, and "
                    "leave the file unchanged."
                )
            if factory is not None:
                return factory(env)
            policy = load_function(_LOAD_CHECKPOINT_POLICY)(Path(self.source), env)
            return load_function(_DAGGER_POLICY)(env, policy) if self.kind == "dagger" else policy


def find_policy(source: str) -> PolicySource:
    """Finds a policy, without making it.

    Args:
        source: See the module.

    Raises:
        UnknownNameError: There is no such policy.
        ReleasedCheckpointError: A checkpoint of the release is not here, or its file is another.
        PolicyError: Its module raises an error, or has no such factory; or its server does not
            answer.
        FleetToolsError: Its checkpoint cannot be read.
    """
    if source in _BUILT_IN:
        return PolicySource(
            "built_in", source, None, canonical_kwargs(_BUILT_IN[source].env_kwargs)
        )
    if is_address(source):
        hello = load_function(_READ_HELLO)(source)
        return PolicySource("remote", source, hello.content_digest, dict(hello.env_kwargs))
    named = source.removeprefix(_DAGGER)
    if named.startswith(PREFIX):  # also where a folder of this name is at hand
        named = str(find_file(named))
    path = Path(named).absolute()  # a link keeps its name
    if os.path.isfile(path):  # `Path.is_file` raises where a name is too long
        env_kwargs = load_function(_ENV_KWARGS_OF_CHECKPOINT)(path)
        kind: Kind = "dagger" if source.startswith(_DAGGER) else "checkpoint"
        return PolicySource(kind, str(path), _digest(path), env_kwargs)
    if ":" in source:
        env_kwargs = _env_kwargs_of_factory(_factory(source), source)
        return PolicySource("factory", source, _digest(_file("factory", source)), env_kwargs)
    remedy = (
        "A policy of your own is given as module:factory, as the address of its server, or as the "
        "path of a checkpoint."
    )
    raise UnknownNameError("policy", source, _BUILT_IN, remedy)


def is_address(source: str) -> bool:
    """Whether a policy is named by the address of its server."""
    return source.startswith(("ws://", "wss://"))


def is_factory(source: str) -> bool:
    """Whether a policy is named as module:factory."""
    others = is_address(source) or source.startswith(_DAGGER) or os.path.isfile(source)
    return ":" in source and not others


def natural_track(kind: object, source: object) -> Track:
    """Returns the inputs of a policy that was not confined to its observations.

    Args:
        kind: Kind of the policy, see `PolicySource`.
        source: Its source.
    """
    without = [name for name, built_in in _BUILT_IN.items() if not built_in.privileged]
    if kind in ("factory", "dagger") or (kind == "built_in" and source not in without):
        return "privileged"
    return "observations"


def built_in_description(name: str) -> str:
    """Returns a short description of a built-in policy; empty for other policies."""
    return _BUILT_IN[name].description if name in _BUILT_IN else ""


def load_policy(source: str, env: gymnasium.Env, seed: int = 0) -> Policy:
    """Makes a policy by name, by module:factory, by its checkpoint, or by its server.

    Args:
        source: A built-in name such as "expert", "module:factory", a path, a released checkpoint
            such as "fleet-tools/bc_hammer", or an address.
        env: The environment in which it is to act.
        seed: Seed of the policy "random".

    Raises:
        FleetToolsError: See `find_policy` and `PolicySource.make`.
    """
    return find_policy(source).make(env, seed)


def _factory(source: str) -> Callable[[gymnasium.Env], Policy]:
    with policy_errors(f"Importing {source.partition(':')[0]}"):
        return load_function(source, "factory of policies")


def _file(kind: str, source: str) -> Path | None:
    """Returns the file whose content is hashed; an imported module may have none."""
    if kind in ("checkpoint", "dagger"):
        return Path(source)
    file = getattr(sys.modules[source.partition(":")[0]], "__file__", None)
    return Path(file) if file else None


def _env_kwargs_of_factory(factory: Callable, source: str) -> dict[str, Any]:
    env_kwargs = dict(getattr(factory, "env_kwargs", {}))
    for named in own_code(env_kwargs):
        trust(named)  # by code that runs already
    for name in env_kwargs:
        if name not in policy_kwargs():
            what = f"argument of an environment that {source} may choose"
            remedy = "The others are chosen by whoever runs the policy."
            raise UnknownNameError(what, name, policy_kwargs(), remedy)
    return canonical_kwargs(env_kwargs)


def _digest(path: Path | None) -> str | None:
    if path is None:
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()[:32]
