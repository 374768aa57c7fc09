"""Fewer triangles for the same shape."""

from __future__ import annotations

import numpy as np

from ..solids import Solid
from .libraries import require


def simplified(solid: Solid, triangles: int) -> Solid:
    """At most so many triangles, by quadric decimation; the solid itself if it has no more.

    What is returned may have lost its closedness: it is good to be seen, not to be weighed.

    Args:
        solid: Any surface, without degenerate triangles.
        triangles: 100 or more.

    Raises:
        MissingLibraryError: There are more, and the library is absent.
    """
    if len(solid.triangles) <= triangles:
        return solid
    library = require("fast_simplification", f"simplify {len(solid.triangles)} triangles")
    target = triangles
    # Decimation stops short where a collapse would fold the surface: ask for less then.
    for _ in range(8):
        vertices, faces = library.simplify(
            np.ascontiguousarray(solid.vertices, np.float64),
            np.ascontiguousarray(solid.triangles, np.int32),
            target_count=target,
            agg=7 if target == triangles else 10,
        )
        found = sound(Solid(np.asarray(vertices, float), np.asarray(faces, np.int64)))
        if len(found.triangles) <= triangles:
            return found
        target = int(target * 0.8)
    return _largest(found, triangles)


def sound(solid: Solid) -> Solid:
    """Without triangles that have no area once their corners are written, and unused vertices."""
    vertices = np.round(solid.vertices, 9)
    corners = vertices[solid.triangles]
    doubled = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    kept = solid.triangles[np.linalg.norm(doubled, axis=1) > 1e-14]
    used, inverse = np.unique(kept, return_inverse=True)
    return Solid(vertices[used], inverse.reshape(-1, 3))


def _largest(solid: Solid, triangles: int) -> Solid:
    corners = solid.vertices[solid.triangles]
    doubled = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    order = np.argsort(-np.linalg.norm(doubled, axis=1), kind="stable")
    return sound(Solid(solid.vertices, solid.triangles[np.sort(order[:triangles])]))
