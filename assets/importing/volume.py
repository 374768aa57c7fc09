"""What a set of shells encloses: solids, the cavities in them, and their mass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleet_tools.errors import ConfigError
from fleet_tools.utils.libraries import require

from ..solids import MassProperties, Solid, join, mass_properties
from .repair import Shell

FLAT = 1e-6
"""Share of its bounding cube that a shell must enclose to be a body."""


@dataclass(frozen=True, eq=False)
class Body:
    """Closed outward surfaces, and those of hollows inside, which face inward."""

    outer: tuple[Solid, ...]
    cavities: tuple[Solid, ...] = ()

    def mass_properties(self, density: float) -> MassProperties:
        """Of a homogeneous body."""
        return mass_properties(join(*self.outer, *self.cavities), density)


def volume(solid: Solid) -> float:
    """Signed volume of a closed surface, m^3; positive if it faces outward."""
    corners = solid.vertices[solid.triangles]
    return float(np.linalg.det(corners - solid.vertices[0]).sum() / 6)


def winding(points: np.ndarray, solid: Solid) -> np.ndarray:
    """How often a surface goes round each point: 1 inside, 0 outside, fractions near holes.

    Van Oosterom and Strackee's solid angle, summed over the triangles.

    Args:
        points: (n, 3).
        solid: Need not be closed.

    Returns:
        (n,).
    """
    turns = np.empty(len(points))
    for k, point in enumerate(points):
        corners = solid.vertices[solid.triangles] - point
        a, b, c = np.moveaxis(corners, 1, 0)
        la, lb, lc = np.linalg.norm(corners, axis=2).T
        above = np.linalg.det(corners)
        below = la * lb * lc
        below += (a * b).sum(1) * lc + (b * c).sum(1) * la + (c * a).sum(1) * lb
        turns[k] = np.arctan2(above, below).sum() / (2 * np.pi)
    return turns


def enclosed(shells: Sequence[Shell], *, hull_if_open: bool = True) -> tuple[Body, list[str]]:
    """The body that shells enclose.

    An open shell stands for its convex hull. One that faces inward is a cavity if it lies within
    another that faces outward, and was inside out otherwise. What overlaps is counted once.

    Raises:
        ConfigError: Nothing is enclosed, or a shell is open and may not be replaced by its hull.
        MissingLibraryError: Shells overlap, and the library that unites them is absent.
    """
    notes: list[str] = []
    solids = []
    for shell in shells:
        if not shell.closed and not hull_if_open:
            raise ConfigError(
                f"A part of {len(shell.solid.triangles)} triangles is not watertight, and its "
                "holes are too large to close. Close them, for instance with Blender's 3D-Print "
                "toolbox or MeshLab's 'Close Holes', or take its convex hull: --if-open hull."
            )
        solid = shell.solid if shell.closed else _hull(shell.solid)
        if solid is None or abs(volume(solid)) < FLAT * np.ptp(solid.vertices, axis=0).max() ** 3:
            notes.append(f"dropped a part of {len(shell.solid.triangles)} triangles without volume")
            continue
        if not shell.closed:
            notes.append(
                f"a part of {len(shell.solid.triangles)} triangles is not watertight beyond "
                "repair: its convex hull stands for it, in mass and in contact (--if-open refuse "
                "to stop here, and close its holes in Blender or MeshLab)"
            )
        solids.append(solid)
    if not solids:
        raise ConfigError(
            "The mesh encloses no volume: it is a flat sheet. Give it a thickness, for instance "
            "with Blender's Solidify modifier."
        )
    body, more = _sorted_out(solids)
    return body, notes + more


def _hull(solid: Solid) -> Solid | None:
    from .polytope import hull  # convex hulls live with the polytopes

    return hull(solid.vertices)


def _sorted_out(solids: list[Solid]) -> tuple[Body, list[str]]:
    notes = []
    inside = [[k for k in range(len(solids)) if _within(one, k, solids)] for one in solids]
    sign = [np.sign(volume(solid)) for solid in solids]
    outer, cavities, inverted, doubled = [], [], 0, 0
    for k, solid in enumerate(solids):
        if not inside[k]:
            inverted += sign[k] < 0
            outer.append(solid if sign[k] > 0 else _reversed(solid))
        elif sign[k] != sign[inside[k][0]]:
            cavities.append(solid if sign[k] < 0 else _reversed(solid))
        else:
            doubled += 1
    if inverted:
        notes.append(f"turned {inverted} part(s) inside out, whose normals pointed inward")
    if doubled:
        notes.append(f"ignored {doubled} part(s) that lie inside another")
    if cavities:
        notes.append(f"kept {len(cavities)} cavity(ies), which weigh nothing")
    if _any_boxes_overlap(outer):
        outer, more = _united(outer)
        notes += more
    return Body(tuple(outer), tuple(cavities)), notes


def _within(one: Solid, k: int, solids: list[Solid]) -> bool:
    other = solids[k]
    if other is one or (one.vertices.min(axis=0) < other.vertices.min(axis=0)).any():
        return False
    if (one.vertices.max(axis=0) > other.vertices.max(axis=0)).any():
        return False
    some = one.vertices[:: max(1, len(one.vertices) // 16)]
    return bool((np.abs(winding(some, other)) > 0.5).all())


def _reversed(solid: Solid) -> Solid:
    return Solid(solid.vertices, solid.triangles[:, ::-1])


def _any_boxes_overlap(solids: list[Solid]) -> bool:
    low = np.array([solid.vertices.min(axis=0) for solid in solids])
    high = np.array([solid.vertices.max(axis=0) for solid in solids])
    overlap = (low[:, None] < high[None]).all(axis=2) & (low[None] < high[:, None]).all(axis=2)
    return bool(np.triu(overlap, 1).any())


def _united(solids: list[Solid]) -> tuple[list[Solid], list[str]]:
    """The union of closed surfaces, so that what two of them share weighs once."""
    library = require("manifold3d", "unite the overlapping parts of this mesh")
    manifolds = [
        library.Manifold(
            library.Mesh64(
                np.ascontiguousarray(solid.vertices, np.float64),
                np.ascontiguousarray(solid.triangles, np.uint64),
            )
        )
        for solid in solids
    ]
    if any(one.status() != library.Error.NoError for one in manifolds):
        return solids, ["parts touch themselves and cannot be united: an overlap weighs twice"]
    whole = library.Manifold.batch_boolean(manifolds, library.OpType.Add)
    before, after = sum(map(volume, solids)), whole.volume()
    if before - after <= 1e-9 * before:
        return solids, []
    united = []
    for part in whole.decompose():
        mesh = part.to_mesh64()
        united.append(Solid(np.array(mesh.vert_properties)[:, :3], np.array(mesh.tri_verts, int)))
    share = 100 * (before - after) / before
    return united, [f"united {len(solids)} overlapping parts ({share:.3g}% of their volume shared)"]
