"""Registration of the environments with Gymnasium."""

import gymnasium
from gymnasium.envs.registration import WrapperSpec

from fleet_tools.config.file_access import task_configs_root
from fleet_tools.envs.making import CUSTOM_ID, MAKE_META_WORLD, META_WORLD_ID, env_id
from fleet_tools.envs.making import make_env as make_environment

__all__ = ["make_environment", "register_environments"]

_NAMED_TIME_LIMIT = WrapperSpec("NamedTimeLimit", "fleet_tools.envs.time_limit:NamedTimeLimit", {})


def register_environments() -> None:
    """Registers `FleetTools/<Task>-v0` for every task of the package, and those of all tasks.

    The environment itself enforces the time limit of the task file.
    """
    for path in sorted(task_configs_root().glob("*.yaml")):
        _register(env_id(path.stem), path.stem)
    _register(CUSTOM_ID, task=None)
    if META_WORLD_ID not in gymnasium.registry:
        gymnasium.register(
            id=META_WORLD_ID,
            entry_point=MAKE_META_WORLD,
            additional_wrappers=(_NAMED_TIME_LIMIT,),
        )


def _register(id: str, task: str | None) -> None:
    if id not in gymnasium.registry:
        gymnasium.register(
            id=id,
            entry_point="fleet_tools.registration:make_environment",
            kwargs={"task": task},
            additional_wrappers=(_NAMED_TIME_LIMIT,),
        )
