"""Tasks of a user's own beside those of the package: which task a name or a path stands for."""

import os
from pathlib import Path

from fleet_tools.config.tasks import task_names, task_path
from fleet_tools.errors import ConfigError, UnknownNameError
from fleet_tools.storage.provenance import TaskFile, read_task_file

NamedTask = tuple[str, TaskFile | None]
"""Name of a task, and its file; None for a task of the package."""

OWN_TASK = "A task of your own is given by the path of its YAML file."


def is_file(name_or_path: str) -> bool:
    """Returns whether a task is given by a path at which there is a task file."""
    path = Path(os.path.expanduser(name_or_path))
    return path.suffix in (".yaml", ".yml") and path.is_file()


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
    if file.name in package.values():
        raise ConfigError(
            f"{path} calls its task {file.name!r}, as a task of the package is called. Give it "
            "another `name`, by which results tell them apart."
        )
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
    if not is_file(path):
        remedy = f"{OWN_TASK[:-1]}, relative to the protocol's."
        raise UnknownNameError("task of the package", entry, task_names(), remedy)
    return named_task(path)
