"""Scripted cheats on the package's tasks: the deed is done, but not by the tool's working part.

The module of this folder with a task's name has its cheats, public functions that return `Actions`.
It may have `OTHERS` (other people's effects on the object in the scenes of cheats) and `LOOSENED`
(factor of the resistance of the object's joints).
"""

import importlib
import inspect
import pkgutil
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from cheats.motion import Actions, Script
from fleet_tools.config.tasks import task_names


def modules_of_tasks(package: str, path: Iterable[str]) -> dict[str, ModuleType]:
    """Returns the modules of a package with names of tasks, by task."""
    names = {module.name for module in pkgutil.iter_modules(path)} & {*task_names()}
    return {name: importlib.import_module(f"{package}.{name}") for name in sorted(names)}


def scripts_of(module: ModuleType) -> dict[str, Script]:
    """Returns the public functions of a module that return `Actions`, by name."""
    return {
        name: function
        for name, function in vars(module).items()
        if inspect.isfunction(function) and function.__module__ == module.__name__
        if not name.startswith("_") and function.__annotations__.get("return") == Actions
    }


_MODULES = modules_of_tasks(__name__, __path__)

CHEATS = {task: scripts_of(module) for task, module in _MODULES.items()}
"""Scripts by the names of task and cheat."""

OTHERS: dict[Script, dict[str, Any]] = {
    script: others
    for module in _MODULES.values()
    for script, others in getattr(module, "OTHERS", {}).items()
}
"""Fields of scenes that are parts of cheats, such as a push on the object."""

LOOSENED = {task: getattr(module, "LOOSENED", 1.0) for task, module in _MODULES.items()}
"""Factor of the resistance of the object's joints, by task."""
