"""Ranges of a level outside a task's own ranges, so that training never draws from them.

A level names groups of `fleet_tools.config.randomization.Randomization`. Each number is drawn with
the generator, and in the place, that it has in the task, so that all others stay what they are.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import pydantic
from typing_extensions import TypeAliasType

from fleet_tools.config.distributions import (
    Choice,
    Distribution,
    NameChoice,
    OneOf,
    Uniform,
    bounds,
    intervals,
)
from fleet_tools.config.randomization import Randomization
from fleet_tools.config.tasks import TaskConfig
from fleet_tools.config.values import STORED_IF_SET, MisfitError, Positive, Value, parse
from fleet_tools.errors import ConfigError, require_name

SAME = "same"
"""Stands for the range in the task's file."""
TURN_DEG = 360.0

_Drawn = int | float | Uniform | Choice | OneOf

Margin = tuple[Positive, Positive]


class Outside(Value):
    """Numbers outside the task's range; quantities that the task fixes stay.

    Distances from the range are in units of its width: beside 0.8 to 1.2, `above: [0.5, 1]` is 1.4
    to 1.6.
    """

    below: Annotated[Margin | None, STORED_IF_SET] = None
    """Least and largest distance below the range; None for nothing there."""
    above: Annotated[Margin | None, STORED_IF_SET] = None
    """Likewise above it."""

    @pydantic.model_validator(mode="after")
    def _ordered(self):
        given = [margin for margin in (self.below, self.above) if margin is not None]
        if not given or any(near >= far for near, far in given):
            raise ValueError("give below or above, or both, each with the smaller distance first")
        return self

    def of(self, own: Distribution) -> Distribution:
        """Returns the distribution outside a task's own."""
        low, high = bounds(own)
        width, found = high - low, []
        if self.below is not None:
            found.append((low - self.below[1] * width, low - self.below[0] * width))
        if self.above is not None:
            found.append((high + self.above[0] * width, high + self.above[1] * width))
        return OneOf(one_of=tuple(found)) if width else own


def _kind(data: Any) -> str | None:
    match data:
        case str():
            return SAME if data == SAME else None
        case Outside() | {"below": _} | {"above": _}:
            return "outside"
        case list() | tuple():
            return "several"
        case dict() if not {"uniform", "choice", "one_of"} & {*data}:
            return "named"
    return "distribution"


Change = TypeAliasType(
    "Change",
    Annotated[
        Annotated[Literal["same"], pydantic.Tag("same")]
        | Annotated[Outside, pydantic.Tag("outside")]
        | Annotated[Distribution, pydantic.Tag("distribution")]
        | Annotated[tuple["Change", ...], pydantic.Tag("several")]
        | Annotated[dict[str, "Change"], pydantic.Tag("named")],
        pydantic.Discriminator(
            _kind,
            custom_error_type="change",
            custom_error_message="expected 'same', {below: [near, far], above: [near, far]} in "
            "widths of the task's range, a distribution, or a list or a mapping of them",
        ),
    ],
)
"""How a group, or a part of it, is drawn: as in the task (`same`), outside its range, or by a
distribution that shares no number with it. One for a whole group is for each of its numbers."""


def changed_task(task: TaskConfig, changes: Mapping[str, Any], level: str) -> TaskConfig:
    """Returns a task with other ranges.

    Args:
        task: The task.
        changes: `Change` by group of randomization.
        level: Name of the level, for error messages.

    Raises:
        UnknownNameError: A group, or a part of one, does not exist.
        ConfigError: A changed range has numbers of the task's own, or impossible ones.
    """
    if not changes:
        return task
    own, ranges = task.randomization, {}
    for group, change in changes.items():
        require_name("group of randomization", group, Randomization.model_fields)
        try:
            ranges[group] = _changed(getattr(own, group), change, group)
        except MisfitError as error:
            raise ConfigError(f"The level {level!r} of the task {task.name!r}: {error}.") from None
    content = {name: ranges.get(name, getattr(own, name)) for name in Randomization.model_fields}
    source = f"The randomization of the task {task.name!r} at the level {level!r}"
    return task.model_copy(update={"randomization": parse(Randomization, content, source)})


def _changed(own: Any, change: Any, place: str) -> Any:
    if change == SAME:
        return own
    if own is None or isinstance(own, str | NameChoice):
        raise MisfitError(place, "the task draws no numbers here, so a level cannot change them")
    if isinstance(own, _Drawn):
        return _outside(own, change, place)
    if isinstance(own, tuple):
        each = change if isinstance(change, tuple) else (change,) * len(own)
        if len(each) != len(own):
            raise MisfitError(place, f"expected {len(own)} entries; given: {len(each)}")
        pairs = enumerate(zip(own, each, strict=True))
        return tuple(_changed(mine, theirs, f"{place}.{k}") for k, (mine, theirs) in pairs)
    parts = dict(own)
    named = change if isinstance(change, Mapping) else dict.fromkeys(parts, change)
    if isinstance(own, Value):
        for name in named:
            require_name(f"part of {place}", name, parts)
    known = {name: each for name, each in named.items() if name in parts}  # a task's own joints
    changed = {name: _changed(parts[name], each, f"{place}.{name}") for name, each in known.items()}
    return own.model_copy(update=changed) if isinstance(own, Value) else {**own, **changed}


def _outside(own: Distribution, change: Any, place: str) -> Distribution:
    low, high = bounds(own)
    turns = (0.0, -TURN_DEG, TURN_DEG) if "_deg" in place else (0.0,)
    if isinstance(change, Outside):
        if low == high or (len(turns) > 1 and high - low >= TURN_DEG):  # nothing is outside
            return own
        change = change.of(own)
    elif not isinstance(change, _Drawn):
        raise MisfitError(place, "expected a distribution, or {below: ..., above: ...}")
    for first, last in intervals(change):
        for turn in turns:
            if first + turn <= high and last + turn >= low:
                raise MisfitError(
                    place,
                    f"{_interval(first, last)} overlaps the task's own range, "
                    f"{_interval(low, high)}; give numbers outside of it",
                )
    return change


def _interval(low: float, high: float) -> str:
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"
