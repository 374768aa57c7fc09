"""Scripted cheats on the package's tasks: the deed is done, but not by the tool's working part.

The module of this folder with a task's name holds its cheats, public functions that return
`Actions`, and may hold `PUSHES` (displacements of the object that are parts of cheats) and
`LOOSENED` (factor of the resistance of the object's joints).
"""

import importlib
import inspect
import pkgutil
from collections.abc import Iterable
from types import ModuleType

from cheats.motion import Actions, Script
from fleet_tools.config.tasks import task_names
from fleet_tools.sim.scene import Push


def modules_of_tasks(package: str, path: Iterable[str]) -> dict[str, ModuleType]:
    """Returns those modules of a package that have names of tasks, by these."""
    names = {module.name for module in pkgutil.iter_modules(path)} & {*task_names()}
    return {name: importlib.import_module(f"{package}.{name}") for name in sorted(names)}


def scripts_of(module: ModuleType) -> dict[str, Script]:
    """Returns the public functions that a module defines and that return `Actions`, by name."""
    return {
        name: function
        for name, function in vars(module).items()
        if inspect.isfunction(function) and function.__module__ == module.__name__
        if not name.startswith("_") and function.__annotations__.get("return") == Actions
    }


_MODULES = modules_of_tasks(__name__, __path__)

CHEATS = {task: scripts_of(module) for task, module in _MODULES.items()}
"""Scripts by the names of task and cheat."""

PUSHES: dict[Script, Push] = {
    script: push
    for module in _MODULES.values()
    for script, push in getattr(module, "PUSHES", {}).items()
}
"""Displacements of the object that are parts of cheats."""

LOOSENED = {task: getattr(module, "LOOSENED", 1.0) for task, module in _MODULES.items()}
"""Factor of the resistance of the object's joints, by task."""
