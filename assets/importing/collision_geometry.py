"""Collision geometry of a body: convex pieces that Drake can make contact with."""

from dataclasses import dataclass

import numpy as np

from fleet_tools.assets.importing.convex_decomposition import convex_pieces
from fleet_tools.assets.importing.convex_hull import convex_hull, triangle_areas
from fleet_tools.assets.importing.enclosed_body import EnclosedBody
from fleet_tools.assets.importing.outer_polytope import outer_polytope
from fleet_tools.assets.importing.settings import GeometrySettings
from fleet_tools.assets.solids import Solid
from fleet_tools.errors import ConfigError

LEAST_THICKNESS = 0.0003
"""Least thickness of a piece that can make contact, m; three times the hydroelastic margin."""


@dataclass(frozen=True)
class CollisionGeometry:
    """Collision geometry of a body.

    Attributes:
        solids: Convex solids, at each of whose vertices three planes meet.
        excess: Largest distance of a solid's vertex from the convex piece that it encloses, m.
        notes: Notes on pieces that were left out.
    """

    solids: tuple[Solid, ...]
    excess: float
    notes: list[str]


def collision_geometry(body: EnclosedBody, settings: GeometrySettings) -> CollisionGeometry:
    """Decomposes a body into convex pieces, and encloses each in a simple polytope.

    Raises:
        ConfigError: The body is too thin for contact.
        MissingLibraryError: The body is not convex, and a library is absent.
    """
    max_pieces = max(1, settings.pieces // len(body.outer))
    pieces = [
        points
        for solid in body.outer
        for points in convex_pieces(solid, max_pieces=max_pieces, concavity=settings.concavity)
    ]
    measured = [(points, _thickness(points)) for points in pieces]
    thick = [(points, thickness) for points, thickness in measured if thickness >= LEAST_THICKNESS]
    thinnest = f"{min(thickness for _, thickness in measured) * 1000:.2g} mm"
    if not thick:
        raise ConfigError(
            f"The mesh is only {thinnest} thick, and contact needs {LEAST_THICKNESS * 1000:g} mm. "
            "Thicken it, for instance with Blender's Solidify modifier, or correct its size with "
            "--length METRES."
        )
    omitted = len(pieces) - len(thick)
    note = f"{omitted} piece(s), as thin as {thinnest}, are seen and weighed, and not felt"
    polytopes = [
        outer_polytope(points, tolerance=settings.tolerance, shortest=min(5e-4, thickness / 3))
        for points, thickness in thick
    ]
    return CollisionGeometry(
        tuple(polytope.solid for polytope in polytopes),
        max(polytope.excess for polytope in polytopes),
        [note] if omitted else [],
    )


def _thickness(points: np.ndarray) -> float:
    """Returns the least width along the normals of the points' hull, m; 0 if they are coplanar."""
    hull = convex_hull(points)
    if hull is None:
        return 0.0
    vectors = triangle_areas(hull.vertices[hull.triangles])
    areas = np.linalg.norm(vectors, axis=1)
    regular = areas > 1e-9 * areas.max()  # slivers have no direction
    normals = np.unique(np.round(vectors[regular] / areas[regular, None], 3), axis=0)
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    heights = points @ normals[:: max(1, len(normals) // 300)].T
    return float(np.ptp(heights, axis=0).min())
