"""Measurements of bodies that are unions of convex polytopes: chords, distances and volumes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.spatial import ConvexHull, QhullError

from fleet_tools.errors import ConfigError

PARALLEL = 1e-12
"""Largest cosine between a line and a plane that counts as parallel."""


@dataclass(frozen=True, eq=False)
class ConvexPiece:
    """A convex polytope {x : normals @ x <= offsets}.

    Attributes:
        vertices: Positions, (n, 3), m; their convex hull is the piece.
    """

    vertices: np.ndarray

    @cached_property
    def _hull(self) -> ConvexHull:
        try:
            return ConvexHull(self.vertices)
        except (QhullError, ValueError) as error:
            raise ConfigError(
                f"A collision shape has no volume: its {len(self.vertices)} vertices lie in a "
                "plane."
            ) from error

    @property
    def normals(self) -> np.ndarray:
        """Outward unit normals of the sides, (m, 3)."""
        return self._hull.equations[:, :3]

    @property
    def offsets(self) -> np.ndarray:
        """Distances of the sides from the origin along their normals, (m,), m."""
        return -self._hull.equations[:, 3]

    @property
    def triangles(self) -> np.ndarray:
        """Corners of the triangles of the surface, (k, 3 corners, 3), m."""
        return self.vertices[self._hull.simplices]

    @property
    def volume(self) -> float:
        """Volume, m^3."""
        return float(self._hull.volume)

    def chord(self, origin: np.ndarray, direction: np.ndarray) -> tuple[float, float] | None:
        """Returns the interval in which a line lies within the piece; None if it misses.

        Args:
            origin: Point of the line at 0, (3,), m.
            direction: Unit vector, (3,).
        """
        rates, room = self.normals @ direction, self.offsets - self.normals @ origin
        parallel = np.abs(rates) < PARALLEL
        if (room[parallel] < 0).any():
            return None
        ends = room[~parallel] / rates[~parallel]
        enters = ends[rates[~parallel] < 0].max(initial=-np.inf)
        leaves = ends[rates[~parallel] > 0].min(initial=np.inf)
        return (float(enters), float(leaves)) if enters < leaves else None

    def signed_distance(self, point: np.ndarray) -> float:
        """Returns the distance of a point, (3,), from the surface, m; negative inside."""
        depth = float((self.offsets - self.normals @ point).min())
        if depth >= 0:
            return -depth
        from trimesh.triangles import closest_point

        triangles = self.triangles
        nearest = closest_point(triangles, np.broadcast_to(point, (len(triangles), 3)))
        return float(np.linalg.norm(nearest - point, axis=1).min())


def chords(
    pieces: Iterable[ConvexPiece], origin: np.ndarray, direction: np.ndarray, gap: float = 1e-5
) -> list[tuple[float, float]]:
    """Returns the intervals in which a line lies within a union of pieces, in order.

    Args:
        pieces: The pieces.
        origin: Point of the line at 0, (3,), m.
        direction: Unit vector, (3,).
        gap: Largest gap between intervals that are joined, m.
    """
    hits = [piece.chord(origin, direction) for piece in pieces]
    joined: list[tuple[float, float]] = []
    for start, end in sorted(hit for hit in hits if hit is not None):
        if joined and start <= joined[-1][1] + gap:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def signed_distance(pieces: Sequence[ConvexPiece], point: np.ndarray) -> float:
    """Returns the distance of a point, (3,), from a union of pieces, m; negative inside.

    Inside, it is the depth in the piece in which the point lies deepest.
    """
    return min(piece.signed_distance(point) for piece in pieces)
