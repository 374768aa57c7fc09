"""Arenas: kinds of environments whose episodes are recorded, each of its own simulator.

What is common to all of them finds what differs here, by the id of an environment. Modules are
named, and loaded when they are used.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleet_tools.config.values import parse
from fleet_tools.envs.making import MAKE_META_WORLD
from fleet_tools.errors import require_name
from fleet_tools.storage.provenance import PACKAGES, TaskFile
from fleet_tools.utils.imports import load_function

if TYPE_CHECKING:
    from fleet_tools.envs.recorded import RecordedEnv, StartScene


@dataclass(frozen=True)
class Arena:
    """A kind of environments.

    Attributes:
        name: Its name; ids of its environments are NAME/...
        environment: Function that makes an environment from keyword arguments, module:function.
        scene: Class of its scenes, likewise; a pydantic model.
        task_file: Function from a task's name to what is stored of the task, likewise.
        packages: Packages on which the bits of an episode depend.
    """

    name: str
    environment: str
    scene: str
    task_file: str
    packages: tuple[str, ...]

    def make_env(self, **kwargs: Any) -> "RecordedEnv":
        """Makes an environment, without Gymnasium's wrappers.

        Raises:
            FleetToolsError: A library is missing, or an argument is unknown or invalid.
        """
        return load_function(self.environment)(**kwargs)

    def read_task(self, task: str) -> TaskFile:
        """Returns what is stored of a task.

        Raises:
            UnknownNameError, ConfigError: There is no such task, or it is not valid.
        """
        return load_function(self.task_file)(task)


TOOL_USE = Arena(
    name="FleetTools",
    environment="fleet_tools.envs.making:make_env",
    scene="fleet_tools.sim.scene:Scene",
    task_file="fleet_tools.storage.provenance:read_task_file",
    packages=PACKAGES,
)
META_WORLD = Arena(
    name="MetaWorld",
    environment=MAKE_META_WORLD,
    scene="fleet_tools.baselines.metaworld.scene:MetaWorldScene",
    task_file="fleet_tools.baselines.metaworld.tasks:read_task",
    packages=("gymnasium", "h5py", "metaworld", "mujoco", "numpy"),
)
ARENAS = {arena.name: arena for arena in (TOOL_USE, META_WORLD)}
"""Arenas by name."""


def arena_of(env_id: str) -> Arena:
    """Returns the arena of an environment.

    Args:
        env_id: Id of the environment, such as "FleetTools/Hammer-v0".

    Raises:
        UnknownNameError: There is no such arena.
    """
    name = env_id.partition("/")[0]
    require_name("arena", name, ARENAS)
    return ARENAS[name]


def read_scene(facts: Any) -> "StartScene":
    """Returns a stored scene; those of tool use name no arena.

    Raises:
        UnknownNameError, ConfigError: There is no such arena, or it is no scene of it.
    """
    name = facts.get("arena", TOOL_USE.name) if isinstance(facts, Mapping) else TOOL_USE.name
    require_name("arena", name, ARENAS)
    cls: Any = load_function(ARENAS[name].scene)
    return parse(cls, facts, "its scene")
