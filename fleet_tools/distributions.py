"""Distributions as values: a number, `{uniform: [low, high]}` or `{choice: [a, b, ...]}`."""

from typing import Annotated, Any

import numpy as np
import pydantic

from fleet_tools.values import Value


class Uniform(Value):
    """Every number between two bounds, equally likely."""

    uniform: tuple[float, float]

    @pydantic.model_validator(mode="after")
    def _ordered(self):
        low, high = self.uniform
        if low > high:
            raise ValueError(f"the lower bound comes first: {{uniform: [{high}, {low}]}}")
        return self


class Choice(Value):
    """One of some numbers, equally likely."""

    choice: Annotated[tuple[float, ...], pydantic.Field(min_length=1)]


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
    Annotated[float, pydantic.Tag("number")]
    | Annotated[Uniform, pydantic.Tag("uniform")]
    | Annotated[Choice, pydantic.Tag("choice")],
    pydantic.Discriminator(
        _kind,
        custom_error_type="distribution",
        custom_error_message="expected a number, {uniform: [low, high]} or {choice: [a, b, ...]}",
    ),
]


def sample(distribution: Distribution, generator: np.random.Generator) -> float:
    """Draws one number. Every kind consumes exactly one draw of the generator."""
    draw = generator.random()
    match distribution:
        case Uniform(uniform=(low, high)):
            return low + (high - low) * draw
        case Choice(choice=options):
            return options[int(draw * len(options))]
    return float(distribution)


def nominal(distribution: Distribution) -> float:
    """The number that stands for the distribution when it is switched off."""
    match distribution:
        case Uniform(uniform=(low, high)):
            return (low + high) / 2
        case Choice(choice=options):
            return options[0]
    return float(distribution)
