"""The interface of environments whose episodes are recorded, for any simulator.

`RecordedEnv` is what the package needs of an environment. `EnvInterface` is what a policy may know
of it before it acts, as a value without a simulation.
"""

import copy
import weakref
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, cast

import gymnasium
import numpy as np
from gymnasium import spaces

from fleet_tools.envs.array_spec import ArraySpec
from fleet_tools.errors import ConfigError

if TYPE_CHECKING:
    from fleet_tools.sim.own_models import OwnModel


_KEPT = ("spec", "action_space", "observation_space", "_np_random", "_np_random_seed")
"""Attributes that a copy has like the original: the generators' states, and Gymnasium's spec."""


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

    It is copied and pickled as its arguments and its state. The copy is made anew and continues the
    episode bit for bit, with the generators of the environment and of its spaces. Viewers, watchers
    and attributes that others have set stay behind.

    Attributes:
        action_spec: The action.
        action_scale: Meaning of an entry of 1 of the action, in its unit.
        features: Entries of the observation, by name.
        observed: The last observation, as it was returned; empty if nobody keeps it.
    """

    action_spec: ArraySpec
    action_scale: np.ndarray
    features: Mapping[str, ArraySpec]
    observed: Mapping[str, np.ndarray] = {}

    _arguments: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Keeps the arguments, of which copies are made."""
        made = super().__new__(cls)
        made._arguments = args, kwargs
        _environments.append(weakref.ref(made, _environments.remove))
        return made

    def __reduce__(self) -> tuple:
        """Returns how a copy is made, see the class.

        Raises:
            EpisodeOverError: The episode ended in an error, from which nothing continues.
        """
        kept = {name: getattr(self, name) for name in _KEPT}
        return _remade, (type(self), self._arguments, self._episode_state(), kept)

    @abstractmethod
    def _episode_state(self) -> Any:
        """Returns what `_continue_from` takes; None if no episode has begun.

        Raises:
            EpisodeOverError: Nothing can continue from it.
        """

    @abstractmethod
    def _continue_from(self, state: Any) -> None:
        """Continues the episode of another environment that was made in the same way.

        Raises:
            ConfigError, SimulationError: It cannot be continued here.
        """

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

    def steps_at_most(self, own: int) -> int:
        """Returns the time limit of an episode, in steps.

        Args:
            own: The task's own, which `gymnasium.make(..., max_episode_steps=...)` can shorten.
        """
        given = self.spec.max_episode_steps if self.spec is not None else None
        return own if given is None else min(own, given)

    @abstractmethod
    def end_by_time_limit(self) -> str:
        """Ends a running episode, for wrappers that limit time; returns its outcome.

        Raises:
            EpisodeOverError: No episode has begun.
        """


@dataclass(frozen=True, eq=False)
class EnvInterface:
    """The interface of an environment, which other processes can be sent.

    A factory of policies takes it where it would take the environment; what it asks for is found
    under the same names.

    Attributes:
        task: Name of the task.
        observation_space, action_space: The spaces.
        features: Entries of the observation, by name.
        action_spec: The action.
        action_scale: Meaning of an entry of 1 of the action, in its unit.
        metadata: Gymnasium's, with the control rate as "render_fps", Hz.
    """

    task: str
    observation_space: spaces.Dict
    action_space: spaces.Box
    features: Mapping[str, ArraySpec]
    action_spec: ArraySpec
    action_scale: np.ndarray
    metadata: Mapping[str, Any]

    @property
    def unwrapped(self) -> "EnvInterface":
        """Itself, as an environment without wrappers has it."""
        return self

    def get_wrapper_attr(self, name: str) -> Any:
        """Returns an attribute, as Gymnasium's wrappers do."""
        return getattr(self, name)

    def __getattr__(self, name: str) -> Any:
        """Says that there is no more to know.

        Raises:
            AttributeError: Always.
        """
        raise AttributeError(refusal(repr(name)))


_environments: list[weakref.ref[RecordedEnv]] = []
"""All environments of this process."""


def observer_of(observation: Mapping[str, np.ndarray]) -> RecordedEnv | None:
    """Returns the environment whose last observation this is; None where it is a copy, or older."""
    for reference in tuple(_environments):
        env = reference()
        if env is not None and any(
            observation.get(name) is array for name, array in env.observed.items()
        ):
            return env
    return None


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
            "Expected a Fleet-Tools environment, such as gymnasium.make('FleetTools/Hammer-v0'); "
            f"given: {type(inner).__name__}."
        )
    return inner


def refusal(what: str) -> str:
    """Returns why a policy is not given something of its environment."""
    known = ", ".join(EnvInterface.__dataclass_fields__)
    return (
        f"In the track of observations a policy is given no environment, only its {known}. This "
        f"one asks for {what}. Act on the observations, or evaluate with --track privileged."
    )


def interface_of(env: "gymnasium.Env | EnvInterface") -> EnvInterface:
    """Returns the interface of an environment of this package.

    Raises:
        ConfigError: Episodes of it cannot be recorded.
    """
    if isinstance(env, EnvInterface):
        return env
    inner = recorded(env)
    return EnvInterface(
        task=inner.task_name,
        observation_space=cast(spaces.Dict, inner.observation_space),
        action_space=cast(spaces.Box, inner.action_space),
        features=dict(inner.features),
        action_spec=inner.action_spec,
        action_scale=inner.action_scale.copy(),
        metadata=dict(inner.metadata),
    )


def _remade(
    env_class: type[RecordedEnv],
    arguments: tuple[tuple[Any, ...], dict[str, Any]],
    state: Any,
    kept: dict[str, Any],
) -> RecordedEnv:
    args, kwargs = arguments
    env = env_class(*args, **kwargs)
    if state is not None:
        env._continue_from(state)
    vars(env).update(copy.deepcopy(kept))  # a shallow copy has generators of its own, too
    return env
