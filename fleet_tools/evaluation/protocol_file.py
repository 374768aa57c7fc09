"""Finds and reads protocols by name, file or result.

A protocol's file lists tasks of the package by their names, and a user's own by the paths of their
files. The protocol that is read names all of them.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from fleet_tools.config.file_access import is_yaml_file, task_configs_root, yaml_names
from fleet_tools.config.tasks import load_task, task_names, task_path
from fleet_tools.config.values import load_text, load_yaml, parse
from fleet_tools.config.yaml_text import parse_yaml
from fleet_tools.envs.predicate_functions import require_trust
from fleet_tools.errors import ConfigError, ResultError, UnknownNameError, require_name
from fleet_tools.evaluation.config import PROTOCOL, PROTOCOL_NAME
from fleet_tools.evaluation.levels import LevelsFile
from fleet_tools.evaluation.protocol import (
    OWN_TASK,
    Protocol,
    ProtocolFile,
    task_digests,
)
from fleet_tools.sim.scene import check_randomization
from fleet_tools.sim.splits import model_pairs, split_pairs
from fleet_tools.storage.provenance import TaskFile, read_task_file

NamedTask = tuple[str, TaskFile | None]
"""Name of a task, and its file; None for a task of the package."""


def protocol_names() -> list[str]:
    """Returns the names of the package's protocols."""
    return yaml_names(_root())


def load_protocol(name_or_path: str, level: str | None = None) -> Protocol:
    """Reads a protocol of the package by name, or a user's own by path.

    Args:
        name_or_path: Name of a protocol, or path of its YAML file. Or the path of a task file, for
            the scenes of the present protocol in this task; or the folder of a result, for the
            protocol that it follows.
        level: Name of one of its levels; None for the first.

    Raises:
        UnknownNameError: There is no such protocol or level, or no such task or split as it names.
        ConfigError: The file is not valid.
        ResultError: The result is not valid, its task files are no longer the same as here, or name
            functions that the user does not trust.
    """
    levels = load_levels(name_or_path)
    if level is None:
        return next(iter(levels.values()))
    require_name(f"level of {name_or_path}", level, levels)
    return levels[level]


def load_levels(name_or_path: str) -> dict[str, Protocol]:
    """Reads all levels of a protocol by name, `NOMINAL` first.

    Args:
        name_or_path: See `load_protocol`.

    Raises:
        UnknownNameError: There is no such protocol, or no such task or split as it names.
        ConfigError: The file is not valid.
        ResultError: The result is not valid, its task files are no longer the same as here, or name
            functions that the user does not trust.
    """
    path = Path(os.path.expanduser(name_or_path))
    if name_or_path in protocol_names():
        path = _root() / f"{name_or_path}.yaml"
    elif os.path.isdir(path):  # `Path.is_dir` raises where a name is too long
        followed = _followed_protocol(path)
        return {followed.level_name: followed}
    elif not is_yaml_file(name_or_path):
        remedy = "A protocol of your own is given by the path of its YAML file."
        raise UnknownNameError("protocol", name_or_path, protocol_names(), remedy)
    elif _has_keys(path, "tool_family", "extends"):  # a task file
        present = load_levels(PROTOCOL)
        return {name: _scenes_in(each, str(path)) for name, each in present.items()}
    files = load_yaml(LevelsFile, path).protocol_files()
    return {name: _checked(file, path) for name, file in files.items()}


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
    if name_or_path in protocol.tasks or not is_yaml_file(name_or_path):
        return protocol, name_or_path
    name, file = named_task(name_or_path)
    here = protocol.task_files.get(name)
    if name in protocol.tasks and (file and file.content_digest) == (here and here.content_digest):
        return protocol, name
    return _scenes_in(protocol, name_or_path), name


def named_task(path: str) -> NamedTask:
    """Reads the file of a task.

    Raises:
        UnknownNameError: There is no such file.
        ConfigError: It is not valid, or takes the name of a task of the package.
    """
    package = {task_path(name).resolve(): name for name in task_names()}
    if (found := task_path(path)) in package:
        return package[found], None
    file = read_task_file(path)
    return file.name, file


def listed_task(entry: str, folder: Path) -> NamedTask:
    """Finds a task that a protocol's file lists.

    Args:
        entry: Name of a task of the package, or path of a task file.
        folder: Folder to which paths are relative.

    Raises:
        UnknownNameError: There is no such task.
        ConfigError: Its file is not valid, or takes the name of a task of the package.
    """
    if entry in task_names():
        return entry, None
    path = str(folder / os.path.expanduser(entry))
    if not is_yaml_file(path):
        remedy = f"{OWN_TASK[:-1]}, relative to the protocol's."
        raise UnknownNameError("task of the package", entry, task_names(), remedy)
    return named_task(path)


def _has_keys(path: Path, *keys: str) -> bool:
    """Returns whether a YAML file has any of these keys, which tell what it is."""
    content = parse_yaml(load_text(path), str(path))
    return isinstance(content, dict) and not set(keys).isdisjoint(content)


def _checked(file: ProtocolFile, path: Path) -> Protocol:
    """Returns the protocol of a file, whose tasks and splits exist.

    Raises:
        UnknownNameError, ConfigError: They do not.
    """
    if file.name == PROTOCOL_NAME and f"v{file.version}" != PROTOCOL:
        raise ConfigError(
            f"{path}: the name {PROTOCOL_NAME!r} is reserved for the package's protocol, "
            f"{PROTOCOL}. Give your protocol another name."
        )
    check_randomization(file.randomization)
    tasks = [listed_task(entry, path.parent) for entry in file.tasks]
    protocol = _with_tasks(file, tasks, str(path))
    loaded = [protocol.load_task(name) for name in protocol.tasks]
    for group in ("joint_resistance", "cameras"):  # a task has those that its file names
        known = {name for task in loaded for name in getattr(task.randomization, group)}
        for changes in (protocol, *protocol.by_task.values()):
            named = changes.ranges.get(group)
            for name in named if isinstance(named, dict) else ():
                require_name(f"part of {group}", name, known)
    for task in loaded:
        protocol.changed(task)
        for split in protocol.splits:
            model_pairs(task, split)
    return protocol


def _scenes_in(protocol: Protocol, path: str) -> Protocol:
    """Returns the scenes of a protocol in another task, given by the path of its file."""
    task = load_task(path)
    protocol.changed(task)
    known = split_pairs(task)
    splits = {split: scenes for split, scenes in protocol.splits.items() if split in known}
    if not splits:
        raise ConfigError(
            f"{path} has none of the splits of {protocol.title!r} ({', '.join(protocol.splits)}). "
            f"It has {', '.join(known)}; write your own protocol with these."
        )
    changes = {
        "name": task.name,
        "version": 1,
        "description": f"{task.description} In the scenes of {protocol.title}.",
        "splits": splits,
        "by_task": {name: each for name, each in protocol.by_task.items() if name == task.name},
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
    from fleet_tools.evaluation.result_folder import EVALUATION

    result = EVALUATION.read_document(folder).lying_in(folder)
    protocol = result.local_protocol()
    if result.task_digests != task_digests(protocol):
        raise ResultError(
            f"{folder} follows {protocol.title!r} ({result.protocol_digest}), but the task files "
            "here have changed. Its scores can be read, but not computed again."
        )
    for file in protocol.task_files.values():
        require_trust(file, f"the protocol {protocol.title!r}", ResultError)
    return protocol


def _root() -> Path:
    return task_configs_root() / "protocols"
