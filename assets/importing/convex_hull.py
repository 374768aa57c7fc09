"""Convex hulls as solids."""

import numpy as np
from scipy.spatial import ConvexHull, QhullError

from fleet_tools.assets.solids import Solid


def convex_hull(points: np.ndarray) -> Solid | None:
    """Returns the convex hull of points.

    Args:
        points: Positions, (n, 3).

    Returns:
        The hull, or None if the points lie in a plane.
    """
    try:
        hull = ConvexHull(points)
    except (QhullError, ValueError):
        return None
    areas = triangle_areas(points[hull.simplices])
    inward = np.einsum("ij,ij->i", areas, hull.equations[:, :3]) < 0
    triangles = np.where(inward[:, None], hull.simplices[:, ::-1], hull.simplices)
    return without_unused_vertices(points, triangles)


def triangle_areas(corners: np.ndarray) -> np.ndarray:
    """Returns vectors along the normals of triangles, twice the areas long.

    Args:
        corners: Positions of the corners, (m, 3 corners, 3).

    Returns:
        Vectors, (m, 3).
    """
    return np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])


def without_unused_vertices(vertices: np.ndarray, triangles: np.ndarray) -> Solid:
    """Returns a solid with the vertices, (n, 3), to which triangles, (m, 3), refer."""
    used, inverse = np.unique(triangles, return_inverse=True)
    return Solid(vertices[used], inverse.reshape(-1, 3))
