"""What a policy may know of its environment before it acts, as a value without a simulation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium import spaces

from fleet_tools.envs.array_spec import ArraySpec


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
    from fleet_tools.envs.recorded import recorded

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
