"""Registration of models with known shape to point clouds: a pure function of its arguments.

A model is a set of rigid surfaces, its links, whose poses are a function of a few parameters, such
as place and angle on a table and the positions of joints. The parameters are found by Gauss-Newton
steps on the distances from the points of the cloud to the surface.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fleet_tools.experts.closest_points import Surface

Placement = Callable[[np.ndarray], np.ndarray]
"""Given parameters (n,), returns poses (links, 4, 4) in the cloud's frame."""

STEP = 1e-5
"""Difference of a parameter from which derivatives are computed, m or rad."""
DAMPING = 1e-6
"""Damping of steps relative to the largest stiffness; for directions that the cloud leaves free."""
SMALL = 5e-6
"""Largest change of a parameter, m or rad, after which no further step is taken."""
TOUCHING_M = 1e-6
"""Distance below which the direction to the surface is its normal, m."""


@dataclass(frozen=True, eq=False)
class Registration:
    """Parameters with which a model fits a cloud.

    Attributes:
        parameters: (n,), m or rad.
        residual_m: Distance to the surface that 95% of the cloud's points keep, m. The mean would
            hide the few points that tell how far something is turned.
    """

    parameters: np.ndarray
    residual_m: float


@dataclass(frozen=True)
class Schedule:
    """How accurately to register.

    Attributes:
        points: Largest number of points of the cloud.
        scales_m: For each step, the distance from which a point's pull no longer grows (Huber), m.
        fits_m: Largest residual of a good fit, m.
        starts: Largest number of starts.
    """

    points: int
    scales_m: tuple[float, ...]
    fits_m: float
    starts: int = 1

    def points_of(self, cloud: np.ndarray) -> np.ndarray:
        """Returns points of a cloud, evenly spaced in its order."""
        if len(cloud) <= self.points:
            return cloud
        return cloud[np.linspace(0, len(cloud) - 1, self.points).round().astype(int)]


@dataclass(frozen=True, eq=False)
class Fit:
    """What a model is fitted to.

    Attributes:
        links: Surfaces of the links, each in its frame.
        place: Their poses by the parameters.
        low, high: (n,), bounds of the parameters.
    """

    links: Sequence[Surface]
    place: Placement
    low: np.ndarray
    high: np.ndarray

    def register(
        self, cloud: np.ndarray, start: np.ndarray, scales_m: Iterable[float]
    ) -> Registration:
        """Returns the parameters near a start with which the model fits a cloud.

        Args:
            cloud: (m, 3), points on the model's surface, m; m > 0.
            start: (n,), where to start.
            scales_m: See `Schedule`.
        """
        x = np.clip(start, self.low, self.high)
        for scale in scales_m:
            last, x = x, np.clip(x + self._step(cloud, x, scale), self.low, self.high)
            if np.abs(x - last).max(initial=0.0) < SMALL:
                break
        return self._judged(cloud, x)

    def best(
        self,
        cloud: np.ndarray,
        starts: Iterable[np.ndarray],
        offsets: np.ndarray,
        coarse: Schedule,
        fine: Schedule,
    ) -> Registration:
        """Returns the best fit from several starts; the first one that is good enough.

        Args:
            cloud: (m, 3), points on the model's surface, m; m > 0.
            starts: Where to start, (n,) each, at least one.
            offsets: (k, n), steps away from the best fit that are tried if none is good enough:
                the facets of a round part hold Gauss-Newton steps back.
            coarse: Schedule from each start.
            fine: Schedule from the best results of this.
        """
        few, many = coarse.points_of(cloud), fine.points_of(cloud)
        waiting: list[Registration] = []
        fits: list[Registration] = []

        def refine(rough: Registration) -> Registration:
            fits.append(self.register(many, rough.parameters, fine.scales_m))
            return fits[-1]

        for start in starts:
            rough = self.register(few, start, coarse.scales_m)
            if rough.residual_m > coarse.fits_m:
                waiting.append(rough)
            elif refine(rough).residual_m <= fine.fits_m:
                return fits[-1]
        for rough in sorted(waiting, key=_residual)[: fine.starts]:
            refine(rough)
        best = min(fits, key=_residual)
        around = [self._judged(many, best.parameters + offset) for offset in offsets]
        for rough in sorted(around, key=_residual)[: fine.starts]:
            refine(rough)
        return min(fits, key=_residual)

    def _judged(self, cloud: np.ndarray, x: np.ndarray) -> Registration:
        x = np.clip(x, self.low, self.high)
        distances, *_ = self._distances(cloud, self.place(x))
        return Registration(x, float(np.percentile(np.abs(distances), 95)))

    def _step(self, cloud: np.ndarray, x: np.ndarray, scale: float) -> np.ndarray:
        """Returns a Gauss-Newton step, (n,)."""
        X = self.place(x)
        distances, normals, points, link = self._distances(cloud, X)
        twists = self._twists(x)[:, link]  # (n, m, 6)
        velocities = np.cross(twists[..., :3], points) + twists[..., 3:]
        J = np.einsum("nmi,mi->mn", velocities, normals)
        weights = np.minimum(1.0, scale / np.maximum(np.abs(distances), 1e-12))
        H = J.T @ (weights[:, None] * J)
        H[np.diag_indices_from(H)] += DAMPING * np.maximum(H.diagonal(), H.diagonal().max() * 1e-3)
        return np.linalg.solve(H, J.T @ (weights * distances))

    def _distances(
        self, cloud: np.ndarray, X: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Returns distances (m,), their directions (m, 3), closest points (m, 3) and links (m,)."""
        found = []
        for surface, X_L in zip(self.links, X, strict=True):
            R, p = X_L[:3, :3], X_L[:3, 3]
            closest, normals = surface.closest((cloud - p) @ R)
            found.append((closest @ R.T + p, normals @ R.T))
        points, normals = map(np.stack, zip(*found, strict=True))
        link = np.argmin(np.linalg.norm(cloud - points, axis=2), axis=0)
        rows = np.arange(len(cloud))
        points, normals = points[link, rows], normals[link, rows]
        gaps = cloud - points
        lengths = np.linalg.norm(gaps, axis=1)
        far = lengths > TOUCHING_M
        normals[far] = gaps[far] / lengths[far, None]
        return np.einsum("mi,mi->m", gaps, normals), normals, points, link

    def _twists(self, x: np.ndarray) -> np.ndarray:
        """Returns the links' angular and linear velocities by each parameter, (n, links, 6)."""
        twists = []
        for h in np.eye(len(x)) * STEP:
            ahead, behind = self.place(x + h), self.place(x - h)
            A = (ahead @ np.linalg.inv(behind) - np.eye(4)) / (2 * STEP)
            w = np.stack(
                [A[:, 2, 1] - A[:, 1, 2], A[:, 0, 2] - A[:, 2, 0], A[:, 1, 0] - A[:, 0, 1]]
            )
            twists.append(np.concatenate([w.T / 2, A[:, :3, 3]], axis=1))
        return np.array(twists)


def _residual(found: Registration) -> float:
    return found.residual_m
