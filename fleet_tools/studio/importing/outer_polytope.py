"""Outer polytopes with few planes around points, and three planes at each vertex.

Drake moves the planes of a compliant convex mesh outwards by its hydroelastic margin. A vertex at
which four or more planes meet must then be split, and the field fails with "a mesh field element
was degenerate". Convex hulls of scanned or designed shapes are full of such vertices. A *simple*
polytope, whose vertices lie on three planes each and not too close to each other, has none. It also
has few triangles, with whose number the cost of contact grows.
"""

import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.spatial import ConvexHull, QhullError

from fleet_tools.assets.solids import Solid, area_vectors
from fleet_tools.studio.importing.enclosed_body import convex_hull

DOMINANT = 0.03
"""Least area of a face that is kept as a plane of its own, as a fraction of the hull's surface."""

MAX_COSINE = np.cos(np.radians(8.0))
"""Cosine of the least angle between the normals of two planes."""


@dataclass(frozen=True, eq=False)
class Polytope:
    """The polytope {x : normals @ x <= offsets}.

    Attributes:
        normals: Unit normals of the planes, (f, 3).
        offsets: Distances of the planes from the origin, (f,), m.
        solid: Surface.
        excess: Upper bound of the distance of its vertices from the hull that it contains, m.
    """

    normals: np.ndarray
    offsets: np.ndarray
    solid: Solid
    excess: float


def outer_polytope(
    points: np.ndarray, *, tolerance: float, shortest: float, max_planes: int = 20
) -> Polytope:
    """Returns a simple polytope that contains points, as tight as a number of planes allows.

    It begins with a box along the hull's largest face. Then every face with a large fraction of the
    surface adds a plane, and then the farthest vertex is cut off repeatedly. A plane that would
    come too close to a vertex of others is moved outward a little, or left out.

    Args:
        points: Positions, (n, 3), m, not all in a plane.
        tolerance: Distance of the farthest vertex from the hull at which cutting ends, m.
        shortest: Least distance between two vertices, m.
        max_planes: Largest number of planes, 6 or more.

    Raises:
        ValueError: The points lie in a plane.
    """
    hull = convex_hull(points)
    if hull is None:
        raise ValueError("all points lie in one plane")
    middle = (hull.vertices.min(axis=0) + hull.vertices.max(axis=0)) / 2
    size = np.ptp(hull.vertices, axis=0).max()
    shortest, tolerance = shortest / size, tolerance / size
    body = _Body((hull.vertices - middle) / size)
    best = _bounding_box(body)
    for normal in body.dominant[: max_planes * 2 // 3]:
        best = best.with_plane(normal, shortest, max_planes) or best
    present, refused = best, []
    for _ in range(4 * max_planes):
        normal = present.next_cut(refused) if present.excess > tolerance else None
        if normal is None:
            break
        cut = present.with_plane(normal, shortest, max_planes)
        if cut is None:
            refused.append(normal)
        elif len(cut.offsets) == len(present.offsets) and (cut.offsets == present.offsets).all():
            break  # the plane was moved out so far that it cuts nothing, now and ever
        else:
            present = cut
            best = min(best, present, key=lambda candidate: candidate.excess)
    return Polytope(
        best.normals,
        best.offsets * size + best.normals @ middle,
        Solid(best.vertices * size + middle, best.triangles()),
        best.excess * size,
    )


class _Body:
    """The convex body to be enclosed, scaled to unit size about the origin.

    Attributes:
        points: Its points, (n, 3).
        inner: A point inside, (3,).
        faces: Unit normals of flat faces, (f, 3), and their fractions of the surface, (f,), the
            largest first.
        dominant: Normals of the faces that are kept as planes of their own.
    """

    def __init__(self, points: np.ndarray) -> None:
        self.points = points
        hull = ConvexHull(points)
        areas = np.linalg.norm(area_vectors(points[hull.simplices]), axis=1) / 2
        self.inner = points[hull.vertices].mean(axis=0)
        self.faces = _merged_faces(hull.equations[:, :3], areas)
        self.dominant = list(self.faces[0][self.faces[1] >= DOMINANT])
        # Distances are measured from a hull of a few hundred of the points, which lies within.
        extreme = np.unique(np.argmax(points @ _directions(400).T, axis=0))
        sample = points if len(points) <= 400 else points[extreme]
        self._corners = sample[ConvexHull(sample).simplices]
        self._nearest: dict[tuple[float, ...], tuple[np.ndarray, float]] = {}

    def support(self, normal: np.ndarray) -> float:
        """Returns the largest extent along a normal."""
        return float((self.points @ normal).max())

    def nearest(self, point: np.ndarray) -> tuple[np.ndarray, float]:
        """Returns the nearest point of the body, (3,), to one outside it, and its distance."""
        from trimesh.triangles import closest_point

        key = tuple(np.round(point, 9))
        if key not in self._nearest:  # a cut leaves most vertices unchanged
            near = closest_point(self._corners, np.broadcast_to(point, (len(self._corners), 3)))
            distances = np.linalg.norm(near - point, axis=1)
            k = int(np.argmin(distances))
            self._nearest[key] = near[k], float(distances[k])
        return self._nearest[key]


class _Planes:
    """A simple bounded polytope around a body.

    Args:
        body: The body.
        normals: Unit normals, (f, 3).
        offsets: Distances from the origin, (f,).
        is_spare: Whether a plane may be given up, (f,).

    Attributes:
        normals, offsets, is_spare: Those of the planes that touch the polytope.
        planes_at: Indices of the planes that meet at each vertex, (v, 3).
        vertices: Vertices, (v, 3).

    Raises:
        QhullError: The planes do not bound a polytope.
    """

    def __init__(
        self, body: _Body, normals: np.ndarray, offsets: np.ndarray, is_spare: np.ndarray
    ) -> None:
        self._body = body
        # In the dual, planes are points and vertices are facets of their hull.
        dual = ConvexHull(normals / (offsets - normals @ body.inner)[:, None])
        a, b = dual.equations[:, :3], dual.equations[:, 3]
        if (b > -1e-3).any():
            raise QhullError("unbounded")
        used, inverse = np.unique(dual.simplices, return_inverse=True)
        self.normals, self.offsets, self.is_spare = normals[used], offsets[used], is_spare[used]
        self.planes_at = inverse.reshape(-1, 3)
        self.vertices = body.inner - a / b[:, None]

    @cached_property
    def nearest(self) -> list[tuple[np.ndarray, float]]:
        """Nearest point of the body to each vertex, and its distance."""
        return [self._body.nearest(vertex) for vertex in self.vertices]

    @property
    def excess(self) -> float:
        """Largest distance of a vertex from the body."""
        return max(distance for _, distance in self.nearest)

    def shortest(self) -> float:
        """Returns the least distance between two vertices."""
        gaps = self.vertices[:, None] - self.vertices[None]
        squared = np.einsum("ijk,ijk->ij", gaps, gaps)
        return float(np.sqrt(squared[~np.eye(len(squared), dtype=bool)].min()))

    def next_cut(self, refused: list[np.ndarray]) -> np.ndarray | None:
        """Returns the normal of the plane that cuts off the farthest vertex, if there is one.

        Vertices that need a plane whose normal was refused are skipped.
        """
        for k in np.argsort([-distance for _, distance in self.nearest], kind="stable"):
            near, distance = self.nearest[k]
            if distance < 1e-6:
                break
            normal = (self.vertices[k] - near) / distance
            if not any(normal @ other > 1 - 1e-6 for other in refused):
                return normal
        return None

    def with_plane(self, normal: np.ndarray, shortest: float, max_planes: int) -> "_Planes | None":
        """Returns the polytope with one more plane, or None if it cannot be added.

        The plane touches the body, if the result is allowed. Otherwise the result is the tightest
        of those with the plane a little farther out, or without one of the spare planes.
        """
        near = self.normals @ normal > MAX_COSINE
        if (near & ~self.is_spare).any():
            return None
        kept = np.flatnonzero(~near)
        fewer = [np.delete(kept, k) for k, plane in enumerate(kept) if self.is_spare[plane]]
        offset = self._body.support(normal)

        def allowed(planes: np.ndarray, shift: float) -> _Planes | None:
            changed = self._changed(planes, normal, offset + shift)
            if changed is None or len(changed.normals) > max_planes:
                return None
            return changed if changed.shortest() >= shortest else None

        touching = allowed(kept, 0.0)
        if touching is not None:
            return touching
        others = [allowed(planes, 0.0) for planes in fewer]
        others += [allowed(kept, shift * shortest) for shift in (1.0, 2.0, 4.0)]
        tighter = [other for other in others if other is not None and other.excess <= self.excess]
        return min(tighter, key=lambda other: round(other.excess, 9), default=None)

    def _changed(self, kept: np.ndarray, normal: np.ndarray, offset: float) -> "_Planes | None":
        """Returns the polytope of the planes with given indices and of one more plane."""
        try:
            return _Planes(
                self._body,
                np.vstack([self.normals[kept], normal]),
                np.append(self.offsets[kept], offset),
                np.append(self.is_spare[kept], False),
            )
        except QhullError:
            return None

    def triangles(self) -> np.ndarray:
        """Returns vertex indices of the surface, (m, 3): a fan for each face, facing outward."""
        fans = []
        for plane, normal in enumerate(self.normals):
            loop = np.flatnonzero((self.planes_at == plane).any(axis=1))
            arm = self.vertices[loop] - self.vertices[loop].mean(axis=0)
            u = arm[0] / np.linalg.norm(arm[0])
            order = np.argsort(np.arctan2(arm @ np.cross(normal, u), arm @ u))
            loop = loop[order]
            fans += [(loop[0], a, b) for a, b in itertools.pairwise(loop[1:])]
        return np.array(fans)


def _bounding_box(body: _Body) -> _Planes:
    """Returns a box along the largest face, and along the largest face perpendicular to it."""
    directions, fractions = body.faces
    z = directions[0]
    across = directions - np.outer(directions @ z, z)
    x = across[np.argmax(np.round((across**2).sum(axis=1) * fractions, 9))]
    x /= np.linalg.norm(x)
    axes = np.array([x, np.cross(z, x), z])
    normals = np.vstack([axes, -axes])
    offsets = np.array([body.support(normal) for normal in normals])
    return _Planes(body, normals, offsets, np.ones(6, bool))


def _merged_faces(normals: np.ndarray, areas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Merges triangles of flat faces, whose unit normals (m, 3) and areas (m,) are given.

    Returns:
        Normals of the faces, (f, 3), and their fractions of the surface, (f,), the largest first.
    """
    cells = np.round(normals * 1e4)
    _, inverse = np.unique(cells, axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    fractions = np.bincount(inverse, areas) / areas.sum()
    sums = np.column_stack([np.bincount(inverse, areas * x) for x in normals.T])
    units = sums / np.linalg.norm(sums, axis=1, keepdims=True)
    order = np.argsort(-np.round(fractions, 9), kind="stable")
    return units[order], fractions[order]


def _directions(count: int) -> np.ndarray:
    """Returns unit vectors spread evenly over the sphere, on a spiral, (count, 3)."""
    z = 1 - (2 * np.arange(count) + 1) / count
    angle = np.arange(count) * np.pi * (3 - np.sqrt(5))
    radius = np.sqrt(1 - z**2)
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle), z])
