"""Views registered to each other, from the alignment that they come with."""

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from fleet_tools.assets.importing.scan.views import View
from fleet_tools.errors import ConfigError

REACHES = (10.0, 5.0, 2.0)
"""Largest distance between corresponding points, in voxels; one registration after the other."""
ROUNDS = 2
LEAST_OVERLAP = 0.2
"""Share of a view's points that must be on what the others show."""


def aligned(views: Sequence[View], voxel: float, library: ModuleType) -> list[View]:
    """Registers each view to all others by ICP (Chen and Medioni 1991), point to plane.

    The first view stays; the one that overlaps most with those registered is next.

    Args:
        views: The views, roughly aligned.
        voxel: Size of the details, in the unit of the files.
        library: Open3D.

    Raises:
        ConfigError: A view overlaps too little with the others.
    """
    coarse = [_cloud(view, voxel, library) for view in views]
    poses = {0: np.eye(4)}
    while len(poses) < len(views):
        model = _union(coarse, poses, library)
        rest = [k for k in range(len(views)) if k not in poses]
        shares = [_overlap(coarse[k], model, REACHES[0] * voxel, np.eye(4), library) for k in rest]
        best = rest[int(np.argmax(shares))]
        poses[best] = _registered(coarse[best], model, np.eye(4), voxel, library)
        _check(
            views[best], _overlap(coarse[best], model, REACHES[-1] * voxel, poses[best], library)
        )
    for _ in range(ROUNDS if len(views) > 2 else 0):
        for k in range(1, len(views)):
            others = {j: X for j, X in poses.items() if j != k}
            poses[k] = _registered(
                coarse[k], _union(coarse, others, library), poses[k], voxel, library
            )
    return [view.moved(poses[k]) for k, view in enumerate(views)]


def _cloud(view: View, voxel: float, library: ModuleType) -> Any:
    cloud = library.geometry.PointCloud(library.utility.Vector3dVector(view.points))
    cloud = cloud.voxel_down_sample(voxel)
    cloud.estimate_normals(library.geometry.KDTreeSearchParamHybrid(3 * voxel, 30))
    return cloud


def _union(clouds: Sequence[Any], poses: dict[int, np.ndarray], library: ModuleType) -> Any:
    model = library.geometry.PointCloud()
    for k in sorted(poses):
        model += library.geometry.PointCloud(clouds[k]).transform(poses[k])
    return model


def _registered(
    cloud: Any, model: Any, X: np.ndarray, voxel: float, library: ModuleType
) -> np.ndarray:
    icp = library.pipelines.registration
    method = icp.TransformationEstimationPointToPlane(icp.HuberLoss(voxel))
    for reach in REACHES:
        X = icp.registration_icp(cloud, model, reach * voxel, X, method).transformation
    return np.array(X)


def _overlap(cloud: Any, model: Any, reach: float, X: np.ndarray, library: ModuleType) -> float:
    return library.pipelines.registration.evaluate_registration(cloud, model, reach, X).fitness


def _check(view: View, overlap: float) -> None:
    if overlap < LEAST_OVERLAP:
        raise ConfigError(
            f"{view.name} overlaps with the other views by {overlap:.0%} of its points; "
            f"{LEAST_OVERLAP:.0%} are needed to register it. Align it better before, add views "
            "between, or leave out --align if the views are aligned."
        )
