"""Honest ways to do the package's tasks, otherwise than the expert: successes are expected.

The module of this folder with a task's name holds its `HONEST`: scripts as of cheats, which act
through the tool's working part alone.
"""

from cheats import modules_of_tasks
from cheats.motion import Script

HONEST: dict[str, dict[str, Script]] = {
    task: {script.__name__: script for script in module.HONEST}
    for task, module in modules_of_tasks(__name__, __path__).items()
}
"""Scripts by the names of task and way."""
