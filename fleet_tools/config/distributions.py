"""Distributions as values: a number, `{uniform: [low, high]}` or `{choice: [a, b, ...]}`.

A distribution over names is a name or a choice.
"""

from typing import Annotated, Any

import numpy as np
import pydantic

from fleet_tools.config.values import Number, Value


class Uniform(Value):
    """The uniform distribution between two bounds."""

    uniform: tuple[Number, Number]
    """Lower bound, upper bound."""

    @pydantic.model_validator(mode="after")
    def _ordered(self):
        low, high = self.uniform
        if low > high:
            raise ValueError(f"the lower bound comes first: {{uniform: [{high}, {low}]}}")
        return self


class Choice(Value):
    """One of several numbers, with equal probability."""

    choice: Annotated[tuple[Number, ...], pydantic.Field(min_length=1)]
    """The numbers."""


def _kind(data: Any) -> str | None:
    match data:
        case Uniform() | {"uniform": _}:
            return "uniform"
        case Choice() | {"choice": _}:
            return "choice"
        case dict():
            return None
    return "number"


Distribution = Annotated[
    Annotated[Number, pydantic.Tag("number")]
    | Annotated[Uniform, pydantic.Tag("uniform")]
    | Annotated[Choice, pydantic.Tag("choice")],
    pydantic.Discriminator(
        _kind,
        custom_error_type="distribution",
        custom_error_message="expected a number, {uniform: [low, high]} or {choice: [a, b, ...]}",
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
        case str():
            return distribution
    return float(distribution)


def bounds(distribution: Distribution) -> tuple[float, float]:
    """Returns the lowest and the highest number that can be drawn."""
    match distribution:
        case Uniform(uniform=(low, high)):
            return low, high
        case Choice(choice=options):
            return min(options), max(options)
    return float(distribution), float(distribution)
