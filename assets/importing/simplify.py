"""Fewer triangles for the same shape."""

from __future__ import annotations

import numpy as np

from fleet_tools.utils.libraries import require

from ..solids import Solid

CLOSE = (1e-4, 5e-4, 2e-3)
"""Deviations that are tried on a closed surface, relative to its size, the least first."""


def simplified(solid: Solid, triangles: int) -> Solid:
    """At most so many triangles; the solid itself if it has no more.

    First what is flat is merged, which keeps a closed surface closed; then quadrics decide; and if
    they get stuck, as they do among slivers, vertices are merged on a grid. After the latter two it
    is good to be seen, and no longer to be weighed.

    Args:
        solid: Any surface, without degenerate triangles.
        triangles: 100 or more.

    Raises:
        MissingLibraryError: There are more, and a library is absent.
    """
    if len(solid.triangles) <= triangles:
        return solid
    flattened = _flattened(solid, triangles)
    if len(flattened.triangles) <= triangles:
        return sound(flattened)
    library = require("fast_simplification", f"simplify {len(solid.triangles)} triangles")
    vertices, faces = library.simplify(
        np.ascontiguousarray(flattened.vertices, np.float64),
        np.ascontiguousarray(flattened.triangles, np.int32),
        target_count=triangles * 9 // 10,
    )
    found = sound(Solid(np.asarray(vertices, float), np.asarray(faces, np.int64)))
    cells = 256
    while len(found.triangles) > triangles:
        found, cells = _on_grid(found, cells), cells * 3 // 4
    return found


def sound(solid: Solid) -> Solid:
    """Without triangles that have no area once their corners are written, and unused vertices."""
    vertices = np.round(solid.vertices, 9)
    corners = vertices[solid.triangles]
    doubled = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    kept = solid.triangles[np.linalg.norm(doubled, axis=1) > 1e-14]
    used, inverse = np.unique(kept, return_inverse=True)
    return Solid(vertices[used], inverse.reshape(-1, 3))


def _flattened(solid: Solid, triangles: int) -> Solid:
    library = require("manifold3d", f"simplify {len(solid.triangles)} triangles")
    whole = library.Manifold(
        library.Mesh64(
            np.ascontiguousarray(solid.vertices, np.float64),
            np.ascontiguousarray(solid.triangles, np.uint64),
        )
    )
    if whole.status() != library.Error.NoError:
        return solid  # no closed surface, or one that touches itself
    size = np.ptp(solid.vertices, axis=0).max()
    for deviation in CLOSE:
        fewer = whole.simplify(deviation * size)
        if fewer.num_tri() <= triangles:
            break
    if not fewer.num_tri():
        return solid
    mesh = fewer.to_mesh64()
    return Solid(np.array(mesh.vert_properties)[:, :3], np.array(mesh.tri_verts, np.int64))


def _on_grid(solid: Solid, cells: int) -> Solid:
    low = solid.vertices.min(axis=0)
    step = np.ptp(solid.vertices, axis=0).max() / cells
    _, first, inverse = np.unique(
        np.round((solid.vertices - low) / step), axis=0, return_index=True, return_inverse=True
    )
    merged = Solid(solid.vertices[first], inverse.reshape(-1)[solid.triangles])
    _, kept = np.unique(np.sort(merged.triangles, axis=1), axis=0, return_index=True)
    return sound(Solid(merged.vertices, merged.triangles[np.sort(kept)]))
