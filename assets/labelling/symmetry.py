"""Planes of symmetry, in which labels of one side are mirrored to the other.

A plane in which a body is symmetric passes through the centroid of its surface, and its normal is
an eigenvector of the surface's second moment: three planes are the only candidates, unless two
eigenvalues coincide.
"""

from dataclasses import dataclass

import numpy as np

from fleet_tools.assets.labelling.faces import size
from fleet_tools.assets.labelling.picking import nearest
from fleet_tools.assets.solids import Solid

SYMMETRIC = 0.01
"""Largest mismatch of a plane in which labels are mirrored, relative to the longest side."""

MAX_SAMPLES = 64
"""Number of vertices whose mirror images are compared with the surface."""


@dataclass(frozen=True, eq=False)
class Plane:
    """A plane, and how well a surface is symmetric in it.

    Attributes:
        point: A point of it, (3,).
        normal: Its unit normal, (3,).
        mismatch: Largest distance of a mirrored vertex from the surface.
    """

    point: np.ndarray
    normal: np.ndarray
    mismatch: float = 0.0

    def mirrored(self, point: np.ndarray) -> np.ndarray:
        """Returns the mirror image of a point, (3,)."""
        return point - 2 * ((point - self.point) @ self.normal) * self.normal


def centroid(surface: Solid) -> np.ndarray:
    """Returns the centroid (3,) of a surface, as a thin shell."""
    middles, areas = _middles(surface)
    return areas @ middles / areas.sum()


def principal_axes(surface: Solid) -> np.ndarray:
    """Returns the principal axes of a surface, as a thin shell, from the longest to the shortest.

    Returns:
        Unit vectors in rows, (3, 3).
    """
    middles, areas = _middles(surface)
    centre = centroid(surface)
    corners = surface.vertices[surface.triangles] - centre
    middles = middles - centre
    # The second moment of a triangle about the origin: A / 12 (sum of v v' + 9 m m').
    moment = np.einsum("n,nki,nkj->ij", areas, corners, corners)
    moment += 9 * np.einsum("n,ni,nj->ij", areas, middles, middles)
    _, vectors = np.linalg.eigh(moment)
    return vectors.T[::-1]


def symmetry_planes(surface: Solid) -> list[Plane]:
    """Returns the planes in which a surface is symmetric, at most three; they are orthogonal."""
    centre = centroid(surface)
    vertices = np.unique(surface.triangles)
    sampled = surface.vertices[vertices[:: max(1, len(vertices) // MAX_SAMPLES)]]
    found = []
    for axis in principal_axes(surface):
        plane = Plane(centre, axis)
        images = [plane.mirrored(point) for point in sampled]
        mismatch = max(float(np.linalg.norm(nearest(surface, p).point - p)) for p in images)
        if mismatch <= SYMMETRIC * size(surface):
            found.append(Plane(centre, axis, mismatch))
    return found


def mirror_image(planes: list[Plane], point: np.ndarray) -> np.ndarray | None:
    """Returns the mirror image of a point, (3,), in the plane that it is farthest from.

    So a label on the left goes to the right, and one above goes below. The image of the image is
    the point.

    Args:
        planes: Orthogonal planes through one point.
        point: The point, (3,).

    Returns:
        The image; None if there is no plane, or the point lies in all of them.
    """
    images = [plane.mirrored(point) for plane in planes]
    far = [float(np.linalg.norm(image - point)) for image in images]
    return images[int(np.argmax(far))] if far and max(far) > 0 else None


def _middles(surface: Solid) -> tuple[np.ndarray, np.ndarray]:
    """Returns the middle of each triangle, (m, 3), and its area (m,)."""
    a, b, c = np.moveaxis(surface.vertices[surface.triangles], 1, 0)
    return (a + b + c) / 3, np.linalg.norm(np.cross(b - a, c - a), axis=1) / 2
