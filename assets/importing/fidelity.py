"""Fidelity of collision geometry where it matters: near the keypoints of a model."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fleet_tools.assets.importing.convex_hull import triangle_areas
from fleet_tools.assets.importing.enclosed_body import EnclosedBody, winding_numbers
from fleet_tools.assets.model_description import Position
from fleet_tools.assets.solids import Solid

REACH = 0.015
"""Distance beyond the nearest point of the mesh at which a point is no longer near a keypoint, m;
near the middle of a jaw are its pads."""

SPACING = 0.002
"""Distance between sample points, m."""

MAX_SAMPLES = 1500
"""Number of sample points near a keypoint."""

NEGLIGIBLE = 5e-5
"""Deviation that is not looked into, m."""


def deviations(
    body: EnclosedBody, solids: Sequence[Solid], keypoints: Mapping[str, Position]
) -> dict[str, float]:
    """Returns how far collision geometry and mesh are apart near each keypoint, m.

    That is the largest distance of a sample point of the collision geometry outside of the mesh
    from the mesh, or of a sample point of the mesh outside of the collision geometry from it.

    Args:
        body: The body of the mesh.
        solids: Convex solids, the collision geometry.
        keypoints: Positions of the keypoints, m, by name.
    """
    mesh, collision = _corners(body.outer), _corners(solids)
    result = {}
    for name, position in keypoints.items():
        point = np.array(position)
        distance = _distance_of_each(point, mesh)
        reach = REACH + float(distance.min())
        excess = _excess(_samples_near(point, reach, collision), mesh[distance < 3 * reach], body)
        gap = distance_outside(_samples_near(point, reach, mesh), solids)
        result[name] = max(excess, gap)
    return result


def _distance_of_each(point: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """Returns the distance of a point, (3,), from each triangle, (m,), m."""
    from trimesh.triangles import closest_point

    nearest = closest_point(corners, np.broadcast_to(point, (len(corners), 3)))
    return np.linalg.norm(nearest - point, axis=1)


def _corners(solids: Iterable[Solid]) -> np.ndarray:
    return np.concatenate([solid.vertices[solid.triangles] for solid in solids])


def _samples_near(centre: np.ndarray, radius: float, corners: np.ndarray) -> np.ndarray:
    """Returns points on triangles within a ball, about `SPACING` apart, (n, 3)."""
    points = [np.zeros((0, 3))]
    for triangle in corners[_distance_of_each(centre, corners) < radius]:
        sides = np.linalg.norm(np.roll(triangle, -1, axis=0) - triangle, axis=1)
        a, b, c = np.roll(triangle, 1 - int(np.argmin(sides)), axis=0)  # bc is the shortest side
        along = np.linspace(0, 1, 2 + int(sides.max() / SPACING))[:, None, None]
        across = np.linspace(0, 1, 2 + int(sides.min() / SPACING))[:, None]
        grid = (a + along * (b + across * (c - b) - a)).reshape(-1, 3)
        points.append(grid[np.linalg.norm(grid - centre, axis=1) < radius])
    found = np.concatenate(points)
    _, first = np.unique(np.round(found / (SPACING / 4)), axis=0, return_index=True)
    return found[first][:: 1 + len(first) // MAX_SAMPLES]


def _excess(points: np.ndarray, corners: np.ndarray, body: EnclosedBody) -> float:
    """Returns the largest distance from the mesh of those points that are outside of it, m."""
    distance = np.array([_distance_of_each(point, corners).min() for point in points])
    surface = body.surface()
    for k in np.argsort(-distance):
        if distance[k] < NEGLIGIBLE:
            break
        if abs(winding_numbers(points[k : k + 1], surface)[0]) < 0.5:
            return float(distance[k])
    return 0.0


def distance_outside(points: np.ndarray, solids: Sequence[Solid]) -> float:
    """Returns how far points, (n, 3), lie beyond the planes of all convex solids, at most, m."""
    heights = np.full(len(points), np.inf)
    for solid in solids:
        corners = solid.vertices[solid.triangles]
        normals = triangle_areas(corners)
        normals /= np.linalg.norm(normals, axis=1, keepdims=True)
        offsets = (normals * corners[:, 0]).sum(axis=1)
        heights = np.minimum(heights, (points @ normals.T - offsets).max(axis=1))
    return float(max(0.0, heights.max(initial=0.0)))
