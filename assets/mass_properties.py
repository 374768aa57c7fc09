"""Mass, centre of mass and inertia of homogeneous solids."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleet_tools.assets.solids import Solid


@dataclass(frozen=True)
class MassProperties:
    """Mass properties of a rigid body.

    Attributes:
        mass: Mass, kg.
        centre: Centre of mass, (3,), m.
        inertia: Inertia about the centre of mass, (3, 3), kg m^2.
    """

    mass: float
    centre: np.ndarray
    inertia: np.ndarray


def mass_properties(solid: Solid, density: float) -> MassProperties:
    """Returns the exact mass properties of a homogeneous solid.

    They are sums over the signed tetrahedra between its triangles and the origin.

    Args:
        solid: The solid.
        density: Density, kg/m^3.
    """
    corners = solid.vertices[solid.triangles]  # (m, 3 corners, 3)
    masses = density * np.linalg.det(corners) / 6  # (m,)
    sums = corners.sum(axis=1)  # (m, 3)
    mass = masses.sum()
    centre = masses @ sums / 4 / mass
    second = np.einsum("t,tki,tkj->ij", masses / 20, corners, corners)
    second += np.einsum("t,ti,tj->ij", masses / 20, sums, sums)
    return MassProperties(mass, centre, _inertia(second - mass * np.outer(centre, centre)))


def combined(bodies: Sequence[MassProperties]) -> MassProperties:
    """Returns the mass properties of bodies that are joined rigidly."""
    mass = sum(body.mass for body in bodies)
    centre = sum((body.mass * body.centre for body in bodies), np.zeros(3)) / mass
    inertia = np.zeros((3, 3))
    for body in bodies:
        arm = body.centre - centre
        inertia = inertia + body.inertia + _inertia(body.mass * np.outer(arm, arm))
    return MassProperties(mass, centre, inertia)


def _inertia(second_moment: np.ndarray) -> np.ndarray:
    return np.trace(second_moment) * np.eye(3) - second_moment
