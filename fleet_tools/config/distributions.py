"""Distributions as values: a number, `uniform`, `choice` or `one_of`.

A distribution over names is a name or a choice. Here is also the range of every number of a scene,
whether it is given or drawn.
"""

from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import numpy as np
import pydantic

from fleet_tools.config.values import MisfitError, Number, Value
from fleet_tools.errors import shown


class Uniform(Value):
    """The uniform distribution between two bounds."""

    uniform: tuple[Number, Number]
    """Lower bound, upper bound."""

    @pydantic.model_validator(mode="after")
    def _ordered(self):
        low, high = self.uniform
        if low > high:
            raise ValueError(f"expected the lower bound first: {{uniform: [{high}, {low}]}}")
        return self


class Choice(Value):
    """One of several numbers, with equal probability."""

    choice: Annotated[tuple[Number, ...], pydantic.Field(min_length=1)]
    """The numbers."""


class OneOf(Value):
    """The uniform distribution over several intervals: each is as likely as it is long."""

    one_of: Annotated[tuple[tuple[Number, Number], ...], pydantic.Field(min_length=1)]
    """Lower and upper bound of each, in ascending order."""

    @pydantic.model_validator(mode="after")
    def _ordered(self):
        flat = [bound for interval in self.one_of for bound in interval]
        if flat != sorted(flat) or any(low == high for low, high in self.one_of):
            raise ValueError(
                "expected ascending bounds and intervals that do not overlap; given: "
                f"{list(self.one_of)}"
            )
        return self


def _kind(data: Any) -> str | None:
    match data:
        case Uniform() | {"uniform": _}:
            return "uniform"
        case Choice() | {"choice": _}:
            return "choice"
        case OneOf() | {"one_of": _}:
            return "one_of"
        case dict():
            return None
    return "number"


Distribution = Annotated[
    Annotated[Number, pydantic.Tag("number")]
    | Annotated[Uniform, pydantic.Tag("uniform")]
    | Annotated[Choice, pydantic.Tag("choice")]
    | Annotated[OneOf, pydantic.Tag("one_of")],
    pydantic.Discriminator(
        _kind,
        custom_error_type="distribution",
        custom_error_message="expected a number, {uniform: [low, high]}, {choice: [a, b, ...]} or "
        "{one_of: [[low, high], ...]}",
    ),
]


class NameChoice(Value):
    """One of several names, with equal probability."""

    choice: Annotated[tuple[str, ...], pydantic.Field(min_length=1)]
    """The names."""


NameDistribution = str | NameChoice


def sample(
    distribution: Distribution | NameDistribution, generator: np.random.Generator
) -> float | str:
    """Draws a number or a name; every kind consumes exactly one draw of the generator."""
    draw = generator.random()
    match distribution:
        case Uniform(uniform=(low, high)):
            return min(max((1 - draw) * low + draw * high, low), high)
        case Choice(choice=options) | NameChoice(choice=options):
            return options[int(draw * len(options))]
        case OneOf(one_of=several):
            rest = draw * sum(high - low for low, high in several)
            low, high = several[0]
            for low, high in several:
                if rest < high - low:
                    break
                rest -= high - low
            return min(max(low + rest, low), high)
        case str():
            return distribution
    return float(distribution)


def nominal(distribution: Distribution | NameDistribution) -> float | str:
    """Returns the value that replaces a distribution which is switched off."""
    match distribution:
        case Uniform(uniform=(low, high)):
            return min(max(low / 2 + high / 2, low), high)
        case Choice(choice=options) | NameChoice(choice=options):
            return options[0]
        case OneOf(one_of=several):
            return sum(several[0]) / 2
        case str():
            return distribution
    return float(distribution)


def intervals(distribution: Distribution) -> list[tuple[float, float]]:
    """Returns the intervals of numbers that can be drawn."""
    match distribution:
        case Uniform(uniform=interval):
            return [interval]
        case Choice(choice=options):
            return [(option, option) for option in options]
        case OneOf(one_of=several):
            return [*several]
    return [(float(distribution), float(distribution))]


def bounds(distribution: Distribution) -> tuple[float, float]:
    """Returns the lowest and the highest number that can be drawn."""
    lows, highs = zip(*intervals(distribution), strict=True)
    return min(lows), max(highs)


class Range(NamedTuple):
    """The numbers that a quantity may have, bounds included."""

    low: float
    high: float
    unit: str = ""


def _pose(reach_m: float) -> dict[str, Range]:
    return {
        "translation_m": Range(-reach_m, reach_m, " m"),
        "rpy_deg": Range(-360.0, 360.0, " degrees"),
    }


_FACTOR = Range(0.01, 100.0)
_TINT = Range(0.001, 10.0)
_TIME = Range(0, 100_000, " s")


def _force(name: str, unit: str) -> dict[str, Range]:
    return {"start_s": _TIME, "duration_s": _TIME, name: Range(-1000.0, 1000.0, unit)}


DISTURBANCES = ("push", "hand_forces", "object_forces", "depth_error_scale")
"""Fields of a scene that no task file draws."""

RANGES: dict[str, Any] = {
    "initial_joints_rad": Range(-10.0, 10.0, " rad"),
    "tool_in_hand": _pose(0.5),
    "object_pose": _pose(10.0),
    "tool_mass_scale": _FACTOR,
    "object_mass_scale": _FACTOR,
    "tool_friction_scale": _FACTOR,
    "object_friction_scale": _FACTOR,
    "joint_resistance": Range(0.001, 10_000.0, " N or N m"),
    "place": {"distance_m": Range(0.0, 2.0, " m"), "bearing_deg": Range(-360.0, 360.0, " degrees")},
    "cameras": _pose(10.0),
    "tool_tint": _TINT,
    "object_tint": _TINT,
    "table_tint": _TINT,
    "push": {"time_s": _TIME, "translation_m": Range(-10.0, 10.0, " m")},
    "hand_forces": _force("force_N", " N"),
    "object_forces": _force("force_N_per_kg", " N/kg"),
    "depth_error_scale": _FACTOR,
}
"""By field of a scene, the range of all numbers in it; by entry or by key where they differ.

Positions reach as far as cameras see, and farther than any workspace of an arm. The robot's limits
(`fleet_tools.robot.arm_model.require_positions`) are narrower than these of its joints.
"""


def require_range(given: Any, info: pydantic.ValidationInfo) -> Any:
    """Validator of a field of a scene, or of the distributions from which it is drawn.

    Args:
        given: Its value: numbers or distributions, alone or in tuples, mappings and poses.
        info: It has the name of the field.

    Raises:
        MisfitError: A number, or one that can be drawn, is out of its range.
    """
    assert info.field_name is not None
    for place, number, allowed in _numbers(given, RANGES[info.field_name]):
        if not allowed.low <= number <= allowed.high:
            reason = (
                f"expected a number from {allowed.low:.5g} to {allowed.high:.7g}{allowed.unit}; "
                f"given: {shown(number)}"
            )
            raise MisfitError(".".join(map(str, place)), reason)
    return given


def _numbers(given: Any, allowed: Any, place: tuple = ()) -> Iterator[tuple[tuple, float, Range]]:
    """Yields each number of a field, with its place and its range."""
    match given:
        case None | str():  # no push, no place; what the robot's file says
            return
        case Uniform() | Choice() | OneOf():
            for number in {bound: None for each in intervals(given) for bound in each}:
                yield place, number, allowed
        case tuple():
            for i, each in enumerate(given):
                yield from _numbers(each, allowed, (*place, i))
        case dict():
            for name, each in given.items():
                yield from _numbers(each, allowed, (*place, name))
        case Value():
            for name, inner in allowed.items():
                yield from _numbers(getattr(given, name), inner, (*place, name))
        case number:
            yield place, number, allowed
