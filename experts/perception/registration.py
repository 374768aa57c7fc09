"""Registration of models with known shape to point clouds: a pure function of its arguments.

A model is a set of rigid surfaces, its links, whose poses are a function of a few parameters, such
as place and angle on a table and the positions of joints. The parameters are found by Gauss-Newton
steps on the distances from the points of the cloud to the surface.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial import KDTree

from fleet_tools.experts.perception.shapes import TriangleSurface, sample

SAMPLES = 300
"""Number of points of a model that the cloud should show."""
HIDDEN_M = 4e-3
"""Distance from the cloud, across the surface, from which a point of the model is hidden, m."""
SPACING_M = 2e-3
"""Distance between neighbouring points of a cloud that has no gap, m."""
GRAZING = 0.1
"""Cosine of the angle to its normal from behind which a surface is not seen."""
WEIGHT = 0.05
"""Weight of the model's points, all together, relative to the cloud's."""


@dataclass(frozen=True, eq=False)
class ScaleTerms:
    """Terms of the fit of a model whose scale is unknown, beside the distances from the cloud.

    A plane lies in a larger plane, so distances from the cloud alone do not tell the size of a
    blade. The points of the model have cloud beside them if it is not too large. Nor do distances
    tell the two sides of a thin blade apart, of which cameras see the one that faces them.

    Attributes:
        spread: (n,), standard deviation that a parameter is expected to have about 0; infinite for
            those that may have any value.
        points, normals: (links, m, 3) each, points of the links' surfaces in their frames, m.
        cloud: The cloud that should show them.
        cameras: (k, 3), where the cloud may have been seen from, in its frame, m.
    """

    spread: np.ndarray
    points: np.ndarray
    normals: np.ndarray
    cloud: KDTree
    cameras: np.ndarray

    @classmethod
    def of(
        cls,
        links: Sequence[TriangleSurface],
        spread: np.ndarray,
        cloud: np.ndarray,
        cameras: np.ndarray,
    ) -> "ScaleTerms":
        """Makes the terms of links and a cloud, (n, 3), m."""
        points = np.array([sample(each.triangles, SAMPLES)[0] for each in links])
        normals = np.array([each.closest(p)[1] for each, p in zip(links, points, strict=True)])
        return cls(spread, points, normals, KDTree(cloud), cameras)

    def gaps(self, A: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Returns how far from the cloud points of the model are, along its surface.

        Across the surface would tell nothing: the far side of a blade is not seen.

        Args:
            A: (links, 4, 4), maps of the links into the cloud's frame.

        Returns:
            Distances (m,), directions to the cloud (m, 3), points (m, 3) and links (m,).
        """
        M = A[:, :3, :3]
        points = np.einsum("lij,lmj->lmi", M, self.points) + A[:, None, :3, 3]
        normals = np.einsum("lji,lmj->lmi", np.linalg.inv(M), self.normals)
        link = np.repeat(np.arange(len(A)), points.shape[1])
        points, normals = points.reshape(-1, 3), normals.reshape(-1, 3)
        normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-30)
        _, nearest = self.cloud.query(points)
        directions = self.cloud.data[nearest] - points
        across = np.einsum("mi,mi->m", directions, normals)
        directions -= across[:, None] * normals
        directions[np.abs(across) > HIDDEN_M] = 0.0
        distances = np.linalg.norm(directions, axis=1)
        directions /= np.maximum(distances, 1e-12)[:, None]
        return np.maximum(distances - SPACING_M, 0.0), directions, points, link

    def hidden(self, points: np.ndarray, normals: np.ndarray) -> np.ndarray:
        """Returns which points of surfaces, (m, 3), face away from all cameras, (m,)."""
        rays = self.cameras[:, None] - points
        facing = np.einsum("kmi,mi->km", rays, normals) / np.linalg.norm(rays, axis=2)
        return (facing < -GRAZING).all(axis=0)


Placement = Callable[[np.ndarray], np.ndarray]
"""Given parameters (n,), returns affine maps (links, 4, 4) into the cloud's frame."""

STEP = 1e-5
"""Difference of a parameter from which derivatives are computed, m or rad."""
DAMPING = 1e-6
"""Damping of steps relative to the largest stiffness; for directions that the cloud leaves free."""
LEAST_STIFFNESS = 1e-6
"""Stiffness for each point that steps have at least: a plane slides in a larger one without any."""
SMALL = 5e-6
"""Largest change of a parameter, m or rad, after which no further step is taken."""
FAR_M = 5e-3
"""Distance from which a point only counts as one that does not fit, where shapes differ, m."""
EXPECTED_M = 5e-4
"""Distance that clouds have from models that are scaled, for the weight of expected scales, m."""
TOUCHING_M = 1e-6
"""Distance below which the direction to the surface is its normal, m."""
MIN_POINTS = 30
"""Smallest number of points that say where something is."""


@dataclass(frozen=True, eq=False)
class Registration:
    """Parameters with which a model fits a cloud.

    Attributes:
        parameters: (n,), m or rad.
        residual_m: Distance to the surface that 95% of the cloud's points keep, m. The mean would
            hide the few points that tell how far something is turned. With scale terms, the mean
            distance of the cloud from the model plus the model's from the cloud; points on a
            side that no camera sees do not fit.
    """

    parameters: np.ndarray
    residual_m: float


@dataclass(frozen=True)
class Schedule:
    """Accuracy of a registration.

    Attributes:
        points: Largest number of points of the cloud.
        scales_m: For each step, the distance from which a point's pull no longer grows (Huber), m.
        fits_m: Largest residual of a good fit, m.
        starts: Largest number of starts.
    """

    points: int
    scales_m: tuple[float, ...]
    fits_m: float = 0.0
    starts: int = 1

    def points_of(self, cloud: np.ndarray) -> np.ndarray:
        """Returns points of a cloud, evenly spaced in its order."""
        if len(cloud) <= self.points:
            return cloud
        return cloud[np.linspace(0, len(cloud) - 1, self.points).round().astype(int)]


COARSE = Schedule(150, (0.03, 0.02, 0.01, 0.005, 0.002), fits_m=1e-3)
FINE = Schedule(800, (0.005, *[0.002] * 9), fits_m=3e-5, starts=4)
TRACK = Schedule(300, (0.02, 0.01, 0.005, 0.002), fits_m=3e-5)
"""Accuracy of registration from each start, from the best of them, and from the last pose."""


@dataclass(frozen=True, eq=False)
class Fit:
    """A model that is fitted: its surfaces, poses and bounds.

    Attributes:
        links: Surfaces of the links, each in its frame.
        place: Their poses by the parameters.
        low, high: (n,), bounds of the parameters.
        scale_terms: Terms for a model that does not have the shape of what the cloud shows.
    """

    links: Sequence[TriangleSurface]
    place: Placement
    low: np.ndarray
    high: np.ndarray
    scale_terms: ScaleTerms | None = None

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
        return self.judged(cloud, x)

    def judged(self, cloud: np.ndarray, x: np.ndarray) -> Registration:
        """Returns parameters with their residual, see `register`."""
        x = np.clip(x, self.low, self.high)
        A = self.place(x)
        points, normals, _ = self._closest(cloud, A)
        distances = np.abs(_distances(cloud - points, normals)[0])
        if self.scale_terms is None:
            return Registration(x, float(np.percentile(distances, 95)))
        distances[self.scale_terms.hidden(points, normals)] = FAR_M
        gaps, *_ = self.scale_terms.gaps(A)
        return Registration(
            x, float(np.minimum(distances, FAR_M).mean() + WEIGHT * np.minimum(gaps, FAR_M).mean())
        )

    def _step(self, cloud: np.ndarray, x: np.ndarray, scale: float) -> np.ndarray:
        """Returns a Gauss-Newton step, (n,)."""
        A = self.place(x)
        rates = self._rates(x) @ np.linalg.inv(A)  # (n, links, 4, 4)
        points, normals, link = self._closest(cloud, A)
        distances, directions = _distances(cloud - points, normals)
        J = _slopes(rates, points, directions, link)
        weights = np.minimum(1.0, scale / np.maximum(np.abs(distances), 1e-12))
        H, g = J.T @ (weights[:, None] * J), J.T @ (weights * distances)
        if self.scale_terms is not None:
            gaps, directions, points, link = self.scale_terms.gaps(A)
            J = _slopes(rates, points, directions, link)
            weights = WEIGHT * len(cloud) / len(gaps) / (1 + (gaps / scale) ** 2) ** 2
            stiffness = len(cloud) * (EXPECTED_M / self.scale_terms.spread) ** 2
            H += J.T @ (weights[:, None] * J) + np.diag(stiffness)
            g += J.T @ (weights * gaps) - stiffness * x
        stiffest = max(H.diagonal().max(), LEAST_STIFFNESS * len(cloud))
        H[np.diag_indices_from(H)] += DAMPING * np.maximum(H.diagonal(), stiffest * 1e-3)
        return np.linalg.solve(H, g)

    def _closest(
        self, cloud: np.ndarray, A: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns closest points (m, 3), normals of the surface there (m, 3), and links (m,).

        Of a link that is scaled, points are the closest in its own frame, which is close to it.
        """
        found = []
        for surface, A_L in zip(self.links, A, strict=True):
            M, p = A_L[:3, :3], A_L[:3, 3]
            inverse = np.linalg.inv(M)
            closest, normals = surface.closest((cloud - p) @ inverse.T)
            found.append((closest @ M.T + p, normals @ inverse))
        points, normals = map(np.stack, zip(*found, strict=True))
        link = np.argmin(np.linalg.norm(cloud - points, axis=2), axis=0)
        rows = np.arange(len(cloud))
        points, normals = points[link, rows], normals[link, rows]
        normals /= np.linalg.norm(normals, axis=1, keepdims=True)
        return points, normals, link

    def _rates(self, x: np.ndarray) -> np.ndarray:
        """Returns derivatives of the links' maps by each parameter, (n, links, 4, 4)."""
        steps = np.eye(len(x)) * STEP
        return np.array([(self.place(x + h) - self.place(x - h)) / (2 * STEP) for h in steps])


@dataclass(frozen=True, eq=False)
class StartedFit:
    """A model and where to start with it.

    Attributes:
        fit: The model.
        starts: Where to start, (n,) each, at least one.
        offsets: (k, n), steps away from the best fit that are tried if none is good enough: the
            facets of a round part hold Gauss-Newton steps back.
    """

    fit: Fit
    starts: Iterable[np.ndarray]
    offsets: np.ndarray


def best(
    cloud: np.ndarray, candidates: Sequence[StartedFit], coarse: Schedule, fine: Schedule
) -> tuple[int, Registration]:
    """Returns the best fit of several models and starts; the first one that is good enough.

    Args:
        cloud: (m, 3), points on the surface of one of the models, m; m > 0.
        candidates: Models and starts, at least one.
        coarse: Schedule from each start.
        fine: Schedule from the best results of this.

    Returns:
        Index of the candidate, and its fit.
    """
    few, many = coarse.points_of(cloud), fine.points_of(cloud)
    waiting: list[tuple[int, Registration]] = []
    fits: list[tuple[int, Registration]] = []

    def refine(k: int, rough: Registration) -> Registration:
        found = candidates[k].fit.register(many, rough.parameters, fine.scales_m)
        fits.append((k, found))
        return found

    for k, candidate in enumerate(candidates):
        for start in candidate.starts:
            rough = candidate.fit.register(few, start, coarse.scales_m)
            if rough.residual_m > coarse.fits_m:
                waiting.append((k, rough))
            elif refine(k, rough).residual_m <= fine.fits_m:
                return fits[-1]
    for k, rough in sorted(waiting, key=_residual)[: fine.starts]:
        refine(k, rough)
    k, found = min(fits, key=_residual)
    steps = candidates[k].offsets
    around = [(k, candidates[k].fit.judged(many, found.parameters + step)) for step in steps]
    for k, rough in sorted(around, key=_residual)[: fine.starts]:
        refine(k, rough)
    return min(fits, key=_residual)


def _distances(gaps: np.ndarray, normals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns distances (m,) and their directions (m, 3), of gaps between points and a surface."""
    lengths = np.linalg.norm(gaps, axis=1)
    far = lengths > TOUCHING_M
    directions = normals.copy()
    directions[far] = gaps[far] / lengths[far, None]
    return np.einsum("mi,mi->m", gaps, directions), directions


def _slopes(
    rates: np.ndarray, points: np.ndarray, directions: np.ndarray, link: np.ndarray
) -> np.ndarray:
    """Returns how fast points of links move in given directions by each parameter, (m, n)."""
    of_point = rates[:, link]  # (n, m, 4, 4)
    velocities = np.einsum("nmij,mj->nmi", of_point[..., :3, :3], points) + of_point[..., :3, 3]
    return np.einsum("nmi,mi->mn", velocities, directions)


def _residual(found: tuple[int, Registration]) -> float:
    return found[1].residual_m
