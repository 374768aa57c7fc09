"""Protocols: YAML files that fix the tasks, splits and scene seeds of an evaluation.

Tasks are the package's, by their names, and a user's own, by the paths of their files. A protocol
that has been read names all of them, and holds the files of the user's own, so that results hold
them, too; its hash covers what they say, and not where they lie.

The task files define the time limit and success. Each policy chooses its observations. Success is
counted as the outcome and as success after any step; episodes in which the simulator failed are
counted separately.

A published version never changes. When task files or the physics do, there is a new version, and
the file of the one before moves to `former/`, with the hashes of its task files: it cannot be run
any more, but its results can be read.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import pydantic

from fleet_tools.config.resources import task_configs_root
from fleet_tools.config.tasks import TaskConfig, load_task, task_names
from fleet_tools.config.values import (
    Count,
    GrownValue,
    MisfitError,
    Value,
    load_text,
    load_yaml,
    parse,
)
from fleet_tools.config.yaml_bounds import MAX_CHARACTERS
from fleet_tools.config.yaml_text import parse_yaml
from fleet_tools.envs.making import make_env
from fleet_tools.envs.stored_task import make_stored_env, require_trust
from fleet_tools.errors import (
    ConfigError,
    ResultError,
    UnknownNameError,
    require_name,
    shown,
)
from fleet_tools.evaluation.config import PROTOCOL
from fleet_tools.evaluation.own_tasks import OWN_TASK, NamedTask, is_file, listed_task, named_task
from fleet_tools.sim.scene import check_randomization
from fleet_tools.sim.seeds import EVALUATION
from fleet_tools.sim.splits import model_pairs, split_pairs
from fleet_tools.storage.provenance import TaskFile, read_task_file

if TYPE_CHECKING:
    from fleet_tools.envs.tool_use_env import ToolUseEnv


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


class ProtocolFile(Value):
    """Definition of an evaluation; policies evaluated by the same protocol can be compared.

    Attributes:
        name, version: Identifier.
        description: Purpose.
        tasks: Names of tasks of the package, and paths of task files, relative to this file.
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


class Protocol(ProtocolFile, GrownValue):
    """A protocol that has been read.

    Attributes:
        tasks: Names of its tasks.
        task_files: By name, the files of those that are not the package's.
    """

    later_fields = ("task_files",)

    task_files: dict[str, TaskFile] = {}

    @pydantic.model_validator(mode="after")
    def _task_files_fit(self) -> Self:
        if (size := sum(len(file.text) for file in self.task_files.values())) > MAX_CHARACTERS:
            raise MisfitError(
                "task_files", f"they have {size:,} characters, at most {MAX_CHARACTERS:,}"
            )
        for name, file in self.task_files.items():
            place = f"task_files.{name}"
            if name not in self.tasks or name != file.name:
                raise MisfitError(place, f"{shown(file.name)} is none of the tasks")
            task = file.content()
            if (task.name, task.digest()) != (name, file.content_digest):
                raise MisfitError(place, "its name and content_digest are not those of its text")
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
        for what, given, known, remedy in (
            ("task", task, self.tasks, OWN_TASK),
            ("split", split, self.splits, ""),
        ):
            if given is not None:
                require_name(f"{what} of the protocol {self.title!r}", given, known, remedy)
        return [
            Trial(task=of_task, split=of_split, index=index, seed=seed)
            for of_task in self.tasks
            if task in (None, of_task)
            for of_split, its_scenes in self.splits.items()
            if split in (None, of_split)
            for index, seed in enumerate(its_scenes.seeds()[:scenes])
        ]

    def own_file(self, task: str) -> TaskFile | None:
        """Returns the file of one of its tasks; None if it is the package's.

        Raises:
            UnknownNameError: It is neither; a path in strange data leads nowhere.
        """
        if task not in self.task_files:
            require_name("task of the package", task, task_names())
        return self.task_files.get(task)

    def load_task(self, task: str) -> TaskConfig:
        """Returns one of its tasks.

        Raises:
            UnknownNameError, ConfigError: It is unknown here, or not valid.
        """
        file = self.own_file(task)
        return load_task(task) if file is None else file.load()

    def make_env(self, task: str, *, trusted: bool = False, **kwargs: Any) -> "ToolUseEnv":
        """Makes an environment of one of its tasks.

        Args:
            task: Name of the task.
            trusted: Whether functions that its file names may run, see `make_stored_env`.
            kwargs: Keyword arguments of the environment.

        Raises:
            FleetToolsError: See `make_stored_env`.
        """
        file = self.own_file(task)
        if file is None:
            return make_env(**{**kwargs, "task": task})
        source = f"the protocol {self.title!r}"
        return make_stored_env(file, source, ResultError, trusted=trusted, **kwargs)


def protocol_names() -> list[str]:
    """Returns the names of the package's protocols."""
    return sorted(path.stem for path in _root().glob("*.yaml"))


def load_protocol(name_or_path: str) -> Protocol:
    """Reads a protocol of the package by name, or a user's own by path.

    Args:
        name_or_path: Name of a protocol, or path of its YAML file. Or the path of a task file, for
            the scenes of the present protocol in this task; or the folder of a result, for the
            protocol that it follows.

    Raises:
        UnknownNameError: There is no such protocol, or no such task or split as it names.
        ConfigError: The file is not valid.
        ResultError: The result is not valid, its task files are no longer those of here, or name
            functions that the user does not trust.
    """
    path = Path(os.path.expanduser(name_or_path))
    if name_or_path in protocol_names():
        path = _root() / f"{name_or_path}.yaml"
    elif path.is_dir():
        return _followed_protocol(path)
    elif not (path.suffix in (".yaml", ".yml") and path.is_file()):
        remedy = "A protocol of your own is given by the path of its YAML file."
        if name_or_path in (path.stem for path in _former()):
            remedy = (
                f"{name_or_path} is a former version: results of it can be read, but not made, as "
                "the physics and the task files are no longer its own."
            )
        raise UnknownNameError("protocol", name_or_path, protocol_names(), remedy)
    elif _is_task_file(path):
        return _scenes_in(load_protocol(PROTOCOL), str(path))
    file = load_yaml(ProtocolFile, path)
    check_randomization(file.randomization)
    tasks = [listed_task(entry, path.parent) for entry in file.tasks]
    protocol = _with_tasks(file, tasks, str(path))
    for name in protocol.tasks:
        task = protocol.load_task(name)
        for split in protocol.splits:
            model_pairs(task, split)
    return protocol


def with_task(protocol: Protocol, name_or_path: str) -> tuple[Protocol, str]:
    """Returns a protocol that has a task, and the task's name.

    Args:
        protocol: The protocol, which is returned if the task is given by a name, or is one of its
            own. Otherwise its splits, as far as the task has them, and its seeds make a protocol of
            this task alone.
        name_or_path: Name of a task, or path of a task file.

    Raises:
        ConfigError: The task file is not valid, or has none of the splits.
    """
    if name_or_path in protocol.tasks or not is_file(name_or_path):
        return protocol, name_or_path
    name, file = named_task(name_or_path)
    here = protocol.task_files.get(name)
    if name in protocol.tasks and (file and file.content_digest) == (here and here.content_digest):
        return protocol, name
    return _scenes_in(protocol, name_or_path), name


def former_digests(protocol: Protocol) -> set[str]:
    """Returns the hashes of the former versions of a protocol and of their task files."""
    published = (load_yaml(_Content, path) for path in _former())
    return {each.digest() for each in published if each.protocol.name == protocol.name}


def task_digests(protocol: Protocol) -> dict[str, str]:
    """Returns the hashes of the protocol's task files by task, of the package's as of here.

    Raises:
        UnknownNameError: It has a task that is unknown here.
    """
    files = {name: protocol.own_file(name) or read_task_file(name) for name in protocol.tasks}
    return {name: file.content_digest for name, file in files.items()}


def protocol_digest(protocol: Protocol, tasks: Mapping[str, str]) -> str:
    """Returns the hash of a protocol and its task files.

    Args:
        protocol: The protocol.
        tasks: Hashes of its task files, see `task_digests`.
    """
    # Without the files, since these are known by their hashes, and may lie anywhere.
    named = protocol.model_copy(update={"task_files": {}})
    return _Content(protocol=named, tasks=dict(tasks)).digest()


def _is_task_file(path: Path) -> bool:
    content = parse_yaml(load_text(path), str(path))
    return isinstance(content, dict) and "tool_family" in content


def _scenes_in(protocol: Protocol, path: str) -> Protocol:
    """Returns the scenes of a protocol in another task, given by the path of its file."""
    task, known = load_task(path), split_pairs(load_task(path))
    splits = {split: scenes for split, scenes in protocol.splits.items() if split in known}
    if not splits:
        raise ConfigError(
            f"{path} has none of the splits of {protocol.title!r}, {', '.join(protocol.splits)}. "
            f"It has {', '.join(known)}; write a protocol of your own with these."
        )
    changes = {
        "name": task.name,
        "version": 1,
        "description": f"{task.description} In the scenes of {protocol.title}.",
        "splits": splits,
    }
    return _with_tasks(protocol.model_copy(update=changes), [named_task(path)], path)


def _with_tasks(file: ProtocolFile, tasks: Sequence[NamedTask], source: str) -> Protocol:
    """Returns the protocol of a file, in which tasks are named.

    Raises:
        ConfigError: A name occurs twice.
    """
    content = file.model_dump(mode="json") | {
        "tasks": [name for name, _ in tasks],
        "task_files": {name: own for name, own in tasks if own is not None},
    }
    return parse(Protocol, content, source)


def _followed_protocol(folder: Path) -> Protocol:
    """Returns the protocol that a result follows, see `load_protocol`."""
    from fleet_tools.evaluation.result_file import EVALUATION

    result = EVALUATION.read_document(folder).lying_in(folder)
    protocol = result.local_protocol()
    if result.task_digests != task_digests(protocol):
        raise ResultError(
            f"{folder} follows {protocol.title!r} ({result.protocol_digest}), whose task files are "
            "no longer those of here. Its scores can be read, but not made again."
        )
    for file in protocol.task_files.values():
        require_trust(file, f"the protocol {protocol.title!r}", ResultError)
    return protocol


class _Content(Value):
    """A protocol and the hashes of its task files, as `former/` holds them."""

    protocol: Protocol
    tasks: dict[str, str]


def _former() -> list[Path]:
    return sorted((_root() / "former").glob("*.yaml"))


def _root() -> Path:
    return task_configs_root() / "protocols"
