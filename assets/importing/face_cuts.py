"""Cuts along the planes of a body's own faces, which divide designed bodies exactly.

The jaw of a wrench or the shoulder of a hammer ends in a plane face. A cut along that plane leaves
the face as it is, where a cut elsewhere leaves an edge that bulges into the jaw as soon as each
part is replaced by its convex hull.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from fleet_tools.assets.importing.convex_hull import triangle_areas
from fleet_tools.assets.solids import Solid
from fleet_tools.utils.libraries import require

SAME_PLANE = (np.cos(np.radians(4.0)), 0.003)
"""Cosine of the largest angle, and largest distance relative to the size, of triangles of one
face."""

MAX_PLANES = 40
"""Number of planes that are tried for each cut: those of the largest faces."""

LEAST_GAIN = 0.25
"""Least fraction of a part's void that a cut must remove."""

CONVEX = 0.03
"""Void of a part that is taken for convex, as a fraction of its hull's volume."""

WEIGHT = 10.0
"""Weight of void near a keypoint, relative to void elsewhere."""


def face_cut_parts(
    solid: Solid, max_parts: int, keypoints: np.ndarray, reach: float
) -> list[Solid]:
    """Divides a solid along planes of its faces until its parts are nearly convex.

    In each step the part whose hull encloses the largest void is cut along the plane that removes
    most of it.

    Args:
        solid: Closed surface that faces outward.
        max_parts: Largest number of parts.
        keypoints: Positions, (k, 3), near which void counts more.
        reach: Half the side of the cubes around them, m.

    Returns:
        Parts, which together are the solid; the solid itself if it cannot be divided.

    Raises:
        MissingLibraryError: manifold3d is absent.
    """
    library = require("manifold3d", "decompose a mesh that is not convex")
    whole = _manifold(library, solid)
    if whole is None:
        return [solid]
    cubes = [library.Manifold.cube((2 * reach,) * 3, True).translate(tuple(p)) for p in keypoints]
    near = library.Manifold.batch_boolean(cubes, library.OpType.Add) if cubes else None

    def void(part: Any) -> float:
        hull = part.hull()
        weighted = 0.0 if near is None else (hull ^ near).volume() - (part ^ near).volume()
        return hull.volume() - part.volume() + WEIGHT * weighted

    parts = [(void(part), part) for part in whole.decompose()]
    finished: list[Any] = []
    while parts and len(parts) + len(finished) < max_parts:
        parts.sort(key=lambda pair: -pair[0])
        largest, part = parts.pop(0)
        best = None
        if largest > CONVEX * part.hull().volume():
            cuts = [_cut(part, plane) for plane in _planes(_solid(part))]
            rated = [[(void(piece), piece) for piece in cut] for cut in cuts if len(cut) > 1]
            room = max_parts - len(parts) - len(finished)
            rated = [cut for cut in rated if len(cut) <= room]
            best = min(rated, key=lambda cut: sum(v for v, _ in cut), default=None)
        if best is None or sum(v for v, _ in best) > (1 - LEAST_GAIN) * largest:
            finished.append(part)
        else:
            parts += best
    return [_solid(part) for part in [*finished, *(part for _, part in parts)]]


def _planes(solid: Solid) -> Iterable[tuple[np.ndarray, float]]:
    """Yields unit normals and offsets of the planes of the largest faces."""
    corners = solid.vertices[solid.triangles]
    vectors = triangle_areas(corners)
    areas = np.linalg.norm(vectors, axis=1)
    normals = vectors / np.maximum(areas, 1e-30)[:, None]
    middles = corners.mean(axis=1)
    cosine, distance = SAME_PLANE
    distance *= np.ptp(solid.vertices, axis=0).max()
    free = areas > 0
    found = []
    for k in np.argsort(-areas):
        if not free[k]:
            continue
        heights = (middles - middles[k]) @ normals[k]
        # Faces that look the other way have the same plane, too.
        same = free & (np.abs(normals @ normals[k]) > cosine) & (np.abs(heights) < distance)
        free &= ~same
        signs = np.sign(normals[same] @ normals[k])
        normal = (signs[:, None] * vectors[same]).sum(axis=0)
        normal /= np.linalg.norm(normal)
        offset = float(np.average(middles[same] @ normal, weights=areas[same]))
        found.append((areas[same].sum(), normal, offset))
    found.sort(key=lambda face: -face[0])
    return [(normal, offset) for _, normal, offset in found[:MAX_PLANES]]


def _cut(part: Any, plane: tuple[np.ndarray, float]) -> list[Any]:
    """Returns the connected pieces on both sides of a plane, without crumbs."""
    normal, offset = plane
    halves = part.split_by_plane(tuple(normal), offset)
    pieces = [piece for half in halves for piece in half.decompose()]
    return [piece for piece in pieces if piece.volume() > 1e-4 * part.volume()]


def _manifold(library: Any, solid: Solid) -> Any:
    manifold = library.Manifold(
        library.Mesh64(
            np.ascontiguousarray(solid.vertices, np.float64),
            np.ascontiguousarray(solid.triangles, np.uint64),
        )
    )
    return manifold if manifold.status() == library.Error.NoError else None


def _solid(manifold: Any) -> Solid:
    mesh = manifold.to_mesh64()
    return Solid(np.array(mesh.vert_properties)[:, :3], np.array(mesh.tri_verts, np.int64))
