"""The solid enclosed by shells: outer surfaces minus cavities."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial import ConvexHull, QhullError

from fleet_tools.assets.solids import (
    MassProperties,
    Solid,
    area_vectors,
    joined,
    mass_properties,
    without_unused_vertices,
)
from fleet_tools.errors import ConfigError, NativeLibraryError
from fleet_tools.parallel.apart import CLEAN, call_apart
from fleet_tools.studio.importing.repair import Shell, as_manifold, from_manifold
from fleet_tools.utils.libraries import require

LEAST_VOLUME = 1e-6
"""Least volume of a body, as a fraction of the cube of its longest side."""


@dataclass(frozen=True, eq=False)
class EnclosedBody:
    """A body with cavities.

    Attributes:
        outer: Closed surfaces that face outward.
        cavities: Closed surfaces of cavities inside, which face inward.
        parts: The closed surfaces of which `outer` is the union, as they were modelled.
    """

    outer: tuple[Solid, ...]
    cavities: tuple[Solid, ...] = ()
    parts: tuple[Solid, ...] = ()

    def surface(self) -> Solid:
        """Returns all surfaces as one value."""
        return joined(*self.outer, *self.cavities)

    def mass_properties(self, density: float) -> MassProperties:
        """Returns the mass properties for a homogeneous density, kg/m^3."""
        return mass_properties(self.surface(), density)


def volume(solid: Solid) -> float:
    """Returns the signed volume of a closed surface, m^3; positive if it faces outward."""
    corners = solid.vertices[solid.triangles]
    return float(np.linalg.det(corners - solid.vertices[0]).sum() / 6)


def winding_numbers(points: np.ndarray, solid: Solid) -> np.ndarray:
    """Returns how often a surface winds around points (n, 3), (n,): 1 inside, 0 outside.

    Source: the solid angles of Van Oosterom and Strackee, "The Solid Angle of a Plane Triangle",
    IEEE Transactions on Biomedical Engineering, 1983, summed over the triangles.
    """
    windings = np.empty(len(points))
    corners = np.ascontiguousarray(solid.vertices[solid.triangles].transpose(1, 2, 0))
    for k, point in enumerate(points):
        a, b, c = corners - point[:, None]
        la, lb, lc = (np.sqrt((x * x).sum(0)) for x in (a, b, c))
        above = (a * np.cross(b, c, axis=0)).sum(0)
        below = la * lb * lc
        below += (a * b).sum(0) * lc + (b * c).sum(0) * la + (c * a).sum(0) * lb
        windings[k] = np.arctan2(above, below).sum() / (2 * np.pi)
    return windings


def enclosed_body(shells: Sequence[Shell]) -> tuple[EnclosedBody, list[str]]:
    """Determines the body that shells enclose; returns it, and notes on the changes.

    An open shell is replaced by its convex hull. A shell that faces inward is a cavity if it lies
    within another one that faces outward, and is turned inside out otherwise. Overlapping volume is
    counted once.

    Raises:
        ConfigError: Nothing is enclosed.
        MissingLibraryError: Shells overlap, and the library that unites them is absent.
    """
    notes: list[str] = []
    solids = []
    for shell in shells:
        size = f"{len(shell.solid.triangles)} triangles"
        solid = shell.solid if shell.closed else convex_hull(shell.solid.vertices)
        if solid is None or _is_flat(solid):
            notes.append(f"dropped a part of {size} without volume")
            continue
        if not shell.closed:
            notes.append(
                f"a part of {size} is not watertight beyond repair: its convex hull stands for it, "
                "in mass and in contact (close its holes in Blender or MeshLab for its own shape)"
            )
        solids.append(solid)
    if not solids:
        raise ConfigError(
            "The mesh encloses no volume: it is a flat sheet. Give it a thickness, for instance "
            "with Blender's Solidify modifier."
        )
    body, more = _with_cavities(solids)
    return body, notes + more


def _is_flat(solid: Solid) -> bool:
    size = np.ptp(solid.vertices, axis=0).max()
    return bool(abs(volume(solid)) < LEAST_VOLUME * size**3)


def _with_cavities(solids: Sequence[Solid]) -> tuple[EnclosedBody, list[str]]:
    """Sorts closed surfaces into outer ones and cavities, and unites those that overlap."""
    notes = []
    around = [[k for k in range(len(solids)) if _is_within(one, solids[k])] for one in solids]
    sign = [np.sign(volume(solid)) for solid in solids]
    outer, cavities, inverted, nested = [], [], 0, 0
    for k, solid in enumerate(solids):
        if not around[k]:
            inverted += sign[k] < 0
            outer.append(solid if sign[k] > 0 else _reversed(solid))
        elif sign[k] != sign[around[k][0]]:
            cavities.append(solid if sign[k] < 0 else _reversed(solid))
        else:
            nested += 1
    if inverted:
        notes.append(f"turned {inverted} part(s) inside out, whose normals pointed inward")
    if nested:
        notes.append(f"ignored {nested} part(s) that lie inside another")
    if cavities:
        notes.append(f"kept {len(cavities)} cavity(ies), which weigh nothing")
    parts = tuple(outer)
    if _any_bounding_boxes_overlap(outer):
        outer, more = _united(outer)
        notes += more
        # Parts around a space enclose it: the union has a surface there, too, which faces inward.
        cavities += [solid for solid in outer if volume(solid) < 0]
        outer = [solid for solid in outer if volume(solid) > 0]
    return EnclosedBody(tuple(outer), tuple(cavities), parts), notes


def _is_within(one: Solid, other: Solid) -> bool:
    """Whether a surface lies within another one, as far as a sample of its vertices shows."""
    if other is one or (one.vertices.min(axis=0) < other.vertices.min(axis=0)).any():
        return False
    if (one.vertices.max(axis=0) > other.vertices.max(axis=0)).any():
        return False
    sample = one.vertices[:: max(1, len(one.vertices) // 16)]
    return bool((np.abs(winding_numbers(sample, other)) > 0.5).all())


def _reversed(solid: Solid) -> Solid:
    return Solid(solid.vertices, solid.triangles[:, ::-1])


def _any_bounding_boxes_overlap(solids: Sequence[Solid]) -> bool:
    low = np.array([solid.vertices.min(axis=0) for solid in solids])
    high = np.array([solid.vertices.max(axis=0) for solid in solids])
    overlap = (low[:, None] < high[None]).all(axis=2) & (low[None] < high[:, None]).all(axis=2)
    return bool(np.triu(overlap, 1).any())


def _united(solids: list[Solid]) -> tuple[list[Solid], list[str]]:
    """Returns the union of closed surfaces, in which overlapping volume counts once, and notes."""
    require("manifold3d", "unite the overlapping parts of this mesh")
    try:
        united = call_apart("manifold3d", CLEAN, _union, solids)
    except NativeLibraryError as error:
        reason = str(error).rstrip(".")
        return solids, [
            f"parts were not united, so overlaps count twice in mass and inertia: {reason}"
        ]
    if not united:
        return solids, ["parts touch themselves and cannot be united: an overlap weighs twice"]
    before, after = sum(map(volume, solids)), sum(map(volume, united))
    if before - after <= 1e-9 * before:
        return solids, []
    shared = 100 * (before - after) / before
    return united, [
        f"united {len(solids)} overlapping parts ({shared:.3g}% of their volume shared)"
    ]


def _union(solids: list[Solid]) -> list[Solid]:
    """Returns the connected parts of the union of closed surfaces; none if one touches itself."""
    import manifold3d

    manifolds = [as_manifold(solid) for solid in solids]
    if None in manifolds:
        return []
    union = manifold3d.Manifold.batch_boolean(manifolds, manifold3d.OpType.Add)
    return [from_manifold(part) for part in union.decompose()]


def convex_hull(points: np.ndarray) -> Solid | None:
    """Returns the convex hull of points, (n, 3); None if they lie in a plane."""
    try:
        hull = ConvexHull(points)
    except (QhullError, ValueError):
        return None
    areas = area_vectors(points[hull.simplices])
    inward = np.einsum("ij,ij->i", areas, hull.equations[:, :3]) < 0
    triangles = np.where(inward[:, None], hull.simplices[:, ::-1], hull.simplices)
    return without_unused_vertices(points, triangles)
