"""What keeps a model in shape that may be scaled, and what of it a cloud should show."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial import KDTree

from fleet_tools.experts.closest_points import Surface, sample

SAMPLES = 300
"""Number of points of a model that the cloud should show."""
HIDDEN_M = 4e-3
"""Distance from the cloud, across the surface, from which a point of the model is hidden, m."""
SPACING_M = 2e-3
"""Distance between neighbouring points of a cloud that has no gap, m."""
GRAZING = 0.1
"""Cosine of the angle to its normal from behind which a surface is not seen."""
WEIGHT = 0.05
"""Weight of the model's points, all together, relative to those of the cloud."""


@dataclass(frozen=True, eq=False)
class Loose:
    """Terms of a fit beside the distances from the cloud to the model.

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
        cls, links: Sequence[Surface], spread: np.ndarray, cloud: np.ndarray, cameras: np.ndarray
    ) -> "Loose":
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
