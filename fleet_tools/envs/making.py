"""Ids of the environments, and the function that makes them; both load without Drake."""

import importlib.util
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fleet_tools.errors import MissingLibraryError, require_name
from fleet_tools.utils.drake_release import require_tested_release
from fleet_tools.utils.libraries import missing_library

if TYPE_CHECKING:
    from fleet_tools.envs.tool_use_env import ToolUseEnv

CUSTOM_ID = "FleetTools/Custom-v0"
"""Id for a user's own task: `gymnasium.make(CUSTOM_ID, task="path/to/task.yaml")`."""

META_WORLD_ID = "MetaWorld/Task-v3"
"""Id for all tasks of Meta-World: `gymnasium.make(META_WORLD_ID, task="reach-v3")`."""

MAKE_META_WORLD = "fleet_tools.baselines.metaworld.env:make_env"
"""The function that makes these environments, as module:function."""


def env_id(task: str) -> str:
    """Returns the id of a task of the package, such as FleetTools/HexKey-v0 of hex_key."""
    return f"FleetTools/{task.title().replace('_', '')}-v0"


def make_env(**kwargs: Any) -> "ToolUseEnv":
    """Makes an environment, without Gymnasium's wrappers.

    Args:
        kwargs: Arguments of `fleet_tools.envs.tool_use_env.ToolUseEnv`.

    Raises:
        MissingLibraryError, UntestedDrakeError: Drake cannot be imported, or is of a release that
            was not tested; the message says what to install.
        ConfigError, UnknownNameError: An argument does not exist, or is not valid.
    """
    require_drake()
    from fleet_tools.envs.tool_use_env import ToolUseEnv

    require_arguments(ToolUseEnv, kwargs)
    return ToolUseEnv(**kwargs)


def require_arguments(env_class: type, kwargs: Mapping[str, Any]) -> None:
    """Checks that a class of environments takes keyword arguments.

    Raises:
        UnknownNameError: It does not.
    """
    known = inspect.signature(env_class).parameters
    for name in kwargs:
        require_name("argument of an environment", name, known)


def require_drake() -> None:
    """Imports Drake, after checking its release, since an untested one may crash.

    Raises:
        MissingLibraryError: Drake cannot be imported; the message says what to install.
        UntestedDrakeError: It is too old, too new or of an unknown release.
    """
    if importlib.util.find_spec("pydrake") is not None:
        require_tested_release()
    try:
        import pydrake.common  # noqa: F401
    except ImportError as error:
        raise MissingLibraryError(missing_library("pydrake", reason=str(error))) from error
