"""Parting a solid into convex pieces, which is all that contact is fast and robust with."""

from __future__ import annotations

import numpy as np

from fleet_tools.utils.libraries import require

from ..solids import Solid
from .polytope import hull
from .simplify import simplified
from .volume import volume

CONVEX = 0.97
"""Share of its hull that a solid must fill to be taken for convex."""

DETAIL = 2000
"""Triangles that the decomposition looks at; more take minutes and change nothing."""

REMESHED = 25
"""Voxels along the longest side of a surface that is no manifold, which CoACD remeshes: half of
its default, and many times faster on shells of twenty thousand triangles."""

SEARCH = 60
"""Iterations of CoACD's tree search for each cut."""

CRUMB = 1e-3
"""Share of the body's volume below which a piece is not worth its contact."""


def convex_pieces(solid: Solid, *, most: int, concavity: float) -> list[np.ndarray]:
    """Point sets whose hulls together cover a solid; the larger first.

    Args:
        solid: Closed, outward.
        most: Pieces at most; 1 gives the hull.
        concavity: How far the hull of a piece may bulge beyond it, relative to the solid's size
            (CoACD's threshold).

    Returns:
        (n_k, 3) each.

    Raises:
        MissingLibraryError: It is not convex, and the library that parts it is absent.

    Source: Wei et al., "Approximate Convex Decomposition for 3D Meshes with Collision-Aware
    Concavity and Tree Search", SIGGRAPH 2022.
    """
    whole = hull(solid.vertices)
    if most == 1 or volume(solid) >= CONVEX * volume(whole):
        return [solid.vertices]
    library = require(
        "coacd",
        "part a mesh that is not convex",
        "Or take its convex hull for contact: --pieces 1.",
    )
    library.set_log_level("error")
    coarse = simplified(solid, DETAIL)
    found = library.run_coacd(
        library.Mesh(coarse.vertices, coarse.triangles),
        threshold=concavity,
        max_convex_hull=most,
        preprocess_resolution=REMESHED,
        mcts_iterations=SEARCH,
        seed=0,
    )
    hulls = [one for points, _ in found if (one := hull(np.asarray(points))) is not None]
    hulls = [one for one in hulls if volume(one) > CRUMB * volume(whole)]
    return [one.vertices for one in sorted(hulls, key=volume, reverse=True)] or [solid.vertices]
