"""Environment specifications, as stored beside data."""

from typing import TYPE_CHECKING, Any

import pydantic

from fleet_tools.config.tasks import task_names, task_path
from fleet_tools.config.values import Value
from fleet_tools.envs.arenas import Arena, arena_of
from fleet_tools.envs.making import CUSTOM_ID, env_id
from fleet_tools.perception.observation_config import StoredEnvKwargs, in_one_form
from fleet_tools.robot.arm import robot_names, robot_path

if TYPE_CHECKING:
    from fleet_tools.envs.recorded import RecordedEnv


class EnvSpec(Value):
    """Which environment, made how: `gymnasium.make(id, **kwargs)`.

    Attributes:
        id: Id of the environment, which begins with the name of its arena.
        kwargs: Keyword arguments, "task" among them, and the source of clouds.
    """

    id: str
    kwargs: StoredEnvKwargs

    @pydantic.field_validator("id")
    @classmethod
    def _require_arena(cls, id: str) -> str:
        arena_of(id)
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
    def of(cls, task: str, **kwargs: Any) -> "EnvSpec":
        """Returns the specification for a task, given by its name or path.

        Raises:
            UnknownNameError: There is no such task, or no such robot.
            ConfigError: A name is none.
        """
        if "robot" in kwargs and kwargs["robot"] not in robot_names():
            kwargs["robot"] = str(robot_path(kwargs["robot"]))
        kwargs = in_one_form(kwargs)
        if task in task_names():
            return cls(id=env_id(task), kwargs={"task": task, **kwargs})
        return cls(id=CUSTOM_ID, kwargs={"task": str(task_path(task)), **kwargs})

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
        return arena_of(self.id)

    def make(self, **others: Any) -> "RecordedEnv":
        """Makes the environment, without Gymnasium's wrappers.

        Args:
            others: Keyword arguments that replace those of the specification.

        Raises:
            FleetToolsError: See `fleet_tools.envs.arenas.Arena.make_env`.
        """
        return self.arena.make_env(**{**self.kwargs, **others})
