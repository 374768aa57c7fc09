"""Arenas, and registration of their environments with Gymnasium.

An arena is a kind of environments, of one simulator. The package's are tool use and what the files
`arena.json` in its rooms say; one of your own is named as module:name, see `find_arena`. Nothing
heavy is imported, and no task file is read.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import gymnasium
from gymnasium.envs.registration import WrapperSpec
from gymnasium.wrappers import TimeLimit

from fleet_tools.config.file_access import task_configs_root
from fleet_tools.errors import ConfigError, require_name
from fleet_tools.utils.imports import is_own, load_function, load_user_object, require_trusted

if TYPE_CHECKING:
    from fleet_tools.storage.provenance import TaskFile

CUSTOM_ID = "FleetTools/Custom-v0"
"""Id for a user's own task: `gymnasium.make(CUSTOM_ID, task="path/to/task.yaml")`."""

_TIME_LIMIT = WrapperSpec("take_time_limit", "fleet_tools.registration:take_time_limit", {})


@dataclass(frozen=True)
class Arena:
    """A kind of environments whose episodes are recorded, of a simulator of its own.

    Attributes:
        name: Its name; ids of its environments are NAME/... One of your own is called as the
            module:name of this value.
        maker: Function that makes an environment from keyword arguments, module:function.
        scene: Class of its scenes, likewise: a pydantic model with the arena's name as `arena`.
        task_file: Function from a task's name to what is stored of the task, likewise.
        packages: Packages on which the bits of an episode depend.
        ids: Ids of the environments that Gymnasium knows by `import fleet_tools`.
        observations: Keyword arguments that affect observations, by those observation modes that
            tool use does not have.
    """

    name: str
    maker: str
    scene: str
    task_file: str
    packages: Sequence[str]
    ids: Sequence[str] = ()
    observations: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def read_task(self, task: str) -> "TaskFile":
        """Returns the stored form of a task.

        Raises:
            UnknownNameError, ConfigError: There is no such task, or it is not valid.
        """
        return load_function(self.task_file)(task)


TOOL_USE = Arena(
    name="FleetTools",
    maker="fleet_tools.envs.spec:make_tool_use",
    scene="fleet_tools.sim.scene:Scene",
    task_file="fleet_tools.storage.provenance:read_task_file",
    packages=("drake", "gymnasium", "h5py", "numpy"),
)

_FILES = sorted(Path(str(files("fleet_tools"))).glob("*/*/arena.json"))
ARENAS = {
    arena.name: arena
    for arena in (TOOL_USE, *(Arena(**json.loads(file.read_bytes())) for file in _FILES))
}
"""The package's arenas by name."""


def find_arena(env_id: str) -> Arena:
    """Returns the arena of an environment.

    Args:
        env_id: Id of the environment, such as "FleetTools/Hammer-v0", or "my_module:MINE/Task-v0"
            where the module has the `Arena` MINE.

    Raises:
        UnknownNameError: There is no such arena.
        ConfigError: Its module cannot be imported, or is not trusted, since stored data name it.
    """
    name = env_id.partition("/")[0]
    if is_own(name):
        require_trusted([name], "The environment", ConfigError)
        return load_user_object(name, "arena", ConfigError, Arena)
    require_name("arena", name, ARENAS, "Or module:name of one of your own.")
    return ARENAS[name]


def env_id(task: str) -> str:
    """Returns the id of a task of the package, such as "FleetTools/Hammer-v0"."""
    return f"FleetTools/{task.title().replace('_', '')}-v0"


def register_environments() -> None:
    """Registers `FleetTools/<Task>-v0` for every task of the package, and the ids of all arenas.

    The environment itself enforces the time limit of the task file.
    """
    for path in sorted(task_configs_root().glob("*.yaml")):
        _register(env_id(path.stem), TOOL_USE.maker, task=path.stem)
    _register(CUSTOM_ID, TOOL_USE.maker, task=None)
    for arena in ARENAS.values():
        for each in arena.ids:
            _register(each, arena.maker)


def _register(id: str, entry_point: str, **kwargs: str | None) -> None:
    if id not in gymnasium.registry:
        # Environments limit time and check calls themselves, with errors that name a remedy.
        gymnasium.register(
            id=id,
            entry_point=entry_point,
            kwargs=kwargs,
            additional_wrappers=(_TIME_LIMIT,),
            order_enforce=False,
            disable_env_checker=True,
        )


def take_time_limit(env: gymnasium.Env) -> gymnasium.Env:
    """Hands the `max_episode_steps` of `gymnasium.make` to the environment, which names outcomes.

    Gymnasium's wrapper would end episodes without an outcome. Its place in `env.spec` stays, so
    that a made environment can be made again from its specification.

    Args:
        env: The environment, in Gymnasium's TimeLimit if there is a limit.

    Returns:
        The environment without that wrapper; it ends episodes after as many steps, or earlier.
    """
    spec = env.unwrapped.spec
    assert spec is not None  # gymnasium.make has set it
    spec.additional_wrappers = (_TIME_LIMIT,)
    if isinstance(env, TimeLimit):
        spec.max_episode_steps = env._max_episode_steps
        return env.env
    return env
