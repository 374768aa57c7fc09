"""Registration by Open3D's ICP, to compare with `fleet_tools.experts.registration`.

It finds the pose of one rigid shape. It cannot keep parameters within bounds, as on a table or in
the hand, and knows no joints and no pieces that move apart; the perceived experts do not use it.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np

from fleet_tools.experts.closest_points import Surface, sample
from fleet_tools.experts.registration import Registration
from fleet_tools.utils.libraries import require

SAMPLES = 50_000
"""Number of points that stand for the surface."""
REACH = 5.0
"""Largest distance between corresponding points, relative to the scale of a step."""
ITERATIONS = 30
"""Largest number of ICP's iterations at each scale."""


def register_by_icp(
    surface: Surface, cloud: np.ndarray, X_start: np.ndarray, scales_m: Iterable[float]
) -> tuple[np.ndarray, Registration]:
    """Returns the pose near a start with which a rigid surface fits a cloud.

    Point-to-plane ICP (Chen and Medioni, "Object modelling by registration of multiple range
    images", 1992) with Huber's weights, from the cloud to samples of the surface.

    Args:
        surface: The surface.
        cloud: (m, 3), points on it, in any frame F, m; m > 0.
        X_start: (4, 4), pose of the surface in F where it starts.
        scales_m: For each run, the distance from which a point's pull no longer grows (Huber), m.

    Returns:
        Pose of the surface in F, (4, 4); and its registration, with the residual as `Fit` has it,
        and as parameters the entries of the pose's upper three rows, (12,).

    Raises:
        MissingLibraryError: Open3D is absent.
    """
    library = require("open3d", "register by its ICP")
    icp = library.pipelines.registration
    source = library.geometry.PointCloud(library.utility.Vector3dVector(cloud))
    target = _target(surface)
    criteria = icp.ICPConvergenceCriteria(1e-9, 1e-9, ITERATIONS)
    X_BF = np.linalg.inv(X_start)
    for scale in scales_m:
        method = icp.TransformationEstimationPointToPlane(icp.HuberLoss(scale))
        X_BF = icp.registration_icp(
            source, target, REACH * scale, X_BF, method, criteria
        ).transformation
    in_surface = cloud @ X_BF[:3, :3].T + X_BF[:3, 3]
    gaps = np.linalg.norm(surface.closest(in_surface)[0] - in_surface, axis=1)
    X_FB = np.linalg.inv(X_BF)
    return X_FB, Registration(X_FB[:3].ravel(), float(np.percentile(gaps, 95)))


@lru_cache(maxsize=16)
def _target(surface: Surface) -> Any:
    library = require("open3d", "register by its ICP")
    points, triangles = sample(surface.triangles, SAMPLES)
    a, b, c = np.moveaxis(surface.triangles[triangles], 1, 0)
    normals = np.cross(b - a, c - a)
    cloud = library.geometry.PointCloud(library.utility.Vector3dVector(points))
    cloud.normals = library.utility.Vector3dVector(
        normals / np.linalg.norm(normals, axis=1, keepdims=True)
    )
    return cloud
