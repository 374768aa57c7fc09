"""Closed triangle meshes as values: building, mass properties, and OBJ text.

Everything is one construction, a loft: a skin over closed rings of points. Boxes, prisms, turned
and forged shapes are lofts of `Section`s along z. Lengths are in metres.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

CREASE_DEG = 35.0
"""Faces that meet at less than this angle are shaded as one smooth surface."""


@dataclass(frozen=True, eq=False)
class Solid:
    """A closed surface, or several disjoint ones.

    Attributes:
        vertices: (n, 3) positions.
        triangles: (m, 3) vertex indices, counter-clockwise seen from outside.
    """

    vertices: np.ndarray
    triangles: np.ndarray

    def transformed(self, rotation: np.ndarray, translation: Sequence[float]) -> Solid:
        """The solid after x -> rotation @ x + translation; the rotation is proper."""
        return Solid(self.vertices @ np.transpose(rotation) + translation, self.triangles)


@dataclass(frozen=True)
class MassProperties:
    """Mass (kg), centre of mass (3,) in m, and inertia (3, 3) in kg m^2 about that centre."""

    mass: float
    centre: np.ndarray
    inertia: np.ndarray


@dataclass(frozen=True)
class Section:
    """A rectangle with rounded corners, centred on the origin; radius = half widths: a circle."""

    half_x: float
    half_y: float
    radius: float

    def outline(self, corner_points: int) -> np.ndarray:
        """(4 * corner_points, 2) polygon around the section, exactly as wide as it is.

        Corners are drawn as polygons about their arcs, so that 1 gives the rectangle, 2 chamfers,
        and 2 on a circle a regular octagon. Sections drawn with equally many points have parallel
        edges; hence a loft between two of them has plane sides and is convex. Everything is in
        whole nanometres, as meshes are written; for 1 and 2 points the edges stay exactly parallel.
        """
        step = math.pi / 2 / corner_points
        reach = self.radius / math.cos(step / 2)
        x, y = (round(half - self.radius, 9) for half in (self.half_x, self.half_y))
        across = [round(reach * math.cos((k + 0.5) * step), 9) for k in range(corner_points)]
        arc = list(zip(across, reversed(across), strict=True))
        points = [(x + dx, y + dy) for dx, dy in arc]
        points += [(-x - dy, y + dx) for dx, dy in arc]
        points += [(-x - dx, -y - dy) for dx, dy in arc]
        points += [(x + dy, -y - dx) for dx, dy in arc]
        return np.array(points)

    def towards(self, other: Section, fraction: float) -> Section:
        """The section that lies a fraction of the way to another."""

        def mix(a: float, b: float) -> float:
            return a + (b - a) * fraction

        return Section(
            mix(self.half_x, other.half_x),
            mix(self.half_y, other.half_y),
            mix(self.radius, other.radius),
        )


def circle(radius: float) -> Section:
    """A round section."""
    return Section(radius, radius, radius)


def rectangle(half_x: float, half_y: float) -> Section:
    """A sharp section; draw it with one corner point."""
    return Section(half_x, half_y, 0.0)


Station = tuple[float, Section | None]
"""A height z and the section there; None closes the surface in an apex on the axis."""


def fillet(start: Station, end: Station, steps: int = 4) -> list[Station]:
    """Stations after `start`, up to and including `end`, along a smooth S-curve."""
    (z0, first), (z1, last) = start, end
    fractions = [(k + 1) / steps for k in range(steps)]
    return [(z0 + (z1 - z0) * t, first.towards(last, t * t * (3 - 2 * t))) for t in fractions]


def ring(
    section: Section | None, z: float, corner_points: int, axis: tuple[float, float] = (0.0, 0.0)
) -> np.ndarray:
    """(n, 3) points around a section at height z, about the line x, y = axis."""
    outline = np.zeros((1, 2)) if section is None else section.outline(corner_points)
    return np.column_stack([outline + axis, np.full(len(outline), z)])


def stack(
    stations: Iterable[Station], corner_points: int, axis: tuple[float, float] = (0.0, 0.0)
) -> Solid:
    """Loft over sections along z, about the line x, y = axis."""
    return loft([ring(section, z, corner_points, axis) for z, section in stations])


def frusta(
    stations: Iterable[Station], corner_points: int, axis: tuple[float, float] = (0.0, 0.0)
) -> tuple[Solid, ...]:
    """One convex solid between each two neighbours among sections along z, about x, y = axis.

    Made for contact: at each vertex exactly three planes meet. Drake moves the planes outwards by
    its hydroelastic margin, and where four or more meet, at an apex or along a diagonal that
    rounding has bent, it fails with "a mesh field element was degenerate".

    Args:
        corner_points: 1 or 2, whose sides stay plane when they are written.
    """
    if corner_points not in (1, 2):
        raise ValueError(f"{corner_points} corner points bend a frustum's sides; take 1 or 2")
    x, y = (round(coordinate, 9) for coordinate in axis)
    pairs = itertools.pairwise(stations)
    return tuple(stack(pair, corner_points, (x, y)) for pair in pairs)


def box(lower: Sequence[float], upper: Sequence[float]) -> Solid:
    """Axis-aligned box between two corners."""
    lower, upper = np.asarray(lower), np.asarray(upper)
    half_x, half_y, _ = (upper - lower) / 2
    section = rectangle(half_x, half_y)
    return stack([(lower[2], section), (upper[2], section)], 1, tuple((lower + upper)[:2] / 2))


def loft(rings: Sequence[np.ndarray]) -> Solid:
    """Closed skin over rings (n, 3), convex and in step; a ring of one point is an apex."""
    starts = np.cumsum([0] + [len(ring) for ring in rings])
    loops = [range(s, s + len(ring)) for s, ring in zip(starts, rings, strict=False)]
    first, last = loops[0], loops[-1]
    triangles = [(first[0], b, a) for a, b in itertools.pairwise(first[1:])]
    for below, above in itertools.pairwise(loops):
        n = max(len(below), len(above))
        for k in range(n):
            a, b = below[k % len(below)], below[(k + 1) % len(below)]
            c, d = above[(k + 1) % len(above)], above[k % len(above)]
            if a != b:
                triangles.append((a, b, d))
            if c != d:
                triangles.append((b, c, d))
    triangles += [(last[0], a, b) for a, b in itertools.pairwise(last[1:])]
    solid = Solid(np.concatenate(rings), np.array(triangles))
    inside_out = mass_properties(solid, 1.0).mass < 0
    return Solid(solid.vertices, solid.triangles[:, ::-1]) if inside_out else solid


def join(*solids: Solid) -> Solid:
    """Several solids as one value. They may touch, but must not overlap."""
    offsets = np.cumsum([0] + [len(solid.vertices) for solid in solids])
    shifted = [s.triangles + k for s, k in zip(solids, offsets, strict=False)]
    return Solid(np.concatenate([s.vertices for s in solids]), np.concatenate(shifted))


def mass_properties(solid: Solid, density: float) -> MassProperties:
    """Exact mass properties of a homogeneous solid, by signed tetrahedra over the origin."""
    corners = solid.vertices[solid.triangles]  # (m, 3 corners, 3)
    masses = density * np.linalg.det(corners) / 6  # (m,)
    sums = corners.sum(axis=1)  # (m, 3)
    mass = masses.sum()
    centre = masses @ sums / 4 / mass
    second = np.einsum("t,tki,tkj->ij", masses / 20, corners, corners)
    second += np.einsum("t,ti,tj->ij", masses / 20, sums, sums)
    return MassProperties(mass, centre, _inertia(second - mass * np.outer(centre, centre)))


def combined(parts: Sequence[MassProperties]) -> MassProperties:
    """Mass properties of bodies held together."""
    mass = sum(part.mass for part in parts)
    centre = sum(part.mass * part.centre for part in parts) / mass
    inertia = np.zeros((3, 3))
    for part in parts:
        arm = part.centre - centre
        inertia = inertia + part.inertia + _inertia(part.mass * np.outer(arm, arm))
    return MassProperties(mass, centre, inertia)


def _inertia(second_moment: np.ndarray) -> np.ndarray:
    return np.trace(second_moment) * np.eye(3) - second_moment


def corner_normals(solid: Solid) -> np.ndarray:
    """(m, 3 corners, 3) unit normals, smooth across edges up to `CREASE_DEG`, sharp beyond."""
    a, b, c = np.moveaxis(solid.vertices[solid.triangles], 1, 0)
    areas = np.cross(b - a, c - a)  # (m, 3), along the normal, twice the area long
    units = areas / np.linalg.norm(areas, axis=1, keepdims=True)
    normals = np.empty((len(solid.triangles), 3, 3))
    for vertex in range(len(solid.vertices)):
        around, corner = np.nonzero(solid.triangles == vertex)
        smooth = units[around] @ units[around].T > math.cos(math.radians(CREASE_DEG))
        normals[around, corner] = smooth @ areas[around]
    return normals / np.linalg.norm(normals, axis=2, keepdims=True)


def obj_text(solid: Solid, places: int = 9) -> str:
    """Wavefront OBJ with normals; the same solid gives the same text.

    Args:
        solid: Without degenerate triangles.
        places: Digits of a coordinate after the point.
    """
    rounded = np.round(corner_normals(solid).reshape(-1, 3), 4) + 0.0  # no -0
    normals, used = np.unique(rounded, axis=0, return_inverse=True)
    lines = ["v " + " ".join(decimal(x, places) for x in vertex) for vertex in solid.vertices]
    lines += ["vn " + " ".join(decimal(x, 4) for x in normal) for normal in normals]
    for corners in zip(solid.triangles + 1, used.reshape(-1, 3) + 1, strict=True):
        lines.append("f " + " ".join(f"{v}//{n}" for v, n in zip(*corners, strict=True)))
    return "\n".join(lines) + "\n"


def decimal(value: float, places: int) -> str:
    """Shortest decimal of a rounded number; never -0, so equal values are equal text."""
    text = f"{value:.{places}f}".rstrip("0").rstrip(".") if places else f"{value:.0f}"
    return "0" if text in ("-0", "") else text
