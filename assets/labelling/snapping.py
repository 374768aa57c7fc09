"""Snapping: a click means a corner, an edge or the middle of the face that it is on."""

from typing import Literal

import numpy as np

from fleet_tools.assets.labelling.faces import face_centre, face_of, outline
from fleet_tools.assets.labelling.picking import Hit, nearest
from fleet_tools.assets.solids import Solid

Snap = Literal["surface", "vertex", "edge", "face centre"]
"""What a click means: the point itself, or the nearest of its kind on the face."""


def snapped(surface: Solid, hit: Hit, snap: Snap) -> Hit:
    """Returns a hit after snapping, on the same surface; snapping twice is snapping once.

    Args:
        surface: The surface.
        hit: The clicked point.
        snap: What it means.
    """
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
