"""Honest ways to do the package's tasks, otherwise than the expert: successes are expected.

The module of this folder with a task's name holds its honest ways: scripts as of cheats, which act
through the tool's working part alone.
"""

from cheats import modules_of_tasks, scripts_of

HONEST = {task: scripts_of(module) for task, module in modules_of_tasks(__name__, __path__).items()}
"""Scripts by the names of task and way."""
