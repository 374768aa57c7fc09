"""Sizes and masses that models of a family usually have."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from fleet_tools.assets.families import known_family

if TYPE_CHECKING:
    from fleet_tools.sim.catalog import Kind

WIDER, HEAVIER = 2.0, 4.0
"""Factors of length and mass by which a model may be beyond all that ship, and be usual."""


@dataclass(frozen=True)
class UsualSize:
    """Ranges in which most models are.

    Attributes:
        length: Least and greatest longest side, m.
        mass: Least and greatest mass, kg.
    """

    length: tuple[float, float]
    mass: tuple[float, float]

    @property
    def typical_length(self) -> float:
        """A longest side in the middle of the range, m."""
        return math.sqrt(math.prod(self.length))


ANY: "Mapping[Kind, UsualSize]" = {
    "tool": UsualSize((0.05, 0.6), (0.005, 2.5)),
    "object": UsualSize((0.01, 0.6), (0.001, 10.0)),
}
"""Sizes of families that the package does not have: of things for one hand or for the table."""


@lru_cache
def usual_size(kind: "Kind", family: str) -> UsualSize:
    """Returns the usual size of a family: around all models that ship, if the package has it."""
    import numpy as np

    found = known_family(family)
    if found is None or found.kind != kind:
        return ANY[kind]
    lengths, masses = [], []
    for name in found.catalogue:
        model = found.member(name)
        corners = [p.solid.vertices + link.origin for link in model.links for p in link.parts]
        lengths.append(float(np.ptp(np.concatenate(corners), axis=0).max()))
        masses.append(model.mass)
    return UsualSize(
        (min(lengths) / WIDER, max(lengths) * WIDER), (min(masses) / HEAVIER, max(masses) * HEAVIER)
    )


def within(value: float, bounds: tuple[float, float]) -> bool:
    """Returns whether a value is between two bounds."""
    return bounds[0] <= value <= bounds[1]


def unusual(
    kind: "Kind", family: str, length: float | None = None, mass: float | None = None
) -> list[str]:
    """Returns in what a length, m, or a mass, kg, of a model is unusual, in words."""
    usual, found = usual_size(kind, family), []
    if length is not None and not within(length, usual.length):
        low, high = (f"{1000 * x:.3g}" for x in usual.length)
        side = f"{1000 * length:.3g} mm" if length < 1 else f"{length:.4g} m"
        found.append(
            f"the longest side is {side}, and that of a {kind} of the family "
            f"{family} is usually {low} to {high} mm"
        )
    if mass is not None and not within(mass, usual.mass):
        low, high = (f"{x:.2g}" for x in usual.mass)
        found.append(
            f"the mass is {mass:.3g} kg, and that of a {kind} of the family {family} is usually "
            f"{low} to {high} kg"
        )
    return found
