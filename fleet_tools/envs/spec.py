"""Specifications of environments, as stored beside data, and the factories that they name.

`EnvSpec.make` and `gymnasium.make` are the ways to an environment, and both call the function that
is registered for its id. What differs between simulators is found in an `Arena`
(`fleet_tools.registration`).
"""

import importlib.util
import inspect
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pydantic

from fleet_tools.config.tasks import task_names, task_path
from fleet_tools.config.values import Value, parse
from fleet_tools.envs.observation_modes import EnvKwargs, canonical_kwargs, own_code
from fleet_tools.envs.predicate_functions import require_trust
from fleet_tools.errors import (
    ConfigError,
    FleetToolsError,
    MissingLibraryError,
    require_name,
)
from fleet_tools.registration import CUSTOM_ID, TOOL_USE, Arena, env_id, find_arena
from fleet_tools.robot.arm import robot_names, robot_path
from fleet_tools.storage.provenance import TaskFile
from fleet_tools.utils.drake_release import require_tested_release
from fleet_tools.utils.imports import load_function, require_trusted, trust

if TYPE_CHECKING:
    from fleet_tools.envs.recorded_env import RecordedEnv, StartScene
    from fleet_tools.envs.tool_use_env import ToolUseEnv


def read_scene(facts: Any) -> "StartScene":
    """Returns a stored scene; scenes of tool use name no arena.

    Raises:
        UnknownNameError, ConfigError: There is no such arena, or it is no scene of it.
    """
    if facts is None:
        raise ConfigError(
            "it came in an upload, without a scene. It can be used for training only, not for "
            "simulation"
        )
    name = facts.get("arena", TOOL_USE.name) if isinstance(facts, Mapping) else TOOL_USE.name
    cls: Any = load_function(find_arena(str(name)).scene)
    return parse(cls, facts, "its scene")


class EnvSpec(Value):
    """Which environment, made how: `gymnasium.make(id, **kwargs)`.

    Attributes:
        id: Id of the environment, which begins with the name of its arena.
        kwargs: Keyword arguments, "task" among them, and the source of clouds; plain JSON data.
    """

    id: str
    kwargs: EnvKwargs

    @pydantic.field_validator("id")
    @classmethod
    def _require_arena(cls, id: str) -> str:
        find_arena(id)
        return id

    @pydantic.field_validator("kwargs")
    @classmethod
    def _require_names(cls, kwargs: dict[str, Any]) -> dict[str, Any]:
        named = {"task": kwargs.get("task"), "obs_mode": kwargs.get("obs_mode", "state")}
        for name, value in named.items():
            if not isinstance(value, str):
                raise ValueError(f"{name} is a name; given: {value!r}")
        return kwargs

    @classmethod
    def of(cls, task: str | os.PathLike[str], **kwargs: Any) -> "EnvSpec":
        """Returns the specification for a task, given by its name or path.

        Args:
            task: Name of a task of the package, or path of a task file.
            kwargs: Other keyword arguments of the environment: plain JSON data, or the tuples,
                arrays and paths that can be written as such.

        Raises:
            UnknownNameError: There is no such task, or no such robot.
            ConfigError: An argument is not plain data.
        """
        name: Any = _plain(task)
        plain = canonical_kwargs(_plain(kwargs))
        if "robot" in plain and plain["robot"] not in robot_names():
            plain["robot"] = str(robot_path(plain["robot"]))
        if name in task_names():
            facts = {"id": env_id(name), "kwargs": {"task": name, **plain}}
        else:
            facts = {"id": CUSTOM_ID, "kwargs": {"task": str(task_path(name)), **plain}}
        return parse(cls, facts, "The specification of the environment")

    @property
    def task(self) -> str:
        """Name or path of the task."""
        return str(self.kwargs["task"])

    @property
    def obs_mode(self) -> str:
        """The observation mode."""
        return str(self.kwargs.get("obs_mode", "state"))

    @property
    def arena(self) -> Arena:
        """The kind of environments to which it belongs."""
        return find_arena(self.id)

    def make(self, **others: Any) -> "RecordedEnv":
        """Makes the environment, without Gymnasium's wrappers.

        Args:
            others: Keyword arguments that replace the specification's.

        Raises:
            FleetToolsError: A library is missing, or an argument is unknown or invalid, or names
                code that is not trusted (`fleet_tools.utils.imports`), since stored data have
                specifications, too.
        """
        kwargs = {**self.kwargs, **others}
        require_trusted(own_code(kwargs), "The environment", ConfigError)
        return load_function(self.arena.maker)(**kwargs)

    def make_tool_use(self, **others: Any) -> "ToolUseEnv":
        """Makes the environment as one of tool use, see `make`.

        Raises:
            FleetToolsError: See `make`.
            ConfigError: It is an environment of another arena.
        """
        if self.arena is not TOOL_USE:
            raise ConfigError(f"Expected a tool-use environment; given: {self.id}.")
        return cast("ToolUseEnv", self.make(**others))

    def make_stored(
        self,
        task: TaskFile,
        source: str,
        error: type[FleetToolsError],
        *,
        trusted: bool = False,
        **others: Any,
    ) -> "ToolUseEnv":
        """Makes an environment of a stored task file, which others may have written.

        Args:
            task: The task file as it was when it was stored; it replaces the specification's.
            source: What stores it, such as "the dataset", for error messages.
            error: Class of the error of a file that is not trusted.
            trusted: Whether functions that the file names as predicates may be imported, and their
                code run. Otherwise only those in modules that the user trusts, see
                `fleet_tools.utils.imports`; as all code that the specification names.
            others: Keyword arguments that replace the specification's.

        Raises:
            FleetToolsError: The file names functions that are not trusted, is not valid, or what
                it was made of does not exist here.
        """
        if not trusted:
            require_trust(task, source, error)
        return self.make_tool_use(**{**others, "task": task})


def _plain(value: Any) -> Any:
    """Returns data with lists for tuples and arrays, numbers for NumPy's, and text for paths."""
    match value:
        case Mapping():
            return {key: _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case np.ndarray() | np.generic():
            return value.tolist()
        case os.PathLike():
            return os.fspath(value)
    return value


def make_tool_use(**kwargs: Any) -> "ToolUseEnv":
    """Makes a tool-use environment; Gymnasium calls it for the ids of this package.

    Modules of code that is named as module:name are trusted from here on.

    Args:
        kwargs: Arguments of `fleet_tools.envs.tool_use_env.ToolUseEnv`.

    Raises:
        MissingLibraryError, UntestedDrakeError: Drake cannot be imported, or is of a release that
            was not tested; the message says what to install.
        ConfigError, UnknownNameError: An argument does not exist, or is not valid.
    """
    for name in own_code(kwargs):
        trust(name)
    require_drake()
    from fleet_tools.envs.tool_use_env import ToolUseEnv

    return ToolUseEnv(**checked_arguments(ToolUseEnv, kwargs))


def checked_arguments(env_class: type, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns keyword arguments for a class of environments, as plain data where they can be.

    Raises:
        UnknownNameError: The class takes no argument of that name.
    """
    known = inspect.signature(env_class).parameters
    for name in kwargs:
        remedies = (
            remedy
            for part, (place, remedy) in _ELSEWHERE.items()
            if part in name and place in known
        )
        require_name("argument of an environment", name, known, next(remedies, ""))
    return _plain(kwargs)


_SIZES = (
    "render_size",
    "render_size=(width, height) sizes the picture of render(), camera_size=(width, height) the "
    "images of observations.",
)
_ELSEWHERE = {
    **dict.fromkeys(("width", "height", "size", "resolution"), _SIZES),
    "seed": ("task", "The seed is an argument of reset."),
    "scene": ("task", 'A scene is given by reset(options={"scene": scene}).'),
}
"""Parts of names that users guess, an argument that the environment then has, and a remedy."""


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
        from fleet_tools.utils.libraries import missing_library

        raise MissingLibraryError(missing_library("pydrake", reason=str(error))) from error
