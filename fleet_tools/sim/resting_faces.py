"""Faces on which a body can rest, and sides at right angles to them.

Drake moves the faces of a compliant convex shape outwards by its hydroelastic margin. In this shell
the pressure is negative, and it grows inwards along the normal of the nearest face. While the body
lies on a table, the contact polygon under an upright side thus has negative pressure, and a
stiffness that is a rounding error. The cost of Drake's solver gets a constant of up to 1e30 J. No
change of the cost counts beside it, so the solver stops after its first step, and forces and
motions of the whole system are wrong (`docs/results/drake_sap_early_stop.md`).

A side that leans inwards has no such polygon, because Drake drops polygons whose pressure falls
with depth. A side that leans outwards has one whose constant is harmless.
"""

import functools
import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from scipy.spatial import ConvexHull, QhullError

LEAST_LEAN = 1e-5
"""Least angle by which sides differ from upright, rad. A shape of 1e9 Pa with a dissipation of
200 s/m then adds less than 1e8 J to the cost, which the solver's tolerance of 1e-15 bears."""

_SAME_PLANE = 2e-4
"""Distance from a plane up to which a corner counts as lying in it, m: twice the margin."""


class RestingSide(NamedTuple):
    """The side of a body's shapes that is nearest to upright while the body lies on a face.

    Attributes:
        shape: Name of the shape.
        face, side: Outward unit normals of both in the body's frame.
        lean: Angle by which the side differs from upright, rad.
    """

    shape: str
    face: tuple[float, ...]
    side: tuple[float, ...]
    lean: float

    @property
    def upright(self) -> bool:
        """Whether Drake's solver would stop too early on the face."""
        return self.lean < LEAST_LEAN

    def __str__(self) -> str:
        """Returns it in words."""
        face, side = ("(" + ", ".join(f"{x:.2g}" for x in n) + ")" for n in self[1:3])
        return f"{self.shape} on its face {face} with the side {side}"


def resting_sides(shapes: Mapping[str, np.ndarray], p_BCom: np.ndarray) -> tuple[RestingSide, ...]:
    """Returns a side for each face on which a free body can lie, those nearest to upright first.

    Args:
        shapes: Corners of its convex collision shapes, (n, 3), m, in its frame B, by name.
        p_BCom: (3,), its centre of mass, m.
    """
    corners = tuple((name, np.asarray(points, float).tobytes()) for name, points in shapes.items())
    return _resting_sides(corners, tuple(map(float, p_BCom)))


def resting_shapes(shapes: Mapping[str, np.ndarray], p_BCom: np.ndarray) -> set[str]:
    """Returns the names of shapes with a face on which a free body can lie; see `resting_sides`."""
    planes = list(_resting_planes(np.concatenate([*shapes.values()]), p_BCom))
    return {
        name
        for name, points in shapes.items()
        if any(np.count_nonzero(_lying(points, plane)) >= 3 for plane in planes)
    }


@functools.lru_cache(maxsize=256)  # worlds are built again and again with the same models
def _resting_sides(
    named: tuple[tuple[str, bytes], ...], p_BCom: tuple[float, ...]
) -> tuple[RestingSide, ...]:
    shapes = {name: np.frombuffer(corners).reshape(-1, 3) for name, corners in named}
    nearest = []
    for face in _resting_planes(np.concatenate([*shapes.values()]), np.array(p_BCom)):
        sides = [
            RestingSide(name, tuple(face[:3]), tuple(side), math.asin(min(abs(face[:3] @ side), 1)))
            for name, points in shapes.items()
            for side in _sides(points, face)
        ]
        if sides:
            nearest.append(min(sides, key=lambda side: side.lean))
    return tuple(sorted(nearest, key=lambda side: side.lean))


def _lying(points: np.ndarray, plane: np.ndarray) -> np.ndarray:
    return np.abs(points @ plane[:3] + plane[3]) < _SAME_PLANE


def _sides(points: np.ndarray, face: np.ndarray) -> Iterator[np.ndarray]:
    """Yields the normals of a shape's sides, (3,), at the edges of its face in a plane."""
    lying = _lying(points, face)
    if np.count_nonzero(lying) >= 3:
        hull = ConvexHull(points)
        at_edges = np.count_nonzero(lying[hull.simplices], axis=1) == 2
        yield from hull.equations[at_edges, :3]


def _resting_planes(corners: np.ndarray, p_BCom: np.ndarray) -> Iterator[np.ndarray]:
    """Yields the planes, [n, d] with n x + d = 0, of the faces below the centre of mass."""
    try:
        hull = ConvexHull(corners)
    except (QhullError, ValueError):  # a shape without volume is refused elsewhere
        return
    seen, number = np.empty((len(hull.equations), 3)), 0
    for plane in hull.equations:
        if (seen[:number] @ plane[:3] > 1.0 - 1e-9).any():
            continue
        seen[number], number = plane[:3], number + 1
        base = corners[_lying(corners, plane)]
        x, y = np.linalg.svd(plane[None, :3])[2][1:]
        try:
            outline = ConvexHull(base @ np.column_stack([x, y]))
        except (QhullError, ValueError):
            continue  # an edge or a corner of another face
        if (outline.equations @ [p_BCom @ x, p_BCom @ y, 1.0]).max() < 0.0:
            yield plane
