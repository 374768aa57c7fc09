"""What keeps impossible and unbelievable measures from becoming models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np

from ..model import Model

Params = TypeVar("Params")


def require(what: str, params: object, rules: Mapping[str, bool]) -> None:
    """Raises ValueError with the names of the rules that do not hold, and what was given."""
    broken = [rule for rule, holds in rules.items() if not holds]
    if broken:
        raise ValueError(f"not a {what}; wanted: {'; '.join(broken)}; given: {params}")


def draw_within(
    masses: tuple[float, float],
    draw: Callable[[np.random.Generator], Params],
    build: Callable[[Params, str], Model],
    rng: np.random.Generator,
) -> Params:
    """Draws until the model's mass, kg, lies within bounds; RuntimeError after 100 draws."""
    lightest, heaviest = masses
    for _ in range(100):
        params = draw(rng)
        if lightest <= build(params, "draft").mass <= heaviest:
            return params
    raise RuntimeError(f"100 draws gave none between {lightest} and {heaviest} kg")
