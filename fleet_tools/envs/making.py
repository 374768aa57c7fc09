"""Ids of the environments, and the function that makes them; both load without Drake."""

import inspect
from typing import TYPE_CHECKING, Any

from fleet_tools.errors import MissingLibraryError, UnknownNameError
from fleet_tools.utils.libraries import missing_library

if TYPE_CHECKING:
    from fleet_tools.envs.tool_use_env import ToolUseEnv

CUSTOM_ID = "FleetTools/Custom-v0"
"""Id for a user's own task: `gymnasium.make(CUSTOM_ID, task="path/to/task.yaml")`."""

META_WORLD_ID = "MetaWorld/Task-v3"
"""Id for all tasks of Meta-World: `gymnasium.make(META_WORLD_ID, task="reach-v3")`."""

META_WORLD_CLASS = "fleet_tools.baselines.metaworld.env:MetaWorldEnv"
"""The class of these environments, as module:name."""


def env_id(task: str) -> str:
    """Returns the id of a task of the package."""
    return f"FleetTools/{task.title()}-v0"


def make_env(**kwargs: Any) -> "ToolUseEnv":
    """Makes an environment, without Gymnasium's wrappers.

    Args:
        kwargs: Arguments of `fleet_tools.envs.tool_use_env.ToolUseEnv`.

    Raises:
        MissingLibraryError: Drake cannot be imported; the message says what to install.
        ConfigError, UnknownNameError: An argument does not exist, or is not valid.
    """
    require_drake()
    from fleet_tools.envs.tool_use_env import ToolUseEnv

    known = inspect.signature(ToolUseEnv).parameters
    for name in kwargs:
        if name not in known:
            raise UnknownNameError("argument of an environment", name, known)
    return ToolUseEnv(**kwargs)


def require_drake() -> None:
    """Imports Drake.

    Raises:
        MissingLibraryError: Drake cannot be imported; the message says what to install.
    """
    try:
        import pydrake.common  # noqa: F401
    except ImportError as error:
        raise MissingLibraryError(missing_library("pydrake", reason=str(error))) from error
