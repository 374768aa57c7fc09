"""Closed triangle meshes as values, lofts, from which all of them are built, and mass properties.

A loft is a surface through closed rings of points. Boxes, prisms, turned and forged shapes are
lofts through `Section`s along z. Lengths are in metres.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True, eq=False)
class Solid:
    """A closed surface, or several disjoint ones.

    Attributes:
        vertices: Positions, (n, 3).
        triangles: Vertex indices, (m, 3), counter-clockwise seen from outside.
    """

    vertices: np.ndarray
    triangles: np.ndarray

    def transformed(self, rotation: np.ndarray, translation: ArrayLike) -> "Solid":
        """Returns the solid after x -> rotation @ x + translation.

        Args:
            rotation: Rotation matrix, (3, 3), or a positive multiple of one.
            translation: Vector, (3,), m.
        """
        vertices = self.vertices @ np.transpose(rotation) + np.asarray(translation)
        return Solid(vertices, self.triangles)

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the lowest and the highest coordinates of the vertices, (3,) each, m."""
        return self.vertices.min(axis=0), self.vertices.max(axis=0)


ROUND, OCTAGONAL, SQUARE = 8, 2, 1
"""Corner points of sections, see `Section.outline`."""


@dataclass(frozen=True)
class Section:
    """A rectangle with rounded corners in the x-y plane, centred on the origin.

    Attributes:
        half_x, half_y: Half widths, m.
        radius: Radius of the corners, m; a section whose half widths equal it is a circle.
    """

    half_x: float
    half_y: float
    radius: float

    def outline(self, corner_points: int) -> np.ndarray:
        """Returns a polygon around the section that is exactly as wide as the section.

        The corners circumscribe their arcs, so that 1 point gives the rectangle, 2 points give
        chamfers, and 2 points on a circle give a regular octagon. Sections that are drawn with the
        same number of points have parallel edges; hence a loft between two of them has plane sides
        and is convex. Coordinates are whole nanometres, as meshes are written; with 1 or 2 points
        the edges stay exactly parallel.

        Args:
            corner_points: Number of points at each corner.

        Returns:
            Vertices, (4 * corner_points, 2), counter-clockwise.
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

    def interpolated(self, other: "Section", fraction: float) -> "Section":
        """Returns the section at a fraction of the way to another one."""

        def mix(a: float, b: float) -> float:
            return a + (b - a) * fraction

        return Section(
            mix(self.half_x, other.half_x),
            mix(self.half_y, other.half_y),
            mix(self.radius, other.radius),
        )


def circle(radius: float) -> Section:
    """Returns a round section."""
    return Section(radius, radius, radius)


def rectangle(half_x: float, half_y: float) -> Section:
    """Returns a section with sharp corners, to be drawn with one corner point."""
    return Section(half_x, half_y, 0.0)


SectionStation = tuple[float, Section]
"""A height z, m, and the section there."""

Station = tuple[float, Section | None]
"""A height z, m, and the section there; None closes the surface in an apex on the axis."""


def fillet(start: SectionStation, end: SectionStation, steps: int = 4) -> list[SectionStation]:
    """Returns stations after `start`, up to and including `end`, along a smooth S-curve."""
    (z0, first), (z1, last) = start, end
    fractions = [(k + 1) / steps for k in range(steps)]
    return [(z0 + (z1 - z0) * t, first.interpolated(last, t * t * (3 - 2 * t))) for t in fractions]


def section_ring(
    section: Section | None, z: float, corner_points: int, axis: tuple[float, float] = (0.0, 0.0)
) -> np.ndarray:
    """Returns points around a section, (n, 3); one point on the axis if the section is None.

    Args:
        section: The section.
        z: Its height, m.
        corner_points: See `Section.outline`.
        axis: x and y of its centre, m.
    """
    outline = np.zeros((1, 2)) if section is None else section.outline(corner_points)
    return np.column_stack([outline + axis, np.full(len(outline), z)])


def section_loft(
    stations: Iterable[Station], corner_points: int, axis: tuple[float, float] = (0.0, 0.0)
) -> Solid:
    """Returns the loft through sections along z, see `section_ring`; heights are monotonic."""
    return loft([section_ring(section, z, corner_points, axis) for z, section in stations])


def frusta(
    stations: Iterable[Station], corner_points: int, axis: tuple[float, float] = (0.0, 0.0)
) -> tuple[Solid, ...]:
    """Returns convex solids for contact: one between each two neighbouring sections along z.

    At each of their vertices exactly three planes meet. Drake moves the planes outwards by its
    hydroelastic margin, and where four or more meet, at an apex or along a diagonal that rounding
    has bent, it fails with "a mesh field element was degenerate".

    Arguments are as in `section_loft`. Sides stay plane when they are written with 1 or 2 corner
    points, see `Section.outline`.

    Raises:
        ValueError: The number of corner points is neither 1 nor 2.
    """
    if corner_points not in (1, 2):
        raise ValueError(
            f"{corner_points} corner points would bend the sides of a frustum; give 1 or 2"
        )
    x, y = (round(coordinate, 9) for coordinate in axis)
    pairs = itertools.pairwise(stations)
    return tuple(section_loft(pair, corner_points, (x, y)) for pair in pairs)


def box(lower: ArrayLike, upper: ArrayLike) -> Solid:
    """Returns the axis-aligned box between two corners, (3,) each, m."""
    low, high = np.asarray(lower), np.asarray(upper)
    half_x, half_y, _ = (high - low) / 2
    x, y, _ = (low + high) / 2
    section = rectangle(half_x, half_y)
    return section_loft([(low[2], section), (high[2], section)], 1, (x, y))


def loft(rings: Sequence[np.ndarray]) -> Solid:
    """Returns the closed surface through convex rings of points.

    Args:
        rings: Positions, (n, 3) each, point k of a ring beside point k of the next; a ring of one
            point is an apex.
    """
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
    inside_out = tetrahedron_volumes(solid).sum() < 0
    return Solid(solid.vertices, solid.triangles[:, ::-1]) if inside_out else solid


def joined(*solids: Solid) -> Solid:
    """Returns several solids as one value; they may touch, but must not overlap."""
    offsets = np.cumsum([0] + [len(solid.vertices) for solid in solids])
    shifted = [s.triangles + k for s, k in zip(solids, offsets, strict=False)]
    return Solid(np.concatenate([s.vertices for s in solids]), np.concatenate(shifted))


def tetrahedron_volumes(solid: Solid) -> np.ndarray:
    """Returns signed volumes of the tetrahedra between the triangles and the origin, (m,), m^3."""
    return np.linalg.det(solid.vertices[solid.triangles]) / 6


def area_vectors(corners: np.ndarray) -> np.ndarray:
    """Returns vectors (m, 3) along normals of triangles (m, 3 corners, 3), twice the areas long."""
    return np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])


def without_unused_vertices(vertices: np.ndarray, triangles: np.ndarray) -> Solid:
    """Returns a solid with the vertices, (n, 3), to which triangles, (m, 3), refer."""
    used, inverse = np.unique(triangles, return_inverse=True)
    return Solid(vertices[used], inverse.reshape(-1, 3))


def distances_to_triangles(point: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """Returns the distance of a point, (3,), from each triangle, (m, 3 corners, 3), (m,), m."""
    from trimesh.triangles import closest_point

    nearest = closest_point(corners, np.broadcast_to(point, (len(corners), 3)))
    return np.linalg.norm(nearest - point, axis=1)


MAX_MAPS = 300
"""Number of maps that are tried to let sides lean."""


def leaning(solid: Solid) -> Solid:
    """Returns a convex solid whose sides lean, whichever face it lies on, if a map allows it."""
    from fleet_tools.sim.resting_faces import resting_sides

    middle, leaned = np.mean(solid.bounds(), axis=0), solid
    for (leaned,) in slightly_mapped([solid]):
        if not any(side.upright for side in resting_sides({"": leaned.vertices}, middle)):
            break
    return leaned


def slightly_mapped(solids: Sequence[Solid]) -> Iterator[tuple[Solid, ...]]:
    """Yields solids after projective maps, which keep their planes plane, and common ones common.

    Sides at right angles, with which Drake's contact solver stops too early
    (`fleet_tools.sim.resting_faces`), then lean by about 1e-4 rad, but for chance. Vertices move by
    less than 3e-4 of the size of all solids.
    """
    corners = np.concatenate([solid.vertices for solid in solids])
    middle, size = (corners.min(0) + corners.max(0)) / 2, np.ptp(corners, axis=0).max()
    generator = np.random.default_rng(0)
    for _ in range(MAX_MAPS):  # p -> (p + S p) / (1 + c p)
        c, (x, y, z) = generator.uniform(-1e-4, 1e-4, (2, 3))
        shear = np.array([[0, z, y], [z, 0, x], [y, x, 0]])
        mapped = []
        for solid in solids:
            p = (solid.vertices - middle) / size
            p = (p + p @ shear) / (1 + p @ c)[:, None]
            mapped.append(Solid(p * size + middle, solid.triangles))
        yield tuple(mapped)


@dataclass(frozen=True)
class MassProperties:
    """Mass properties of a rigid body.

    Attributes:
        mass: Mass, kg.
        centre: Centre of mass, (3,), m.
        inertia: Inertia about the centre of mass, (3, 3), kg m^2.
    """

    mass: float
    centre: np.ndarray
    inertia: np.ndarray


def mass_properties(solid: Solid, density: float) -> MassProperties:
    """Returns the exact mass properties of a homogeneous solid, whose density is in kg/m^3.

    They are sums over the signed tetrahedra between its triangles and the origin.
    """
    corners = solid.vertices[solid.triangles]  # (m, 3 corners, 3)
    masses = density * np.linalg.det(corners) / 6  # (m,)
    sums = corners.sum(axis=1)  # (m, 3)
    mass = masses.sum()
    centre = masses @ sums / 4 / mass
    second = np.einsum("t,tki,tkj->ij", masses / 20, corners, corners)
    second += np.einsum("t,ti,tj->ij", masses / 20, sums, sums)
    return MassProperties(mass, centre, _inertia(second - mass * np.outer(centre, centre)))


def combined(bodies: Sequence[MassProperties]) -> MassProperties:
    """Returns the mass properties of bodies that are joined rigidly."""
    mass = sum(body.mass for body in bodies)
    centre = sum((body.mass * body.centre for body in bodies), np.zeros(3)) / mass
    inertia = np.zeros((3, 3))
    for body in bodies:
        arm = body.centre - centre
        inertia = inertia + body.inertia + _inertia(body.mass * np.outer(arm, arm))
    return MassProperties(mass, centre, inertia)


def _inertia(second_moment: np.ndarray) -> np.ndarray:
    return np.trace(second_moment) * np.eye(3) - second_moment
