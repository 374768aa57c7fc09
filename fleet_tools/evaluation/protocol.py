"""Protocols: YAML files that fix the tasks, splits and scene seeds of an evaluation.

The task files define the time limit and success. Each policy chooses its observations. Success is
counted as the outcome and as success after any step; episodes in which the simulator failed are
counted separately.

A published version never changes. When task files or the physics do, there is a new version, and
the file of the one before moves to `former/`, with the hashes of its task files: it cannot be run
any more, but its results can be read.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

import pydantic

from fleet_tools.config.resources import task_configs_root
from fleet_tools.config.tasks import load_task, task_names
from fleet_tools.config.values import Count, MisfitError, Value, load_yaml
from fleet_tools.errors import UnknownNameError
from fleet_tools.sim.scene import check_randomization
from fleet_tools.sim.seeds import EVALUATION
from fleet_tools.sim.splits import model_pairs
from fleet_tools.storage.provenance import read_task_file


def _of_evaluation(seed: int) -> int:
    if seed not in EVALUATION:
        raise ValueError(
            f"evaluation seeds lie between {EVALUATION.start} (2^52) and {EVALUATION[-1]}; smaller "
            "ones are for training"
        )
    return seed


class Scenes(Value):
    """The scenes of a split, the same number for each task.

    Attributes:
        scenes: Number of scenes.
        first_seed: Scene k of each task has the seed `first_seed + k`.
    """

    scenes: Count
    first_seed: Annotated[int, pydantic.AfterValidator(_of_evaluation)]

    def seeds(self) -> range:
        """Returns the seeds of all scenes, in order."""
        return range(self.first_seed, self.first_seed + self.scenes)


class Trial(Value):
    """One episode of a protocol.

    Attributes:
        task: Name of a task of the package.
        split: Split from which tool and object are drawn; see `fleet_tools.sim.splits`.
        index: Index of the scene in the split.
        seed: Seed of the scene.
    """

    task: str
    split: str
    index: pydantic.NonNegativeInt
    seed: int

    @property
    def key(self) -> tuple[str, str, int]:
        """Identifier within a protocol: task, split and index."""
        return self.task, self.split, self.index


class Protocol(Value):
    """Definition of an evaluation; policies evaluated by the same protocol can be compared.

    Attributes:
        name, version: Identifier.
        description: Purpose.
        tasks: Names of tasks of the package.
        randomization: See `fleet_tools.sim.scene.sample_scene`.
        splits: Scenes of each split; see `fleet_tools.sim.splits`.
    """

    name: str
    version: Count
    description: str
    tasks: Annotated[tuple[str, ...], pydantic.Field(min_length=1)]
    randomization: Literal["on", "off"] | dict[str, bool] = "on"
    splits: Annotated[dict[str, Scenes], pydantic.Field(min_length=1)]

    @pydantic.model_validator(mode="after")
    def _no_scene_twice(self) -> Self:
        if len(set(self.tasks)) < len(self.tasks):
            raise MisfitError("tasks", f"a task is given twice: {list(self.tasks)}")
        end, before = EVALUATION.start, None
        for name, scenes in sorted(self.splits.items(), key=lambda item: item[1].first_seed):
            if scenes.first_seed < end:
                raise MisfitError("splits", f"the splits {before!r} and {name!r} share seeds")
            end, before = scenes.seeds().stop, name
            _of_evaluation(scenes.seeds()[-1])
        return self

    @property
    def title(self) -> str:
        """Name and version."""
        return f"{self.name} v{self.version}"

    def trials(
        self, task: str | None = None, split: str | None = None, scenes: int | None = None
    ) -> list[Trial]:
        """Returns the protocol's trials, in its order.

        Args:
            task: The only task; all if None.
            split: The only split; all if None.
            scenes: Number of first scenes of each task and split; all if None.

        Raises:
            UnknownNameError: The protocol has no such task or split.
        """
        for what, given, known in (("task", task, self.tasks), ("split", split, self.splits)):
            if given is not None and given not in known:
                raise UnknownNameError(f"{what} of the protocol {self.title!r}", given, known)
        return [
            Trial(task=of_task, split=of_split, index=index, seed=seed)
            for of_task in self.tasks
            if task in (None, of_task)
            for of_split, its_scenes in self.splits.items()
            if split in (None, of_split)
            for index, seed in enumerate(its_scenes.seeds()[:scenes])
        ]


def protocol_names() -> list[str]:
    """Returns the names of the package's protocols."""
    return sorted(path.stem for path in _root().glob("*.yaml"))


def load_protocol(name_or_path: str) -> Protocol:
    """Reads a protocol of the package by name, or a user's own by path.

    Raises:
        UnknownNameError: There is no such protocol, or no such task or split as it names.
        ConfigError: The file is not valid.
    """
    path = Path(os.path.expanduser(name_or_path))
    if name_or_path in protocol_names():
        path = _root() / f"{name_or_path}.yaml"
    elif not (path.suffix in (".yaml", ".yml") and path.is_file()):
        remedy = "A protocol of your own is given by the path of its YAML file."
        if name_or_path in (path.stem for path in _former()):
            remedy = (
                f"{name_or_path} is a former version: results of it can be read, but not made, as "
                "the physics and the task files are no longer its own."
            )
        raise UnknownNameError("protocol", name_or_path, protocol_names(), remedy)
    protocol = load_yaml(Protocol, path)
    check_randomization(protocol.randomization)
    for name in protocol.tasks:
        if name not in task_names():
            raise UnknownNameError("task of the package", name, task_names())
        for split in protocol.splits:
            model_pairs(load_task(name), split)
    return protocol


def former_digests(protocol: Protocol) -> set[str]:
    """Returns the hashes of the former versions of a protocol and of their task files."""
    published = (load_yaml(_Content, path) for path in _former())
    return {each.digest() for each in published if each.protocol.name == protocol.name}


def task_digests(protocol: Protocol) -> dict[str, str]:
    """Returns the hashes of the protocol's task files, as installed here, by task."""
    return {name: read_task_file(name).content_digest for name in protocol.tasks}


def protocol_digest(protocol: Protocol, tasks: Mapping[str, str]) -> str:
    """Returns the hash of a protocol and its task files.

    Args:
        protocol: The protocol.
        tasks: Hashes of its task files, see `task_digests`.
    """
    return _Content(protocol=protocol, tasks=dict(tasks)).digest()


class _Content(Value):
    """A protocol and the hashes of its task files, as `former/` holds them."""

    protocol: Protocol
    tasks: dict[str, str]


def _former() -> list[Path]:
    return sorted((_root() / "former").glob("*.yaml"))


def _root() -> Path:
    return task_configs_root() / "protocols"
