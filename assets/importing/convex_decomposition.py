"""Convex decomposition of solids; contact is fast and robust with convex geometry only."""

import numpy as np

from fleet_tools.assets.importing.convex_hull import convex_hull
from fleet_tools.assets.importing.enclosed_body import volume
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


def convex_pieces(solid: Solid, *, max_pieces: int, concavity: float) -> list[np.ndarray]:
    """Decomposes a solid into approximately convex pieces.

    Source: Wei et al., "Approximate Convex Decomposition for 3D Meshes with Collision-Aware
    Concavity and Tree Search", SIGGRAPH 2022.

    Args:
        solid: Closed surface that faces outward.
        max_pieces: Largest number of pieces; 1 gives the convex hull.
        concavity: Distance by which the hull of a piece may exceed it, relative to the size of the
            solid (CoACD's threshold).

    Returns:
        Points, (n_k, 3) each, whose hulls together cover the solid, in decreasing order of volume.

    Raises:
        MissingLibraryError: The solid is not convex, and CoACD is absent.
    """
    hull = convex_hull(solid.vertices)
    if max_pieces == 1 or hull is None or volume(solid) >= CONVEX * volume(hull):
        return [solid.vertices]
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
    hulls = [convex_hull(np.asarray(points)) for points, _ in pieces]
    solids = [h for h in hulls if h is not None and volume(h) > LEAST_VOLUME * volume(hull)]
    return [h.vertices for h in sorted(solids, key=volume, reverse=True)] or [solid.vertices]
