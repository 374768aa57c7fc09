"""Points of a surface: ray hits, nearest points, opposite points, flat faces.

Points and surfaces are in one frame and unit. Surfaces face outward. A face is the connected
triangles that lie in the plane of one of them, within tolerances that allow for the noise of scans.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from fleet_tools.assets.solids import Solid, area_vectors

TOUCHING = 1e-6
"""Distance, relative to the surface's longest side, within which points count as the same."""

FLAT_DEG = 5.0
"""Largest angle between the normals of a face's triangles and the given one's."""

FLAT = 1e-3
"""Largest distance of a face's corners from the plane of the given triangle, relative to size."""

Snap = Literal["surface", "vertex", "edge", "face centre"]
"""Meaning of a click: the point itself, or the nearest of its kind on the face."""


@dataclass(frozen=True, eq=False)
class Hit:
    """A point of a surface.

    Attributes:
        point: Its position, (3,).
        triangle: Index of a triangle that has it, or of the one from which it was snapped.
    """

    point: np.ndarray
    triangle: int


def crossings(
    surface: Solid, origin: np.ndarray, direction: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns distances (n,), in order, at which a ray crosses a surface, and the triangles (n,).

    Source: Moeller and Trumbore, "Fast, Minimum Storage Ray-Triangle Intersection", Journal of
    Graphics Tools, 1997; all triangles at once.

    Args:
        surface: The surface.
        origin: Where the ray begins, (3,).
        direction: Where it goes, (3,), of any length but 0.
    """
    direction = direction / np.linalg.norm(direction)
    a, b, c = np.moveaxis(surface.vertices[surface.triangles], 1, 0)
    ab, ac, ao = b - a, c - a, origin - a
    across = np.cross(direction, ac)
    determinant = (ab * across).sum(axis=1)
    beside = np.cross(ao, ab)
    area = np.linalg.norm(ab, axis=1) * np.linalg.norm(ac, axis=1)
    crossed = np.abs(determinant) > 1e-12 * area  # others lie along the ray
    inverse = np.divide(1.0, determinant, out=np.zeros_like(determinant), where=crossed)
    u = (ao * across).sum(axis=1) * inverse
    v = beside @ direction * inverse
    t = (ac * beside).sum(axis=1) * inverse
    slack = 1e-9  # so that no ray passes between two triangles
    (met,) = np.nonzero(crossed & (u >= -slack) & (v >= -slack) & (u + v <= 1 + slack) & (t >= 0))
    met = met[np.argsort(t[met], kind="stable")]
    return t[met], met


def pick(surface: Solid, origin: np.ndarray, direction: np.ndarray) -> Hit | None:
    """Returns the first point where a ray meets a surface, see `crossings`; None if none."""
    distances, triangles = crossings(surface, origin, direction)
    if not len(distances):
        return None
    unit = direction / np.linalg.norm(direction)
    return Hit(origin + distances[0] * unit, int(triangles[0]))


def nearest(surface: Solid, point: np.ndarray) -> Hit:
    """Returns the point of a surface that is nearest to a point, (3,)."""
    closest, distances = _closest(surface, point)
    triangle = int(distances.argmin())
    return Hit(closest[triangle], triangle)


def outward(surface: Solid, hit: Hit) -> np.ndarray:
    """Returns the direction away from a surface at a point of it, a unit vector (3,).

    On an edge or a corner it is the mean direction of the faces that meet there, each counted once
    however it is divided into triangles. A face's direction is the mean of its triangles', so that
    the noise of scans does not turn it.
    """
    _, distances = _closest(surface, hit.point)
    (touching,) = np.nonzero(distances <= TOUCHING * size(surface))
    seen: set[int] = set()
    mean = np.zeros(3)
    for triangle in touching.tolist():
        if triangle not in seen:
            face = face_of(surface, triangle)
            seen.update(face.tolist())
            mean += face_normal(surface, face)
    length = np.linalg.norm(mean)
    return mean / length if length > 1e-3 else normals(surface)[hit.triangle]


def behind(surface: Solid, hit: Hit) -> Hit | None:
    """Returns the point where a line straight into the body comes out; None if it does not."""
    inward = -outward(surface, hit)
    steps, triangles, facing = _ahead(surface, hit, inward)
    depth = 1  # parts may overlap
    for step, triangle, sign in zip(steps, triangles, facing, strict=True):
        depth -= int(sign)
        if depth == 0:
            return Hit(hit.point + step * inward, int(triangle))
    return None


def across(surface: Solid, hit: Hit) -> Hit | None:
    """Returns the point where a line straight away from the body meets it again, as in a jaw."""
    away = outward(surface, hit)
    steps, triangles, _ = _ahead(surface, hit, away)
    return Hit(hit.point + steps[0] * away, int(triangles[0])) if len(steps) else None


def _ahead(
    surface: Solid, hit: Hit, direction: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns distances, triangles and the sides that a line meets after a point of the surface.

    A side is 1 where the line leaves the body, -1 where it enters. Crossings at an edge, where it
    meets several triangles in one point, count once.
    """
    steps, triangles = crossings(surface, hit.point, direction)
    facing = np.sign(normals(surface)[triangles] @ direction)
    tolerance = TOUCHING * size(surface)
    same = (np.diff(steps, prepend=-np.inf) <= tolerance) & (np.diff(facing, prepend=0) == 0)
    keep = (steps > tolerance) & (facing != 0) & ~same
    return steps[keep], triangles[keep], facing[keep]


def _closest(surface: Solid, point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns each triangle's point that is nearest to a point, (m, 3), and its distance (m,)."""
    from trimesh.triangles import closest_point

    # Its tolerances are absolute, for products of four lengths: small triangles are scaled up.
    scale = 2.0 ** (14 - np.ceil(np.log2(max(size(surface), 1e-100))))
    corners = scale * surface.vertices[surface.triangles]
    closest = closest_point(corners, np.broadcast_to(scale * point, (len(corners), 3))) / scale
    return closest, np.linalg.norm(closest - point, axis=1)


# --- Faces: what looks flat -------------------------------------------------------------------


def size(surface: Solid) -> float:
    """Returns the longest side of a surface's bounding box."""
    return float(np.ptp(surface.vertices, axis=0).max())


def normals(surface: Solid) -> np.ndarray:
    """Returns the unit normals of a surface's triangles, (m, 3); zero where they have no area."""
    cross = area_vectors(surface.vertices[surface.triangles])
    return cross / np.maximum(np.linalg.norm(cross, axis=1, keepdims=True), 1e-300)


def face_of(surface: Solid, triangle: int) -> np.ndarray:
    """Returns the indices (k,) of the triangles of the face that a triangle belongs to."""
    directions = normals(surface)
    normal = directions[triangle]
    corners = surface.vertices[surface.triangles]
    height = np.abs((corners - corners[triangle, 0]) @ normal).max(axis=1)
    flat = (height <= FLAT * size(surface)) & (directions @ normal >= np.cos(np.radians(FLAT_DEG)))
    flat[triangle] = True
    (members,) = np.nonzero(flat)
    return members[_connected(surface.triangles[members], members == triangle)]


def outline(surface: Solid, face: np.ndarray) -> np.ndarray:
    """Returns the boundary edges (n, 2) of a face: edges of only one of its triangles."""
    triangles = surface.triangles[face]
    edges = np.sort(triangles[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=1)
    edges, counts = np.unique(edges, axis=0, return_counts=True)
    alone = edges[counts == 1]
    return alone if len(alone) else edges


def face_centre(surface: Solid, face: np.ndarray) -> np.ndarray:
    """Returns the centroid (3,) of a face; it may lie in a notch or a hole."""
    triangles = surface.triangles[face]
    area = np.linalg.norm(area_vectors(surface.vertices[triangles]), axis=1)
    return area @ surface.vertices[triangles].mean(axis=1) / area.sum()


def face_normal(surface: Solid, face: np.ndarray) -> np.ndarray:
    """Returns the mean direction of a face by area, a unit vector (3,)."""
    cross = area_vectors(surface.vertices[surface.triangles[face]]).sum(axis=0)
    return cross / np.linalg.norm(cross)


def _connected(triangles: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Returns which triangles hang together, by common corners, with the one that `start` marks."""
    _, corners = np.unique(triangles, return_inverse=True)
    corners = corners.reshape(triangles.shape)
    count, nodes = len(triangles), len(triangles) + corners.max() + 1
    links = (np.repeat(np.arange(count), 3), count + corners.ravel())
    graph = coo_array((np.ones(3 * count), links), shape=(nodes, nodes))
    _, labels = connected_components(graph, directed=False)
    return labels[:count] == labels[:count][start]


# --- Snapping: a click means a corner, an edge or the middle of the face that it is on --------


def snapped(surface: Solid, hit: Hit, snap: Snap) -> Hit:
    """Returns a hit after snapping, on the same surface; snapping twice is snapping once."""
    if snap == "surface":
        return hit
    face = face_of(surface, hit.triangle)
    edges = surface.vertices[outline(surface, face)]
    match snap:
        case "vertex":
            corners = edges.reshape(-1, 3)
            point = corners[np.linalg.norm(corners - hit.point, axis=1).argmin()]
        case "edge":
            point = _nearest_on_edges(edges, hit.point)
        case "face centre":
            flat = Solid(surface.vertices, surface.triangles[face])
            point = nearest(flat, face_centre(surface, face)).point
    return Hit(point, hit.triangle)


def _nearest_on_edges(edges: np.ndarray, point: np.ndarray) -> np.ndarray:
    """Returns the point of edges, (n, 2, 3), that is nearest to a point, (3,)."""
    start, along = edges[:, 0], edges[:, 1] - edges[:, 0]
    squares = np.maximum((along**2).sum(axis=1), 1e-300)
    t = np.clip(((point - start) * along).sum(axis=1) / squares, 0.0, 1.0)
    points = start + t[:, None] * along
    return points[np.linalg.norm(points - point, axis=1).argmin()]
