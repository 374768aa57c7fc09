"""Registration of the environments with Gymnasium."""

from pathlib import Path

import gymnasium
import yaml
from gymnasium.envs.registration import WrapperSpec

from fleet_tools.config.resources import task_configs_root
from fleet_tools.config.yaml_reader import FastLoader
from fleet_tools.envs.making import CUSTOM_ID, MAKE_META_WORLD, META_WORLD_ID, env_id
from fleet_tools.envs.making import make_env as make_environment

__all__ = ["make_environment", "register_environments"]

_NAMED_TIME_LIMIT = WrapperSpec("NamedTimeLimit", "fleet_tools.envs.time_limit:NamedTimeLimit", {})


def register_environments() -> None:
    """Registers `FleetTools/<Task>-v0` for every task of the package, and those of all tasks."""
    for path in sorted(task_configs_root().glob("*.yaml")):
        _register(env_id(path.stem), path.stem, _max_episode_steps(path))
    # Its file is not known yet; the environment itself enforces the limit of the task file.
    _register(CUSTOM_ID, task=None, max_episode_steps=None)
    if META_WORLD_ID not in gymnasium.registry:
        gymnasium.register(
            id=META_WORLD_ID,
            entry_point=MAKE_META_WORLD,
            additional_wrappers=(_NAMED_TIME_LIMIT,),
        )


def _register(id: str, task: str | None, max_episode_steps: int | None) -> None:
    if id not in gymnasium.registry:
        gymnasium.register(
            id=id,
            entry_point="fleet_tools.registration:make_environment",
            kwargs={"task": task},
            max_episode_steps=max_episode_steps,
            additional_wrappers=(_NAMED_TIME_LIMIT,),
        )


def _max_episode_steps(path: Path) -> int:
    # Only this one number, without the validation that loads the rest of the package.
    top_level = yaml.compose(path.read_text(encoding="utf-8"), FastLoader).value
    return next(int(value.value) for key, value in top_level if key.value == "max_episode_steps")
