"""Geometry that rules measure: unions of convex pieces, and models that are made of them.

Frame M is the model frame.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.spatial import ConvexHull, QhullError

from fleet_tools.assets.solids import distances_to_triangles
from fleet_tools.errors import ConfigError
from fleet_tools.sim.resting_faces import RestingSide

if TYPE_CHECKING:  # families are generated without Drake
    from pydrake.math import RigidTransform

    from fleet_tools.sim.catalog import Kind

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

        The line has an origin, (3,), m, and a direction, a unit vector (3,).
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
        return float(distances_to_triangles(point, self.triangles).min())


def chords(
    pieces: Iterable[ConvexPiece], origin: np.ndarray, direction: np.ndarray, gap: float = 1e-5
) -> list[tuple[float, float]]:
    """Returns the intervals in which a line lies within a union of pieces, see `chord`, in order.

    Intervals with a gap of at most `gap`, m, between them are joined.
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


@dataclass(frozen=True, eq=False)
class LinkGeometry:
    """A link of a model.

    Attributes:
        pieces: Convex pieces of the collision geometry, in M; a shape that is not convex counts as
            its convex hull.
        mass: Mass, kg.
        p_MCom: Centre of mass in M, (3,), m.
        moments: Principal moments of inertia about the centre of mass, (3,), kg m^2.
    """

    pieces: tuple[ConvexPiece, ...]
    mass: float
    p_MCom: np.ndarray
    moments: np.ndarray


@dataclass(frozen=True, eq=False)
class ModelGeometry:
    """A model as it is measured.

    Attributes:
        kind: Whether it is a tool or an object.
        links: Its links by name.
        keypoint_links: The link of each keypoint.
        p_M: Positions of the keypoints in M, (3,) each, m.
        X_MG: Pose of the grasp frame of a tool.
        sides: Of each group of welded links, the side nearest to upright on a face to lie on.
        family: Name of its family.
    """

    kind: "Kind"
    links: Mapping[str, LinkGeometry]
    keypoint_links: Mapping[str, str]
    p_M: Mapping[str, np.ndarray]
    X_MG: "RigidTransform"
    sides: tuple[RestingSide, ...] = ()
    family: str = ""

    @cached_property
    def pieces(self) -> tuple[ConvexPiece, ...]:
        """The pieces of all links."""
        return tuple(piece for link in self.links.values() for piece in link.pieces)

    @cached_property
    def length(self) -> float:
        """Longest side of the bounding box, m."""
        return float(np.ptp(np.concatenate([p.vertices for p in self.pieces]), axis=0).max())

    def axis(self, start: str, end: str) -> np.ndarray:
        """Returns the unit vector from one keypoint to another in M, (3,).

        Raises:
            ConfigError: They coincide.
        """
        difference = self.p_M[end] - self.p_M[start]
        length = np.linalg.norm(difference)
        if length < 1e-9:
            raise ConfigError(f"The keypoints {start} and {end} coincide.")
        return difference / length

    def chords(self, origin: np.ndarray, direction: np.ndarray) -> list[tuple[float, float]]:
        """Returns the intervals in which a line lies within the model, see `chords`."""
        return chords(self.pieces, origin, direction)
