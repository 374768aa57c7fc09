"""Checks that Gymnasium's wrappers keep a policy's inputs and actions.

A policy of this package acts in the units of the environment, whatever wraps it. A wrapper that
changes actions is refused by its name.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import gymnasium
from gymnasium import spaces

from fleet_tools.errors import ConfigError

if TYPE_CHECKING:
    from fleet_tools.envs.recorded_env import EnvInterface

_REPEATING = ("RepeatAction", "MaxAndSkipObservation", "AtariPreprocessing")
"""Gymnasium's wrappers that run several steps for one; nothing else tells them from others."""


def require_own_actions(env: "gymnasium.Env | EnvInterface | None") -> None:
    """Checks that the environment executes the actions that its outermost wrapper is given.

    Args:
        env: An environment, wrapped or not, or its interface; None for one without wrappers.

    Raises:
        ConfigError: A wrapper changes actions, or runs several steps for one; the message names it.
    """
    require_single_steps(env)
    for wrapper in _wrappers(env):
        changes_space = wrapper.action_space != wrapper.env.action_space
        if isinstance(wrapper, gymnasium.ActionWrapper) or changes_space:
            raise ConfigError(
                f"No policy of this package can act through {_name(wrapper)}, which changes "
                "actions. Leave this wrapper out."
            )


def require_entries(env: "gymnasium.Env | EnvInterface", names: Iterable[str] = ()) -> None:
    """Checks that entries of an observation come through the wrappers in their own space.

    Their values may be others, such as delayed or noisy ones: that is what a wrapper is for.

    Args:
        env: An environment, wrapped or not, or its interface.
        names: The entries that are read; those that the environment does not have are ignored.

    Raises:
        ConfigError: A wrapper removes one, gives it another space, or makes observations something
            else than a mapping of entries; the message names it.
    """
    names = list(names)
    for wrapper in reversed(list(_wrappers(env))):
        inner, outer = wrapper.env.observation_space, wrapper.observation_space
        if not isinstance(inner, spaces.Dict):
            continue
        if not isinstance(outer, spaces.Dict):
            raise ConfigError(
                f"Through {_name(wrapper)} an observation is a {type(outer).__name__}, not a "
                f"mapping of the environment's entries. Leave this wrapper out."
            )
        for name in names:
            if name in inner.spaces and outer.spaces.get(name) != inner[name]:
                there = f"in {outer[name]}" if name in outer.spaces else "missing"
                raise ConfigError(
                    f"Through {_name(wrapper)} the entry {name!r} of an observation is {there}, "
                    f"but the policy reads it in {inner[name]}. Leave this wrapper out."
                )


def require_single_steps(env: "gymnasium.Env | EnvInterface | None") -> None:
    """Checks that a step of the wrapped environment is one of the environment itself.

    Raises:
        ConfigError: A wrapper runs several; the message names it.
    """
    for wrapper in _wrappers(env):
        if any(each.__name__ in _REPEATING for each in type(wrapper).__mro__):
            raise ConfigError(
                f"{_name(wrapper)} runs several control steps for one, but policies and episodes "
                "of this package need every step. Leave this wrapper out."
            )


def _wrappers(env: Any) -> Iterator[gymnasium.Wrapper]:
    """Yields the wrappers of an environment, the outermost one first."""
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env


def _name(wrapper: gymnasium.Wrapper) -> str:
    return f"the wrapper {type(wrapper).__name__}"
