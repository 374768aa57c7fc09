"""Convex decomposition of solids; contact is fast and robust with convex geometry only."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from fleet_tools.assets.solids import Solid, area_vectors
from fleet_tools.errors import NativeLibraryError
from fleet_tools.parallel.apart import CLEAN, call_apart
from fleet_tools.studio.importing.enclosed_body import convex_hull, volume
from fleet_tools.studio.importing.repair import (
    as_manifold,
    from_manifold,
    simplified,
    without_slivers,
)
from fleet_tools.utils.libraries import require

REACH = 0.015
"""Distance beyond the nearest point of the mesh at which a point is no longer near a keypoint, m;
near the middle of a jaw are its pads."""

CONVEX = 0.97
"""Least volume of a solid that is taken for convex, as a fraction of the volume of its hull."""

MAX_TRIANGLES = 2000
"""Number of triangles to which a solid is simplified first; more take minutes to no effect."""

RESOLUTION = 25
"""Number of voxels along the longest side when CoACD remeshes a surface that is not a manifold:
half of its default, and many times faster on shells of twenty thousand triangles."""

SEARCH_ITERATIONS = 60
"""Iterations of CoACD's tree search for each cut."""

LEAST_VOLUME = 1e-3
"""Least volume of a piece, as a fraction of the hull's."""

_PURPOSE = "decompose a mesh that is not convex"


def convex_pieces(
    solids: Sequence[Solid], concavity: float, max_pieces: int, keypoints: np.ndarray
) -> tuple[list[np.ndarray], list[str]]:
    """Decomposes solids into approximately convex pieces.

    A solid that is not convex is cut along planes of its faces, and what is not convex then is
    decomposed by CoACD. A part for which a library fails is represented by its convex hull.

    Args:
        solids: Closed surfaces that face outward; each has one piece at least.
        concavity: Distance by which the hull of a piece may exceed it, relative to the size of the
            solid (CoACD's threshold).
        max_pieces: Largest number of pieces.
        keypoints: Positions, (k, 3), m, near which pieces are to fit best.

    Returns:
        Points, (n_k, 3) each, whose hulls together cover the solids, and errors of libraries.

    Raises:
        MissingLibraryError: A solid is not convex, and a library is absent.
    """
    failures: list[str] = []

    def cut(solid: Solid, most: int) -> list[Solid]:
        require("manifold3d", _PURPOSE)
        return call_apart("manifold3d", CLEAN, face_cut_parts, solid, most, keypoints, REACH)

    def decomposed(solid: Solid, most: int) -> list[Solid]:
        require("coacd", _PURPOSE, "Or take its convex hull for contact: --pieces 1.")
        return call_apart("CoACD", CLEAN, _coacd, solid, concavity, most)

    def divided(
        solids: Sequence[Solid], divide: Callable[[Solid, int], list[Solid]]
    ) -> list[Solid]:
        parts, spare = [], max_pieces - len(solids)
        for solid in sorted(solids, key=_void, reverse=True):
            found = [solid]
            if spare > 0 and not _is_convex(solid):
                try:
                    found = divide(simplified(solid, MAX_TRIANGLES), 1 + spare)
                except NativeLibraryError as error:
                    failures.append(str(error))
            spare -= len(found) - 1
            parts += found
        return parts

    return [part.vertices for part in divided(divided(solids, cut), decomposed)], failures


def _void(solid: Solid) -> float:
    """Returns the volume by which the hull exceeds a solid, m^3."""
    hull = convex_hull(solid.vertices)
    return 0.0 if hull is None else volume(hull) - volume(solid)


def _is_convex(solid: Solid) -> bool:
    hull = convex_hull(solid.vertices)
    return hull is None or volume(solid) >= CONVEX * volume(hull)


def _coacd(solid: Solid, concavity: float, max_pieces: int) -> list[Solid]:
    """Decomposes a solid by cuts that a tree search finds.

    Source: Wei et al., "Approximate Convex Decomposition for 3D Meshes with Collision-Aware
    Concavity and Tree Search", SIGGRAPH 2022.
    """
    import coacd

    coacd.set_log_level("error")
    coarse = without_slivers(solid)
    pieces = coacd.run_coacd(
        coacd.Mesh(coarse.vertices, coarse.triangles),
        threshold=concavity,
        max_convex_hull=max_pieces,
        preprocess_resolution=RESOLUTION,
        mcts_iterations=SEARCH_ITERATIONS,
        seed=0,
    )
    whole = convex_hull(solid.vertices)
    hulls = [convex_hull(np.asarray(points)) for points, _ in pieces]
    least = LEAST_VOLUME * (0.0 if whole is None else volume(whole))
    found = [hull for hull in hulls if hull is not None and volume(hull) > least]
    return sorted(found, key=volume, reverse=True) or [solid]


SAME_PLANE = (np.cos(np.radians(4.0)), 0.003)
"""Cosine of the largest angle, and largest distance relative to the size, of triangles of one
face."""

MAX_PLANES = 40
"""Number of planes that are tried for each cut: the largest faces'."""

LEAST_GAIN = 0.25
"""Least fraction of a part's void that a cut must remove."""

NEARLY_CONVEX = 0.03
"""Void of a part that is taken for convex, as a fraction of its hull's volume."""

WEIGHT = 10.0
"""Weight of void near a keypoint, relative to void elsewhere."""


def face_cut_parts(
    solid: Solid, max_parts: int, keypoints: np.ndarray, reach: float
) -> list[Solid]:
    """Divides a solid along planes of its faces until its parts are nearly convex.

    In each step the part whose hull encloses the largest void is cut along the plane that removes
    most of it. Void in cubes around keypoints, (k, 3), counts more; `reach` is half their side, m.
    A solid that cannot be divided is its only part.
    """
    from manifold3d import Manifold, OpType

    whole = as_manifold(solid)
    if whole is None:
        return [solid]
    side = 2 * reach
    cubes = [Manifold.cube((side, side, side), True).translate(tuple(p)) for p in keypoints]
    near = Manifold.batch_boolean(cubes, OpType.Add) if cubes else None

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
        if largest > NEARLY_CONVEX * part.hull().volume():
            cuts = [_cut(part, plane) for plane in _planes(from_manifold(part))]
            rated = [[(void(piece), piece) for piece in cut] for cut in cuts if len(cut) > 1]
            room = max_parts - len(parts) - len(finished)
            rated = [cut for cut in rated if len(cut) <= room]
            best = min(rated, key=lambda cut: sum(v for v, _ in cut), default=None)
        if best is None or sum(v for v, _ in best) > (1 - LEAST_GAIN) * largest:
            finished.append(part)
        else:
            parts += best
    return [from_manifold(part) for part in [*finished, *(part for _, part in parts)]]


def _planes(solid: Solid) -> Iterable[tuple[np.ndarray, float]]:
    """Yields unit normals and offsets of the planes of the largest faces."""
    corners = solid.vertices[solid.triangles]
    vectors = area_vectors(corners)
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
