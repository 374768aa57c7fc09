"""Points on surfaces."""

import numpy as np

from fleet_tools.assets.solids import Solid


def surface_points(solid: Solid, per_edge: int = 8) -> np.ndarray:
    """Returns points on all triangles of a solid, (n, 3), m.

    Args:
        solid: The solid.
        per_edge: Number of segments into which the points divide an edge.
    """
    steps = range(per_edge + 1)
    weights = [(i, j, per_edge - i - j) for i in steps for j in steps if i + j <= per_edge]
    corners = solid.vertices[solid.triangles]
    return np.einsum("wc,tci->twi", np.array(weights) / per_edge, corners).reshape(-1, 3)
