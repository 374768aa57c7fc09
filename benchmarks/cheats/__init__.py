"""Scripted cheats on the package's tasks: the deed is done, but not by the tool's working part."""

from cheats import hammer, knife, spatula, wrench
from cheats.motion import Script
from fleet_tools.sim.scene import Push

CHEATS: dict[str, dict[str, Script]] = {
    task.__name__.removeprefix("cheats."): {script.__name__: script for script in task.CHEATS}
    for task in (hammer, knife, spatula, wrench)
}
"""Scripts by the names of task and cheat."""

PUSHES: dict[Script, Push] = {spatula.handed: spatula.HANDED}
"""Displacements of the object that are parts of cheats."""
