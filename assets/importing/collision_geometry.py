"""Collision geometry of a body: convex pieces that Drake can make contact with."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fleet_tools.assets.importing.convex_decomposition import convex_pieces
from fleet_tools.assets.importing.convex_hull import convex_hull, triangle_areas
from fleet_tools.assets.importing.enclosed_body import EnclosedBody
from fleet_tools.assets.importing.fidelity import deviations
from fleet_tools.assets.importing.outer_polytope import Polytope, outer_polytope
from fleet_tools.assets.importing.settings import GeometrySettings
from fleet_tools.assets.model_description import Position
from fleet_tools.assets.solids import Solid
from fleet_tools.errors import ConfigError

LEAST_THICKNESS = 0.0003
"""Least thickness of a piece that can make contact, m; three times the hydroelastic margin."""


NUMBERS = (8, 16, 32)
"""Numbers of pieces that are tried, until the geometry is close enough to the mesh near the
keypoints."""

COARSE, FINE = 20, 32
"""Largest number of planes of a piece, and of one that would exceed the fidelity with so few."""


@dataclass(frozen=True)
class CollisionGeometry:
    """Collision geometry of a body.

    Attributes:
        solids: Convex solids, at each of whose vertices three planes meet.
        excess: Largest distance of a solid's vertex from the convex piece that it encloses, m.
        deviations: Distance from the mesh near each keypoint, m, by its name (`fidelity`).
        notes: Notes on pieces that were left out.
    """

    solids: tuple[Solid, ...]
    excess: float
    deviations: dict[str, float]
    notes: list[str]

    @property
    def deviation(self) -> float:
        """Largest distance from the mesh near the keypoints, m."""
        return max(self.deviations.values(), default=0.0)


def collision_geometry(
    body: EnclosedBody, keypoints: Mapping[str, Position], settings: GeometrySettings
) -> CollisionGeometry:
    """Decomposes a body into as many convex pieces as fit it well near its keypoints.

    Args:
        body: The body.
        keypoints: Positions of the keypoints, m, by name.
        settings: Settings of the geometry.

    Raises:
        ConfigError: The body is too thin for contact.
        MissingLibraryError: The body is not convex, and a library is absent.
    """
    best = None
    for number in sorted({min(number, settings.pieces) for number in NUMBERS}):
        found = _geometry_of_pieces(body, keypoints, settings, number)
        if best is None or found.deviation < 0.9 * best.deviation:
            best = found
        if best.deviation <= settings.fidelity or len(found.solids) < 0.75 * number:
            break  # it fits, or more pieces would not make it fit
    assert best is not None
    return best


def _geometry_of_pieces(
    body: EnclosedBody, keypoints: Mapping[str, Position], settings: GeometrySettings, number: int
) -> CollisionGeometry:
    """Decomposes a body into a number of convex pieces, and encloses each in a simple polytope."""
    modelled = len(body.parts) <= settings.pieces
    pieces = convex_pieces(
        body.parts if modelled else body.outer,
        max_pieces=number,
        concavity=settings.concavity,
        keypoints=np.array([*keypoints.values()]).reshape(-1, 3),
    )
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
    polytopes = [_enclosing(points, thickness, settings) for points, thickness in thick]
    solids = tuple(polytope.solid for polytope in polytopes)
    return CollisionGeometry(
        solids,
        max(polytope.excess for polytope in polytopes),
        deviations(body, solids, keypoints),
        [note] if omitted else [],
    )


def _enclosing(points: np.ndarray, thickness: float, settings: GeometrySettings) -> Polytope:
    """Returns the tightest of the polytopes, with few planes or more, that Drake can use."""
    from pydrake.geometry import Convex

    from fleet_tools.sim.contact_meshes import mend_alone
    from fleet_tools.sim.world import HYDROELASTIC_MARGIN

    best = outer_polytope(
        points, tolerance=settings.tolerance, shortest=min(5e-4, thickness / 3), max_planes=COARSE
    )
    for shortest in (3e-4, 2e-4):
        if best.excess <= settings.fidelity:
            break
        fine = outer_polytope(
            points,
            tolerance=settings.fidelity,
            shortest=min(shortest, thickness / 3),
            max_planes=FINE,
        )
        mended = mend_alone(Convex(fine.solid.vertices.T, "piece"), HYDROELASTIC_MARGIN)
        if fine.excess < best.excess and not (mended.without_margin or mended.error):
            best = fine
    return best


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
