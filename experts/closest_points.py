"""Closest points on triangle meshes."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.spatial import KDTree

from fleet_tools.utils.compiled import compiled

SAMPLES = 20_000
"""Number of points that stand for a surface where its nearest triangles are looked up."""
NEIGHBOURS = 8
"""Number of nearest samples whose triangles are looked at."""


@dataclass(frozen=True, eq=False)
class Surface:
    """A rigid surface.

    Attributes:
        triangles: (n, 3, 3), corners in the surface's frame, m; n > 0.
    """

    triangles: np.ndarray

    @cached_property
    def _tree(self) -> tuple[KDTree, np.ndarray]:
        points, triangles = sample(self.triangles, SAMPLES)
        points = np.concatenate([points, self.triangles.mean(axis=1)])  # none is left out
        return KDTree(points), np.concatenate([triangles, np.arange(len(self.triangles))])

    def closest(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the closest points of the surface, and its normals there.

        Args:
            points: (m, 3), in the surface's frame, m.

        Returns:
            (m, 3) each; normals point to where the corners go round counterclockwise.
        """
        tree, triangle_of = self._tree
        _, nearest = tree.query(points, k=NEIGHBOURS)
        return _closest_of(points, self.triangles, triangle_of[nearest])


def sample(triangles: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns points that are spread evenly over triangles; the same ones each time.

    Args:
        triangles: (n, 3, 3), corners, m.
        count: Number of points.

    Returns:
        The points (count, 3), m, and the indices of their triangles (count,).
    """
    edges = triangles[:, 1:] - triangles[:, :1]
    areas = np.linalg.norm(np.cross(edges[:, 0], edges[:, 1]), axis=1)
    shares = np.cumsum(areas) / areas.sum()
    chosen = np.searchsorted(shares, (np.arange(count) + 0.5) / count)
    u, v = np.random.default_rng(0).uniform(size=(2, count, 1))
    u, v = np.where(u + v > 1, 1 - u, u), np.where(u + v > 1, 1 - v, v)
    return triangles[chosen, 0] + u * edges[chosen, 0] + v * edges[chosen, 1], chosen


@compiled
def _closest_of(points, triangles, candidates):
    """Returns the closest points (m, 3) on candidates (m, k) among the triangles, and normals."""
    m, k = candidates.shape
    closest, normals = np.zeros((m, 3)), np.zeros((m, 3))
    for i in range(m):
        best = np.inf
        chosen = candidates[i, 0]
        for j in range(k):
            if j > 0 and candidates[i, j] == candidates[i, j - 1]:
                continue
            x, y, z = _closest_on(triangles[candidates[i, j]], points[i])
            d2 = (x - points[i, 0]) ** 2 + (y - points[i, 1]) ** 2 + (z - points[i, 2]) ** 2
            if d2 < best:
                best, chosen = d2, candidates[i, j]
                closest[i, 0], closest[i, 1], closest[i, 2] = x, y, z
        a, b, c = triangles[chosen]
        u, v = b - a, c - a
        n = np.array(
            [u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]]
        )
        normals[i] = n / max(np.sqrt(n[0] ** 2 + n[1] ** 2 + n[2] ** 2), 1e-30)
    return closest, normals


@compiled
def _closest_on(triangle, p):
    """Returns the point of a triangle (3, 3) closest to p, by its Voronoi regions."""
    a, b, c = triangle
    ab, ac, ap = b - a, c - a, p - a
    d1, d2 = _dot(ab, ap), _dot(ac, ap)
    if d1 <= 0 and d2 <= 0:
        return a[0], a[1], a[2]
    bp = p - b
    d3, d4 = _dot(ab, bp), _dot(ac, bp)
    if d3 >= 0 and d4 <= d3:
        return b[0], b[1], b[2]
    cp = p - c
    d5, d6 = _dot(ab, cp), _dot(ac, cp)
    if d6 >= 0 and d5 <= d6:
        return c[0], c[1], c[2]
    vc, vb, va = d1 * d4 - d3 * d2, d5 * d2 - d1 * d6, d3 * d6 - d5 * d4
    if vc <= 0 and d1 >= 0 and d3 <= 0:
        q = a + ab * (d1 / (d1 - d3))
    elif vb <= 0 and d2 >= 0 and d6 <= 0:
        q = a + ac * (d2 / (d2 - d6))
    elif va <= 0 and d4 - d3 >= 0 and d5 - d6 >= 0:
        q = b + (c - b) * ((d4 - d3) / ((d4 - d3) + (d5 - d6)))
    else:
        q = a + (ab * vb + ac * vc) / (va + vb + vc)
    return q[0], q[1], q[2]


@compiled
def _dot(u, v):
    return u[0] * v[0] + u[1] * v[1] + u[2] * v[2]
