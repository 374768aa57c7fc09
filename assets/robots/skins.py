"""Smooth surfaces through rings of points, for the Panda's visual shells; lengths in m.

`lathe` places rings along an axis, `loft` between two rails in a plane, and `skin` closes,
triangulates and shades them.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

X, Y, Z = np.eye(3)

Mesh = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Vertices (n, 3), unit normals (n, 3), and vertex indices of the triangles (m, 3)."""


def superellipse(
    centre: np.ndarray, u: np.ndarray, v: np.ndarray, exponent: float, n: int
) -> np.ndarray:
    """Returns a ring of n points, (n, 3), from its centre and half axes, (3,) each.

    The exponent 2 gives an ellipse, a larger one a rounded rectangle.
    """
    angle = 2 * np.pi * np.arange(n) / n
    cs = np.round([np.cos(angle), np.sin(angle)], 12)
    c, s = np.sign(cs) * np.abs(cs) ** (2 / exponent)
    return centre + np.outer(c, u) + np.outer(s, v)


def skin(rings: Sequence[np.ndarray]) -> Mesh:
    """Returns the closed surface through rings, (n, 3) each.

    It is smooth, except for an edge at each ring that is given twice.
    """
    first, last = rings[0], rings[-1]
    rings = [*_lid(first), *rings, *_lid(last)[::-1]]
    same = [np.allclose(a, b, atol=1e-9) for a, b in pairwise(rings)]
    cuts = np.flatnonzero(same) + 1
    meshes = [
        _strip(np.stack(rings[i:j]))
        for i, j in zip([0, *cuts], [*cuts, len(rings)], strict=True)
        if j - i > 1
    ]
    vertices, normals, triangles = join(*meshes)
    volume = np.einsum("ij,ij->", vertices[triangles[:, 0]], _areas(vertices, triangles))
    if volume < 0:  # the rings were given from the far end, so that the surface is inside out
        normals, triangles = -normals, triangles[:, ::-1]
    return vertices, normals, triangles


def join(*meshes: Mesh) -> Mesh:
    """Returns several meshes as one."""
    start = np.cumsum([0, *(len(v) for v, _, _ in meshes)])
    return (
        np.concatenate([v for v, _, _ in meshes]),
        np.concatenate([n for _, n, _ in meshes]),
        np.concatenate([t + i for (_, _, t), i in zip(meshes, start, strict=False)]),
    )


def lathe(
    profile: Iterable[Sequence[float]],
    origin: ArrayLike = (0, 0, 0),
    axis: np.ndarray = Z,
    side: np.ndarray = X,
    exponent: float = 2.0,
    n: int = 20,
) -> Mesh:
    """Returns the surface through superellipses along an axis.

    Args:
        profile: Height and radius of each ring, and optionally its radius across the side.
        origin: Point on the axis, (3,).
        axis: Unit vector of the axis, (3,).
        side: Unit vector perpendicular to the axis, along which the first radius is measured, (3,).
        exponent: Exponent of the superellipses.
        n: Points of a ring.
    """
    centre, across = np.asarray(origin, float), np.cross(axis, side)
    rows = [(*row, row[1])[:3] for row in profile]
    return skin(
        [superellipse(centre + h * axis, r * side, r2 * across, exponent, n) for h, r, r2 in rows]
    )


def loft(
    sections: ArrayLike,
    right: np.ndarray = Y,
    up: np.ndarray = Z,
    exponent: float = 2.0,
    n: int = 20,
    rings_per_section: int = 2,
) -> Mesh:
    """Returns the surface through superellipses between two rails, curved through sections.

    Args:
        sections: Coordinates (r, u) on the one rail, (r, u) on the other, and half width across the
            plane of each section, (k, 5), where r and u are along `right` and `up`.
        right: Unit axis of the plane, (3,).
        up: The other unit axis of the plane, (3,).
        exponent: Exponent of the superellipses.
        n: Points of a ring.
        rings_per_section: Rings of a section.
    """
    s = np.asarray(sections, float)
    s = np.concatenate([2 * s[:1] - s[1:2], s, 2 * s[-1:] - s[-2:-1]])
    t = np.arange(rings_per_section)[:, None] / rings_per_section
    curve = [  # Catmull-Rom splines, which are smooth and pass through every section
        b + t * (c - a) / 2 + t**2 * (2 * a - 5 * b + 4 * c - d) / 2
        + t**3 * (3 * b - a - 3 * c + d) / 2
        for a, b, c, d in zip(s, s[1:], s[2:], s[3:], strict=False)
    ]  # fmt: skip
    plane, across = np.stack([right, up]), np.cross(right, up)
    return skin(
        [
            superellipse((a + b) / 2 @ plane, (b - a) / 2 @ plane, w * across, exponent, n)
            for a, b, w in ((r[:2], r[2:4], r[4]) for r in np.concatenate([*curve, s[-2:-1]]))
        ]
    )


def dome(
    radius: float, low: float, high: float, tip: float = 0.0, steps: int = 5
) -> list[tuple[float, float]]:
    """Returns a profile for `lathe` that curves from one radius at `low` to `tip` at `high`."""
    angle = np.linspace(0, np.pi / 2, steps)
    return [(low + (high - low) * np.sin(a), tip + (radius - tip) * np.cos(a)) for a in angle]


def rounded_box(
    half: Sequence[float],
    centre: ArrayLike,
    rounding: float = 0.004,
    axis: np.ndarray = Z,
    side: np.ndarray = X,
    exponent: float = 8.0,
) -> Mesh:
    """Returns a box with rounded edges.

    Args:
        half: Half sizes along `side`, axis x side and `axis`.
        centre: Centre, (3,).
        rounding: Radius of the edges around the two faces across the axis.
        axis: Unit vector, (3,).
        side: Unit vector perpendicular to the axis, (3,).
        exponent: Exponent of the superellipses across the axis.
    """
    a, b, h = half
    insets = [
        (rounding * (1 - np.cos(t)), rounding * (1 - np.sin(t)))
        for t in np.linspace(0, np.pi / 2, 3)
    ]
    rows = [(z - h, a - s, b - s) for z, s in insets]
    mirrored = [(-z, r, r2) for z, r, r2 in rows[::-1]]
    return lathe([*rows, *mirrored], centre, axis, side, exponent)


def obj_text(mesh: Mesh, header: str) -> str:
    """Returns a mesh as Wavefront OBJ text, to 10 micrometres, with a comment at the top."""
    vertices, normals, triangles = mesh
    lines = [f"v {x} {y} {z}" for x, y, z in _decimals(vertices, 5)]
    lines += [f"vn {x} {y} {z}" for x, y, z in _decimals(normals, 3)]
    lines += [f"f {a}//{a} {b}//{b} {c}//{c}" for a, b, c in triangles + 1]
    return "\n".join([f"# {header}", *lines, ""])


def _lid(end: np.ndarray) -> list[np.ndarray]:
    """Returns the rings of a flat lid from its centre outwards; none where the ring is a point."""
    spokes = end - end.mean(0)
    area = np.cross(spokes, np.roll(spokes, -1, 0)).sum(0)
    return [0 * end + end.mean(0), end] if np.linalg.norm(area) > 1e-9 else []


def _areas(vertices: np.ndarray, triangles: np.ndarray) -> np.ndarray:
    """Returns vectors along the triangles' normals, twice the areas long, (m, 3)."""
    a, b, c = vertices[triangles].transpose(1, 0, 2)
    return np.cross(b - a, c - a)


def _strip(grid: np.ndarray) -> Mesh:
    """Triangulates a smooth run of rings, (m, n, 3), with area-weighted normals."""
    m, n, _ = grid.shape
    index = np.arange(m * n).reshape(m, n)
    a, b = index[:-1], index[1:]
    a2, b2 = np.roll(a, -1, 1), np.roll(b, -1, 1)
    triangles = np.concatenate([np.stack(t, -1).reshape(-1, 3) for t in ((a, a2, b2), (a, b2, b))])
    vertices = grid.reshape(-1, 3)
    area = _areas(vertices, triangles)
    keep = np.linalg.norm(area, axis=1) > 1e-14  # at a pole, half of the triangles have no area
    triangles, area = triangles[keep], area[keep]
    normals = np.zeros_like(vertices)
    for corner in triangles.T:
        np.add.at(normals, corner, area)
    normals = normals.reshape(m, n, 3)
    is_pole = np.ptp(grid, axis=1).max(1) < 1e-9
    normals[is_pole] = normals[is_pole].mean(1, keepdims=True)
    used, triangles = np.unique(triangles, return_inverse=True)
    normals = normals.reshape(-1, 3)[used]
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    return vertices[used], normals, triangles.reshape(-1, 3)


def _decimals(rows: np.ndarray, digits: int) -> list[list[str]]:
    return [[f"{x:.{digits}f}" for x in row] for row in np.round(rows, digits) + 0.0]
