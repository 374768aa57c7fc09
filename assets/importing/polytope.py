"""A convex body of few planes around points, no more than three of which meet anywhere.

Drake moves the planes of a compliant convex mesh outwards by its hydroelastic margin. Where four or
more meet at a vertex it must be split, and the field fails with "a mesh field element was
degenerate". Hulls of scanned or drawn shapes are full of such vertices. A *simple* polytope, whose
vertices lie on three planes each and not too close to each other, has none. It also has few
triangles, which is what contact costs by.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.spatial import ConvexHull, QhullError

from ..solids import Solid

DOMINANT = 0.03
"""Share of the hull's surface from which a face is kept as a plane of its own."""

APART = np.cos(np.radians(8.0))
"""Cosine of the least angle between two planes."""


@dataclass(frozen=True, eq=False)
class Polytope:
    """{x : normals @ x <= offsets}, and its surface.

    Attributes:
        normals: (f, 3), unit.
        offsets: (f,), m.
        solid: Its surface.
        excess: Upper bound of the distance of its vertices from the hull that it contains, m.
    """

    normals: np.ndarray
    offsets: np.ndarray
    solid: Solid
    excess: float


def hull(points: np.ndarray) -> Solid | None:
    """Convex hull of points (n, 3), outward; None if they lie in a plane."""
    try:
        found = ConvexHull(points)
    except (QhullError, ValueError):
        return None
    corners = points[found.simplices]
    across = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    inward = np.einsum("ij,ij->i", across, found.equations[:, :3]) < 0
    triangles = np.where(inward[:, None], found.simplices[:, ::-1], found.simplices)
    used, inverse = np.unique(triangles, return_inverse=True)
    return Solid(points[used], inverse.reshape(-1, 3))


def outer_polytope(
    points: np.ndarray, *, tolerance: float, shortest: float, planes: int = 20
) -> Polytope:
    """A simple polytope that contains points, as tight as a number of planes allows.

    It begins with a box along the hull's largest face. Then every face that makes up a good share
    of the surface gives a plane, and then the farthest vertex is cut off, again and again. A plane
    that would come too near a vertex of others is moved outward a little, or left out.

    Args:
        points: (n, 3), m, not all in a plane.
        tolerance: Cutting ends when no vertex is farther than this from the hull, m.
        shortest: Least distance between two vertices, m.
        planes: At most, 6 or more.

    Raises:
        ValueError: The points lie in a plane.
    """
    around = hull(points)
    if around is None:
        raise ValueError("The points lie in a plane.")
    middle = (around.vertices.min(axis=0) + around.vertices.max(axis=0)) / 2
    size = np.ptp(around.vertices, axis=0).max()
    shortest, tolerance = shortest / size, tolerance / size
    body = _Body((around.vertices - middle) / size)
    best = _boxed(body)
    for normal in body.dominant[: planes * 2 // 3]:
        best = best.with_plane(normal, shortest, planes) or best
    now, refused = best, []
    for _ in range(4 * planes):
        normal = now.next_cut(refused) if now.excess > tolerance else None
        if normal is None:
            break
        cut = now.with_plane(normal, shortest, planes)
        if cut is None:
            refused.append(normal)
        else:
            now = cut
            best = min(best, now, key=lambda one: one.excess)
    return Polytope(
        best.normals,
        best.offsets * size + best.normals @ middle,
        Solid(best.vertices * size + middle, best.triangles()),
        best.excess * size,
    )


class _Body:
    """The convex body to be wrapped, about one unit large and about the origin."""

    def __init__(self, points: np.ndarray) -> None:
        self.points = points
        found = ConvexHull(points)
        self.inner = points[found.vertices].mean(axis=0)
        self.faces = _merged_faces(found.equations[:, :3], _areas(points[found.simplices]))
        self.dominant = [normal for normal, share in self.faces if share >= DOMINANT]
        # Distances are taken from a hull of a few hundred of the points; it lies within.
        few = np.unique(np.argmax(points @ _directions(400).T, axis=0))
        within = points if len(points) <= 400 else points[few]
        self.corners = within[ConvexHull(within).simplices]
        self._known: dict[tuple, tuple[np.ndarray, float]] = {}

    def support(self, normal: np.ndarray) -> float:
        return float((self.points @ normal).max())

    def nearest(self, point: np.ndarray) -> tuple[np.ndarray, float]:
        """Nearest point of the body (3,) to one outside it, and its distance."""
        from trimesh.triangles import closest_point

        key = tuple(np.round(point, 9))
        if key not in self._known:  # one cut leaves most vertices as they were
            near = closest_point(self.corners, np.broadcast_to(point, (len(self.corners), 3)))
            distances = np.linalg.norm(near - point, axis=1)
            k = int(np.argmin(distances))
            self._known[key] = near[k], float(distances[k])
        return self._known[key]


class _Planes:
    """A simple bounded polytope about a body; planes that are `spare` may be given up."""

    def __init__(self, body: _Body, normals, offsets, spare) -> None:
        self.body = body
        # In the dual, planes are points and vertices are facets of their hull.
        found = ConvexHull(normals / (offsets - normals @ body.inner)[:, None])
        a, b = found.equations[:, :3], found.equations[:, 3]
        if (b > -1e-3).any():
            raise QhullError("unbounded")
        used, inverse = np.unique(found.simplices, return_inverse=True)
        self.normals, self.offsets, self.spare = normals[used], offsets[used], spare[used]
        self.three = inverse.reshape(-1, 3)  # planes that meet at each vertex
        self.vertices = body.inner - a / b[:, None]

    @cached_property
    def near(self) -> list[tuple[np.ndarray, float]]:
        """For each vertex the nearest point of the body, and its distance."""
        return [self.body.nearest(vertex) for vertex in self.vertices]

    @property
    def excess(self) -> float:
        return max(distance for _, distance in self.near)

    def shortest(self) -> float:
        gaps = self.vertices[:, None] - self.vertices[None]
        squared = np.einsum("ijk,ijk->ij", gaps, gaps)
        return float(np.sqrt(squared[~np.eye(len(squared), dtype=bool)].min()))

    def next_cut(self, refused: list[np.ndarray]) -> np.ndarray | None:
        """Normal of the plane that cuts off the farthest vertex for which that was not refused."""
        for k in np.argsort([-distance for _, distance in self.near], kind="stable"):
            near, distance = self.near[k]
            if distance < 1e-6:
                break
            normal = (self.vertices[k] - near) / distance
            if not any(normal @ other > 1 - 1e-6 for other in refused):
                return normal
        return None

    def with_plane(self, normal: np.ndarray, shortest: float, planes: int) -> _Planes | None:
        """What becomes of it with one more plane: as it touches the body, if that does; else the
        tightest with the plane a little farther out, or without one of the box's.
        """
        near = self.normals @ normal > APART
        if (near & ~self.spare).any():
            return None
        kept = np.flatnonzero(~near)
        fewer = [np.delete(kept, k) for k, plane in enumerate(kept) if self.spare[plane]]
        offset = self.body.support(normal)

        def allowed(choice: np.ndarray, move: float) -> _Planes | None:
            changed = self._changed(choice, normal, offset + move)
            fits = changed and len(changed.normals) <= planes and changed.shortest() >= shortest
            return changed if fits else None

        if plain := allowed(kept, 0.0):
            return plain
        others = [allowed(choice, 0.0) for choice in fewer]
        others += [allowed(kept, move * shortest) for move in (1.0, 2.0, 4.0)]
        others = [one for one in others if one and one.excess <= self.excess]
        return min(others, key=lambda one: round(one.excess, 9), default=None)

    def _changed(self, choice: np.ndarray, normal: np.ndarray, offset: float) -> _Planes | None:
        try:
            return _Planes(
                self.body,
                np.vstack([self.normals[choice], normal]),
                np.append(self.offsets[choice], offset),
                np.append(self.spare[choice], False),
            )
        except QhullError:
            return None

    def triangles(self) -> np.ndarray:
        """Each face as a fan, outward."""
        fans = []
        for plane, normal in enumerate(self.normals):
            loop = np.flatnonzero((self.three == plane).any(axis=1))
            arm = self.vertices[loop] - self.vertices[loop].mean(axis=0)
            u = arm[0] / np.linalg.norm(arm[0])
            order = np.argsort(np.arctan2(arm @ np.cross(normal, u), arm @ u))
            loop = loop[order]
            fans += [(loop[0], a, b) for a, b in itertools.pairwise(loop[1:])]
        return np.array(fans)


def _boxed(body: _Body) -> _Planes:
    """A box along the largest face, and along the largest face that stands on it."""
    z = body.faces[0][0]
    across = [(normal - z * (normal @ z), share) for normal, share in body.faces[1:]]
    weighed = [(np.linalg.norm(x) ** 2 * share, k) for k, (x, share) in enumerate(across)]
    x = across[max(weighed, key=lambda pair: (round(pair[0], 9), -pair[1]))[1]][0]
    x /= np.linalg.norm(x)
    axes = np.array([x, np.cross(z, x), z])
    normals = np.vstack([axes, -axes])
    offsets = np.array([body.support(normal) for normal in normals])
    return _Planes(body, normals, offsets, np.ones(6, bool))


def _merged_faces(normals: np.ndarray, areas: np.ndarray) -> list[tuple[np.ndarray, float]]:
    """Normals of flat faces and their share of the surface, the largest first."""
    cells = np.round(normals * 1e4)
    _, inverse = np.unique(cells, axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    shares = np.bincount(inverse, areas) / areas.sum()
    sums = np.column_stack([np.bincount(inverse, areas * x) for x in normals.T])
    units = sums / np.linalg.norm(sums, axis=1, keepdims=True)
    order = np.argsort(-np.round(shares, 9), kind="stable")
    return [(units[k], float(shares[k])) for k in order]


def _areas(corners: np.ndarray) -> np.ndarray:
    across = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    return np.linalg.norm(across, axis=1) / 2


def _directions(count: int) -> np.ndarray:
    """(count, 3) unit vectors spread evenly over the sphere, on a spiral."""
    z = 1 - (2 * np.arange(count) + 1) / count
    turn = np.arange(count) * np.pi * (3 - np.sqrt(5))
    return np.column_stack([np.sqrt(1 - z**2) * np.cos(turn), np.sqrt(1 - z**2) * np.sin(turn), z])
