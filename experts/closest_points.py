"""Closest points on triangle meshes."""

import math
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
        closest, normals = np.zeros((len(points), 3)), np.zeros((len(points), 3))
        _set_closest(points, self.triangles, triangle_of[nearest], closest, normals)
        return closest, normals


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


# Compiled functions do with numbers what would be shorter with arrays and compile thrice as long.


@compiled
def _set_closest(points, triangles, candidates, closest, normals):
    """Sets the closest points (m, 3) on candidates (m, k) among the triangles, and normals."""
    for i in range(points.shape[0]):
        p = points[i, 0], points[i, 1], points[i, 2]
        best, chosen = np.inf, candidates[i, 0]
        for j in range(candidates.shape[1]):
            if j > 0 and candidates[i, j] == candidates[i, j - 1]:
                continue
            q = _closest_on(triangles, candidates[i, j], p)
            d2 = (q[0] - p[0]) ** 2 + (q[1] - p[1]) ** 2 + (q[2] - p[2]) ** 2
            if d2 < best:
                best, chosen = d2, candidates[i, j]
                closest[i, 0], closest[i, 1], closest[i, 2] = q
        a = _corner(triangles, chosen, 0)
        u = _minus(_corner(triangles, chosen, 1), a)
        v = _minus(_corner(triangles, chosen, 2), a)
        x, y, z = u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]
        length = max(math.sqrt(x**2 + y**2 + z**2), 1e-30)
        normals[i, 0], normals[i, 1], normals[i, 2] = x / length, y / length, z / length


@compiled
def _closest_on(triangles, k, p):
    """Returns the point of triangle k closest to p, by its Voronoi regions."""
    a, b, c = _corner(triangles, k, 0), _corner(triangles, k, 1), _corner(triangles, k, 2)
    ab, ac, ap = _minus(b, a), _minus(c, a), _minus(p, a)
    d1, d2 = _dot(ab, ap), _dot(ac, ap)
    if d1 <= 0 and d2 <= 0:
        return a
    bp = _minus(p, b)
    d3, d4 = _dot(ab, bp), _dot(ac, bp)
    if d3 >= 0 and d4 <= d3:
        return b
    cp = _minus(p, c)
    d5, d6 = _dot(ab, cp), _dot(ac, cp)
    if d6 >= 0 and d5 <= d6:
        return c
    vc, vb, va = d1 * d4 - d3 * d2, d5 * d2 - d1 * d6, d3 * d6 - d5 * d4
    if vc <= 0 and d1 >= 0 and d3 <= 0:
        return _plus(a, ab, d1 / (d1 - d3))
    if vb <= 0 and d2 >= 0 and d6 <= 0:
        return _plus(a, ac, d2 / (d2 - d6))
    if va <= 0 and d4 - d3 >= 0 and d5 - d6 >= 0:
        return _plus(b, _minus(c, b), (d4 - d3) / ((d4 - d3) + (d5 - d6)))
    whole = va + vb + vc
    return (
        a[0] + (ab[0] * vb + ac[0] * vc) / whole,
        a[1] + (ab[1] * vb + ac[1] * vc) / whole,
        a[2] + (ab[2] * vb + ac[2] * vc) / whole,
    )


@compiled
def _corner(triangles, k, i):
    return triangles[k, i, 0], triangles[k, i, 1], triangles[k, i, 2]


@compiled
def _minus(u, v):
    return u[0] - v[0], u[1] - v[1], u[2] - v[2]


@compiled
def _plus(u, v, factor):
    return u[0] + v[0] * factor, u[1] + v[1] * factor, u[2] + v[2] * factor


@compiled
def _dot(u, v):
    return u[0] * v[0] + u[1] * v[1] + u[2] * v[2]
