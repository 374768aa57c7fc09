"""Honest ways to do the package's tasks, unlike the expert's: successes are expected.

The module of this folder with a task's name has its honest ways: scripts like cheats, which act
only
through the tool's working part. Every task has `half_speed`.
"""

from cheats import modules_of_tasks, scripts_of
from cheats.motion import Script

from honest_ways.edits import half_speed

HONEST: dict[str, dict[str, Script]] = {
    task: {"half_speed": half_speed} | scripts_of(module)
    for task, module in modules_of_tasks(__name__, __path__).items()
}
"""Scripts by the names of task and way."""
