"""Convex decomposition of solids; contact is fast and robust with convex geometry only."""

from collections.abc import Sequence

import numpy as np

from fleet_tools.assets.importing.convex_hull import convex_hull
from fleet_tools.assets.importing.enclosed_body import volume
from fleet_tools.assets.importing.face_cuts import face_cut_parts
from fleet_tools.assets.importing.fidelity import REACH
from fleet_tools.assets.importing.simplify import simplified
from fleet_tools.assets.solids import Solid
from fleet_tools.utils.libraries import require

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


def convex_pieces(
    solids: Sequence[Solid], *, max_pieces: int, concavity: float, keypoints: np.ndarray
) -> list[np.ndarray]:
    """Decomposes solids into approximately convex pieces.

    A solid that is not convex is cut along planes of its faces, and what is not convex then is
    decomposed by CoACD.

    Args:
        solids: Closed surfaces that face outward.
        max_pieces: Largest number of pieces; each solid has one at least, its convex hull.
        concavity: Distance by which the hull of a piece may exceed it, relative to the size of the
            solid (CoACD's threshold).
        keypoints: Positions, (k, 3), m, near which pieces are to fit best.

    Returns:
        Points, (n_k, 3) each, whose hulls together cover the solids.

    Raises:
        MissingLibraryError: A solid is not convex, and a library is absent.
    """
    spare = max_pieces - len(solids)
    parts: list[Solid] = []
    for solid in sorted(solids, key=_void, reverse=True):
        if spare <= 0 or _is_convex(solid):
            parts.append(solid)
            continue
        coarse = simplified(solid, MAX_TRIANGLES)
        cut = face_cut_parts(coarse, 1 + spare, keypoints, REACH)
        spare -= len(cut) - 1
        parts += cut
    pieces: list[np.ndarray] = []
    for part in sorted(parts, key=_void, reverse=True):
        found = [part.vertices]
        if spare > 0 and not _is_convex(part):
            found = _coacd_pieces(part, max_pieces=1 + spare, concavity=concavity)
            spare -= len(found) - 1
        pieces += found
    return pieces


def _void(solid: Solid) -> float:
    """Returns the volume by which the hull exceeds a solid, m^3."""
    hull = convex_hull(solid.vertices)
    return 0.0 if hull is None else volume(hull) - volume(solid)


def _is_convex(solid: Solid) -> bool:
    hull = convex_hull(solid.vertices)
    return hull is None or volume(solid) >= CONVEX * volume(hull)


def _coacd_pieces(solid: Solid, *, max_pieces: int, concavity: float) -> list[np.ndarray]:
    """Decomposes a solid by cuts that a tree search finds.

    Source: Wei et al., "Approximate Convex Decomposition for 3D Meshes with Collision-Aware
    Concavity and Tree Search", SIGGRAPH 2022.
    """
    library = require(
        "coacd",
        "decompose a mesh that is not convex",
        "Or take its convex hull for contact: --pieces 1.",
    )
    library.set_log_level("error")
    coarse = simplified(solid, MAX_TRIANGLES)
    pieces = library.run_coacd(
        library.Mesh(coarse.vertices, coarse.triangles),
        threshold=concavity,
        max_convex_hull=max_pieces,
        preprocess_resolution=RESOLUTION,
        mcts_iterations=SEARCH_ITERATIONS,
        seed=0,
    )
    whole = convex_hull(solid.vertices)
    hulls = [convex_hull(np.asarray(points)) for points, _ in pieces]
    least = LEAST_VOLUME * (0.0 if whole is None else volume(whole))
    solids = [hull for hull in hulls if hull is not None and volume(hull) > least]
    return [h.vertices for h in sorted(solids, key=volume, reverse=True)] or [solid.vertices]
