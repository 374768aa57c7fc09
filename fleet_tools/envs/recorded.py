"""What is needed of an environment whose episodes are recorded, of whatever simulator."""

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import gymnasium
import numpy as np

from fleet_tools.envs.interface import EnvInterface, refusal
from fleet_tools.errors import ConfigError

if TYPE_CHECKING:
    from fleet_tools.envs.interface import Entry
    from fleet_tools.envs.observations import Feature
    from fleet_tools.sim.own_models import OwnModel


class StartScene(Protocol):
    """The start of an episode, which with the actions determines all the rest."""

    @property
    def task(self) -> str:
        """Name of the task."""
        ...

    @property
    def seed(self) -> int:
        """Seed that drew it."""
        ...

    @property
    def tool(self) -> str | None:
        """Name of its tool, where there is a choice of tools."""
        ...

    @property
    def object(self) -> str | None:
        """Name of its object, likewise."""
        ...

    def to_json(self) -> str:
        """Returns it as stored files have it."""
        ...

    def digest(self) -> str:
        """Returns a short hash of it."""
        ...


class RecordedEnv(gymnasium.Env[dict[str, Any], np.ndarray]):
    """An environment whose episodes `rollouts.rollout` records.

    `reset` takes `options={"scene": scene}`. The `info` of a step has the executed "action",
    "success", and, at the end, the "outcome" (`envs.outcomes`) and perhaps an "error". `metadata`
    has the control rate as "render_fps", Hz.

    Attributes:
        action_entry: The action: its space, unit, frame and entries.
        action_scale: Meaning of an entry of 1, in its unit.
        features: Entries of the observation, by name.
    """

    action_entry: "Entry"
    action_scale: np.ndarray
    features: "Mapping[str, Entry | Feature]"

    @property
    @abstractmethod
    def task_name(self) -> str:
        """Name of the task."""

    @property
    @abstractmethod
    def scene(self) -> StartScene:
        """Scene of the present episode.

        Raises:
            EpisodeOverError: No episode has begun.
        """

    def own_models(self) -> "Mapping[OwnModel, Path]":
        """Returns the models beside the package's that its scenes may have, and their folders.

        Raises:
            ConfigError: A model is not allowed, or has a name that cannot be stored.
        """
        return {}

    @abstractmethod
    def state_digest(self) -> int:
        """Returns a 64-bit hash of the exact state of the simulation.

        Raises:
            EpisodeOverError: No episode has begun.
        """


def recorded(env: gymnasium.Env) -> RecordedEnv:
    """Returns the environment inside Gymnasium's wrappers.

    Raises:
        ConfigError: Its episodes cannot be recorded.
    """
    inner = env.unwrapped
    if isinstance(inner, EnvInterface):
        raise ConfigError(refusal("the environment itself"))
    if not isinstance(inner, RecordedEnv):
        raise ConfigError(
            f"A Fleet-Tools environment is needed, such as gymnasium.make('FleetTools/Hammer-v0'); "
            f"given: {type(inner).__name__}."
        )
    return inner
