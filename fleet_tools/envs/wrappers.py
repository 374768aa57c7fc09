"""Inverts Gymnasium's action wrappers, and checks that wrappers keep a policy's inputs.

A policy of this package acts in the units of the environment, whatever wraps it. So its actions go
backwards through the wrappers: each is turned into the one that the wrapper makes it of. A wrapper
for which that cannot be known is refused by its name.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TransformAction

from fleet_tools.errors import ConfigError

if TYPE_CHECKING:
    from fleet_tools.envs.recorded_env import EnvInterface

Invert = Callable[[Any], Any]

REVERT = "revert_action"
"""Method of wrappers that can be inverted, as Gymnasium calls it: from an action of the environment
inside to one that the wrapper takes."""

_REPEATING = ("RepeatAction", "MaxAndSkipObservation", "AtariPreprocessing")
"""Gymnasium's wrappers that run several steps for one; nothing else tells them from others."""

_PROBES = np.array([0.0, 1.0, 0.5, 0.31, 0.83])
"""Points at which a function is tested for being affine, as fractions of its range."""
_AFFINE_TOLERANCE = 1e-5
"""Error of single-precision numbers, as a fraction of the range."""


class ThroughWrappers:
    """Converts an environment's actions to actions of its outermost wrapper.

    The wrapper's function is asked, so that the executed action is the nearest to the meant one
    that the wrapper's numbers allow. These are the same bits without a wrapper of actions, with
    `ClipAction` and with `RescaleAction` to [-2^n, 2^n], and within the spacing of the wrapper's
    numbers otherwise. What lies beyond the wrapper's space is clipped to it.

    Args:
        env: An environment, wrapped or not, or its interface; None for one without wrappers.

    Raises:
        ConfigError: A wrapper cannot be inverted; the message names it.
    """

    def __init__(self, env: "gymnasium.Env | EnvInterface | None") -> None:
        require_single_steps(env)
        inversions = [_inversion(wrapper) for wrapper in _wrappers(env)]
        self._inversions = [each for each in reversed(inversions) if each is not None]

    def __call__(self, action: np.ndarray) -> Any:
        """Returns the action for `env.step`.

        Args:
            action: The environment's own action.
        """
        for invert in self._inversions:
            action = invert(action)
        return action


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


class _Affine:
    """The inverse of a function that is affine in each entry.

    Args:
        function: The function.
        slope, offset: What it is: slope * x + offset.
        space: Where its arguments lie.
    """

    def __init__(
        self, function: Invert, slope: np.ndarray, offset: np.ndarray, space: spaces.Box
    ) -> None:
        self._function, self._slope, self._offset = function, slope, offset
        self._space = space

    def __call__(self, action: np.ndarray) -> np.ndarray:
        space, meant = self._space, np.asarray(action, float)
        exact = ((meant - self._offset) / self._slope).astype(space.dtype)
        near = [exact, np.nextafter(exact, space.low), np.nextafter(exact, space.high)]
        near = np.clip(near, space.low, space.high)
        errors = [np.abs(np.asarray(self._function(each), float) - meant) for each in near]
        return np.take_along_axis(near, np.argmin(errors, axis=0)[None], axis=0)[0]


def _wrappers(env: Any) -> Iterator[gymnasium.Wrapper]:
    """Yields the wrappers of an environment, the outermost one first."""
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env


def _inversion(wrapper: gymnasium.Wrapper) -> Invert | None:
    """Returns what turns an action inside of a wrapper into the one outside; None for the same.

    Raises:
        ConfigError: It cannot be known.
    """
    if hasattr(type(wrapper), REVERT):
        return getattr(wrapper, REVERT)
    if isinstance(wrapper, TransformAction):
        return _inverted(wrapper)
    changes_space = wrapper.action_space != wrapper.env.action_space
    if isinstance(wrapper, gymnasium.ActionWrapper) or changes_space:
        raise _refusal(wrapper, "its mapping of actions is unknown")
    return None


def _inverted(wrapper: gymnasium.ActionWrapper) -> Invert | None:
    inner, outer = wrapper.env.action_space, wrapper.action_space
    if (
        not isinstance(inner, spaces.Box)
        or not isinstance(outer, spaces.Box)
        or inner.shape != outer.shape
        or outer.dtype.kind != "f"
    ):
        raise _refusal(wrapper, f"it turns {outer} into {inner}")
    low = np.where(np.isfinite(outer.low), outer.low, inner.low).astype(float)
    high = np.where(np.isfinite(outer.high), outer.high, inner.high).astype(float)
    # Each entry at another fraction of its range, so that an entry that depends on others shows.
    fractions = [np.resize(np.roll(_PROBES, -k), low.size).reshape(low.shape) for k in range(5)]
    given = [(low + share * (high - low)).astype(outer.dtype) for share in (0.0, 1.0, *fractions)]
    try:
        made = [np.asarray(wrapper.action(each.copy()), float) for each in given]
    except Exception as error:
        raise _refusal(wrapper, f"its function raises {type(error).__name__}: {error}") from error
    if any(out.shape != inner.shape for out in made):
        raise _refusal(wrapper, f"its function does not return actions of shape {inner.shape}")
    if all(np.array_equal(each, out) for each, out in zip(given, made, strict=True)):
        return None
    with np.errstate(all="ignore"):
        slope = (made[1] - made[0]) / (high - low)
        offset = made[0] - slope * low
        errors = [
            np.abs(slope * each + offset - out) for each, out in zip(given, made, strict=True)
        ]
        affine = np.max(errors, axis=0) <= _AFFINE_TOLERANCE * np.abs(made[1] - made[0])
    if not (affine & (slope != 0)).all():
        raise _refusal(wrapper, "its function is not affine in each entry")
    return _Affine(wrapper.action, slope, offset, outer)


def _refusal(wrapper: gymnasium.Wrapper, reason: str) -> ConfigError:
    return ConfigError(
        f"No policy of this package can act through {_name(wrapper)}: {reason}. Leave it out, or "
        f"give its class a method {REVERT}(action), the inverse of its `action`."
    )


def _name(wrapper: gymnasium.Wrapper) -> str:
    return f"the wrapper {type(wrapper).__name__}"
