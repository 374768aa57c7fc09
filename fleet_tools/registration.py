"""The environments' names, and the one function that makes them."""

import inspect
from pathlib import Path
from typing import Any

import gymnasium
import yaml
from gymnasium.envs.registration import WrapperSpec

from fleet_tools.errors import MissingLibraryError, UnknownNameError
from fleet_tools.utils.libraries import GLIB_LINE
from fleet_tools.utils.resources import task_configs_root

CUSTOM_ID = "FleetTools/Custom-v0"
"""A user's own task: `gymnasium.make("FleetTools/Custom-v0", task="path/to/task.yaml")`."""

_NAMED_TIME_LIMIT = WrapperSpec("NamedTimeLimit", "fleet_tools.envs.time_limit:NamedTimeLimit", {})


def register_environments() -> None:
    """Registers `FleetTools/<Task>-v0` for every task file of the package, and `CUSTOM_ID`."""
    for path in sorted(task_configs_root().glob("*.yaml")):
        _register(environment_id(path.stem), path.stem, _max_episode_steps(path))
    # Its file is not known yet; the environment itself counts, up to the limit that it says.
    _register(CUSTOM_ID, task=None, max_episode_steps=None)


def environment_id(task: str) -> str:
    """Returns the id of a task of the package."""
    return f"FleetTools/{task.title()}-v0"


def _register(id: str, task: str | None, max_episode_steps: int | None) -> None:
    if id not in gymnasium.registry:
        gymnasium.register(
            id=id,
            entry_point="fleet_tools.registration:make_environment",
            kwargs={"task": task},
            max_episode_steps=max_episode_steps,
            additional_wrappers=(_NAMED_TIME_LIMIT,),
        )


def make_environment(**kwargs: Any) -> gymnasium.Env:
    """Makes a `fleet_tools.envs.tool_use_env.ToolUseEnv`; it has the keywords.

    Raises:
        MissingLibraryError: Drake cannot be imported; the message says what to install.
        UnknownNameError: There is no such keyword, or what one names does not exist.
    """
    require_drake()
    from fleet_tools.envs.tool_use_env import ToolUseEnv

    known = inspect.signature(ToolUseEnv).parameters
    for keyword in kwargs:
        if keyword not in known:
            raise UnknownNameError("keyword of an environment", keyword, known)
    return ToolUseEnv(**kwargs)


def require_drake() -> None:
    """Imports Drake, or says what its import needs.

    Raises:
        MissingLibraryError: Drake cannot be imported.
    """
    try:
        import pydrake.common  # noqa: F401
    except ImportError as error:
        raise MissingLibraryError(
            f"Drake cannot be imported: {error}. On Debian and Ubuntu its import needs GLib: "
            f"{GLIB_LINE}"
        ) from error


def _max_episode_steps(path: Path) -> int:
    # Only this one number, without the validation that loads the rest of the package.
    top_level = yaml.compose(path.read_text()).value
    return next(int(value.value) for key, value in top_level if key.value == "max_episode_steps")
