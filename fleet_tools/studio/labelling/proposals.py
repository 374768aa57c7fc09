"""The proposed pose of the hand on a handle.

The frame G of the hand has its origin in the middle of the handle, x along it to the working end,
and z away from the palm (`fleet_tools.assets.model_description`).
"""

import numpy as np
import trimesh
from pydrake.math import RigidTransform, RotationMatrix
from scipy.spatial import ConvexHull, QhullError

from fleet_tools.assets.solids import Solid, area_vectors
from fleet_tools.config.geometry import Pose
from fleet_tools.studio.labelling.picking import Hit, outward

REACH = 0.05
"""Distance from a click within which the surface belongs to the handle, m."""

HALF_GRIP = 0.015
"""Distance on either side of the click at which the handle's middle is looked for, m."""


def centroid(surface: Solid) -> np.ndarray:
    """Returns the centroid (3,) of a surface, as a thin shell."""
    points, weights = _samples(surface)
    return np.average(points, axis=0, weights=weights)


def principal_axes(surface: Solid) -> np.ndarray:
    """Returns the principal axes of a surface, as a thin shell: unit vectors in rows, (3, 3).

    The longest is the first.
    """
    points, weights = _samples(surface)
    return np.linalg.eigh(np.cov(points.T, aweights=weights, ddof=0))[1].T[::-1]


def _samples(surface: Solid) -> tuple[np.ndarray, np.ndarray]:
    """Returns points (n, 3) and weights (n,) that have the first two moments of a surface.

    The middles of a triangle's sides, with a third of its area each, have the triangle's.
    """
    corners = surface.vertices[surface.triangles]
    middles = (corners + np.roll(corners, 1, axis=1)) / 2
    areas = np.linalg.norm(area_vectors(corners), axis=1)
    return middles.reshape(-1, 3), np.repeat(areas, 3)


def propose_hand(
    surface: Solid, hit: Hit, ahead: np.ndarray, down: np.ndarray | None = None
) -> Pose:
    """Returns a pose X_MG of the hand on a handle.

    Args:
        surface: The tool, in M, m.
        hit: Where the handle was clicked.
        ahead: A point of the working end, (3,), m.
        down: Direction away from the palm, (3,), as far as the handle allows it; None puts the palm
            on the side of the click.
    """
    axis = principal_axes(surface)[0]
    middle = section_middle(surface, hit.point, axis, hit.point)
    for _ in range(8):  # converges to the line through the middles of sections across it
        ends = [
            section_middle(surface, middle + side * HALF_GRIP * axis, axis, middle)
            for side in (1, -1)
        ]
        along = ends[0] - ends[1]
        axis = along / np.linalg.norm(along)
        middle = section_middle(surface, hit.point, axis, hit.point)
    x = axis if axis @ (ahead - middle) >= 0 else -axis
    z = _perpendicular(x, [down, -outward(surface, hit), *np.eye(3)])
    R = RotationMatrix.ProjectToRotationMatrix(np.column_stack([x, np.cross(z, x), z]))
    return Pose.of(RigidTransform(R, middle))


def section_middle(
    surface: Solid, point: np.ndarray, axis: np.ndarray, near: np.ndarray
) -> np.ndarray:
    """Returns the middle of the section of a surface by a plane, (3,).

    It is the centroid of the section's convex hull, or the point itself where nothing is cut.

    Args:
        surface: The surface, m.
        point: A point of the plane, (3,).
        axis: Its unit normal, (3,).
        near: Only what is cut within `REACH` of this point counts, (3,).
    """
    mesh = trimesh.Trimesh(surface.vertices, surface.triangles, process=False)
    points = np.asarray(trimesh.intersections.mesh_plane(mesh, axis, point)).reshape(-1, 3)
    points = points[np.linalg.norm(points - near, axis=1) <= REACH]
    if not len(points):
        return point
    across = np.linalg.svd(axis[None])[2][1:]
    return point + _hull_centroid((points - point) @ across.T) @ across


def _hull_centroid(points: np.ndarray) -> np.ndarray:
    """Returns the centroid (2,) of the convex hull of points, (n, 2)."""
    try:
        corners = points[ConvexHull(points).vertices]
    except QhullError:  # all on a line
        return points.mean(axis=0)
    start, following = corners, np.roll(corners, -1, axis=0)
    areas = start[:, 0] * following[:, 1] - start[:, 1] * following[:, 0]
    return areas @ (start + following) / (3 * areas.sum())


def _perpendicular(axis: np.ndarray, candidates: list[np.ndarray | None]) -> np.ndarray:
    """Returns the part at a right angle to an axis of the first candidate that has one, (3,)."""
    for candidate in candidates:
        if candidate is not None:
            part = candidate - (candidate @ axis) * axis
            if np.linalg.norm(part) > 0.1 * np.linalg.norm(candidate):
                return part / np.linalg.norm(part)
    raise AssertionError("one of three axes is not along a fourth")
