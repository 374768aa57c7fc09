"""Registration of the environments with Gymnasium: their ids, and the functions that make them.

Nothing heavy is imported, and no task file is read.
"""

import gymnasium
from gymnasium.envs.registration import WrapperSpec
from gymnasium.wrappers import TimeLimit

from fleet_tools.config.file_access import task_configs_root

CUSTOM_ID = "FleetTools/Custom-v0"
"""Id for a user's own task: `gymnasium.make(CUSTOM_ID, task="path/to/task.yaml")`."""

META_WORLD_ID = "MetaWorld/Task-v3"
"""Id for all tasks of Meta-World: `gymnasium.make(META_WORLD_ID, task="reach-v3")`."""

MAKE_TOOL_USE = "fleet_tools.envs.spec:make_tool_use"
MAKE_META_WORLD = "fleet_tools.baselines.metaworld.env:make_env"
"""The functions that make the environments, as module:function."""

_TIME_LIMIT = WrapperSpec("take_time_limit", "fleet_tools.registration:take_time_limit", {})


def env_id(task: str) -> str:
    """Returns the id of a task of the package, such as "FleetTools/Hammer-v0"."""
    return f"FleetTools/{task.title().replace('_', '')}-v0"


def register_environments() -> None:
    """Registers `FleetTools/<Task>-v0` for every task of the package, and `Custom-v0`.

    The environment itself enforces the time limit of the task file.
    """
    for path in sorted(task_configs_root().glob("*.yaml")):
        _register(env_id(path.stem), MAKE_TOOL_USE, task=path.stem)
    _register(CUSTOM_ID, MAKE_TOOL_USE, task=None)
    _register(META_WORLD_ID, MAKE_META_WORLD)


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
