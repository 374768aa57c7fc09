"""Simplification of meshes: fewer triangles for about the same shape."""

import numpy as np

from fleet_tools.assets.solids import Solid, triangle_areas, without_unused_vertices
from fleet_tools.utils.libraries import require

DEVIATIONS = (1e-4, 5e-4, 2e-3)
"""Deviations that are tried on a closed surface, relative to its size, in increasing order."""


def simplified(solid: Solid, max_triangles: int) -> Solid:
    """Returns a surface with a limited number of triangles; the solid itself if it has no more.

    First nearly flat regions are simplified, which keeps a closed surface closed, then edges are
    collapsed by quadric errors, and if that fails, as it does among slivers, vertices are merged on
    a grid. After the latter two the surface serves as visual geometry, not for mass properties.

    Args:
        solid: Any surface without degenerate triangles.
        max_triangles: Largest number of triangles, 100 or more.

    Raises:
        MissingLibraryError: It has more triangles, and a library is absent.
    """
    if len(solid.triangles) <= max_triangles:
        return solid
    flattened = _flattened(solid, max_triangles)
    if len(flattened.triangles) <= max_triangles:
        return without_degenerate_triangles(flattened)
    library = require("fast_simplification", f"simplify {len(solid.triangles)} triangles")
    vertices, triangles = library.simplify(
        np.ascontiguousarray(flattened.vertices, np.float64),
        np.ascontiguousarray(flattened.triangles, np.int32),
        target_count=max_triangles * 9 // 10,
    )
    result = without_degenerate_triangles(
        Solid(np.asarray(vertices, float), np.asarray(triangles, np.int64))
    )
    cells = 256
    while len(result.triangles) > max_triangles:
        result, cells = _merged_on_grid(result, cells), cells * 3 // 4
    return result


def without_degenerate_triangles(solid: Solid) -> Solid:
    """Returns the solid without triangles that have no area once their corners are rounded."""
    vertices = np.round(solid.vertices, 9)
    areas = triangle_areas(vertices[solid.triangles])
    kept = solid.triangles[np.linalg.norm(areas, axis=1) > 1e-14]
    return without_unused_vertices(vertices, kept)


def _flattened(solid: Solid, max_triangles: int) -> Solid:
    """Simplifies nearly flat regions of a closed surface; returns others as they are."""
    library = require("manifold3d", f"simplify {len(solid.triangles)} triangles")
    manifold = library.Manifold(
        library.Mesh64(
            np.ascontiguousarray(solid.vertices, np.float64),
            np.ascontiguousarray(solid.triangles, np.uint64),
        )
    )
    if manifold.status() != library.Error.NoError:
        return solid  # not closed, or it touches itself
    if not hasattr(manifold, "simplify"):
        return solid  # manifold3d before 3.2; edges are then collapsed by quadric errors alone
    size = np.ptp(solid.vertices, axis=0).max()
    result = manifold
    for deviation in DEVIATIONS:
        result = manifold.simplify(deviation * size)
        if result.num_tri() <= max_triangles:
            break
    if not result.num_tri():
        return solid
    mesh = result.to_mesh64()
    return Solid(np.array(mesh.vert_properties)[:, :3], np.array(mesh.tri_verts, np.int64))


def _merged_on_grid(solid: Solid, cells: int) -> Solid:
    """Merges the vertices in each cell of a grid with so many cells along the longest side."""
    low = solid.vertices.min(axis=0)
    step = np.ptp(solid.vertices, axis=0).max() / cells
    _, first, inverse = np.unique(
        np.round((solid.vertices - low) / step), axis=0, return_index=True, return_inverse=True
    )
    merged = Solid(solid.vertices[first], inverse.reshape(-1)[solid.triangles])
    _, kept = np.unique(np.sort(merged.triangles, axis=1), axis=0, return_index=True)
    return without_degenerate_triangles(Solid(merged.vertices, merged.triangles[np.sort(kept)]))
