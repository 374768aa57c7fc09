"""Faces of a surface: what looks flat.

A face is the connected triangles that lie in the plane of one of them, within tolerances that allow
for the noise of scans.
"""

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from fleet_tools.assets.solids import Solid

FLAT_DEG = 5.0
"""Largest angle between the normals of a face's triangles and that of the given one."""

FLAT = 1e-3
"""Largest distance of a face's corners from the plane of the given triangle, relative to size."""


def size(surface: Solid) -> float:
    """Returns the longest side of a surface's bounding box."""
    return float(np.ptp(surface.vertices, axis=0).max())


def normals(surface: Solid) -> np.ndarray:
    """Returns the unit normals of a surface's triangles, (m, 3); zero where they have no area."""
    cross = _cross(surface, surface.triangles)
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
    """Returns the edges (n, 2) around a face: those that belong to one of its triangles alone."""
    triangles = surface.triangles[face]
    edges = np.sort(triangles[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=1)
    edges, counts = np.unique(edges, axis=0, return_counts=True)
    alone = edges[counts == 1]
    return alone if len(alone) else edges


def face_centre(surface: Solid, face: np.ndarray) -> np.ndarray:
    """Returns the centroid (3,) of a face; it may lie in a notch or a hole."""
    triangles = surface.triangles[face]
    area = np.linalg.norm(_cross(surface, triangles), axis=1)
    return area @ surface.vertices[triangles].mean(axis=1) / area.sum()


def face_normal(surface: Solid, face: np.ndarray) -> np.ndarray:
    """Returns the mean direction of a face by area, a unit vector (3,)."""
    cross = _cross(surface, surface.triangles[face]).sum(axis=0)
    return cross / np.linalg.norm(cross)


def _cross(surface: Solid, triangles: np.ndarray) -> np.ndarray:
    a, b, c = np.moveaxis(surface.vertices[triangles], 1, 0)
    return np.cross(b - a, c - a)


def _connected(triangles: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Returns which triangles hang together, by common corners, with the one that `start` marks."""
    _, corners = np.unique(triangles, return_inverse=True)
    corners = corners.reshape(triangles.shape)
    count, nodes = len(triangles), len(triangles) + corners.max() + 1
    links = (np.repeat(np.arange(count), 3), count + corners.ravel())
    graph = coo_array((np.ones(3 * count), links), shape=(nodes, nodes))
    _, labels = connected_components(graph, directed=False)
    return labels[:count] == labels[:count][start]
