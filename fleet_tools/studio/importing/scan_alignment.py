"""Views registered to each other, from the alignment that they come with."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from fleet_tools.assets.solids import Solid
from fleet_tools.errors import ConfigError
from fleet_tools.studio.importing.repair import as_manifold, from_manifold
from fleet_tools.studio.importing.scan_files import ScanView
from fleet_tools.utils.libraries import require

REACHES = (10.0, 5.0, 2.0)
"""Largest distance between corresponding points, in voxels; one registration after the other."""
ROUNDS = 2
LEAST_OVERLAP = 0.2
"""Share of a view's points that must be on what the others show."""


def aligned(views: Sequence[ScanView], voxel: float, library: ModuleType) -> list[ScanView]:
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


def _cloud(view: ScanView, voxel: float, library: ModuleType) -> Any:
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


def _check(view: ScanView, overlap: float) -> None:
    if overlap < LEAST_OVERLAP:
        raise ConfigError(
            f"{view.name} overlaps with the other views by {overlap:.0%} of its points; "
            f"{LEAST_OVERLAP:.0%} are needed to register it. Align it better before, add views "
            "between, or leave out --align if the views are aligned."
        )


CLEARANCE = 2.0
"""Distance from the table within which points count as the table's, in voxels."""
LEAST_SHARE = 0.1
"""Share of the points that a table must have."""
_ITERATIONS = 2000


@dataclass(frozen=True, eq=False)
class TablePlane:
    """A plane, normal . p = offset, with the thing where normal . p is larger.

    Attributes:
        normal: (3,), unit vector.
        offset: In the unit of the files.
    """

    normal: np.ndarray
    offset: float

    def heights(self, points: np.ndarray) -> np.ndarray:
        """Returns the heights of points (n, 3) above the table, (n,)."""
        return points @ self.normal - self.offset


def find_table(points: np.ndarray, voxel: float, library: ModuleType) -> TablePlane:
    """Finds the plane that most points lie in.

    Args:
        points: (n, 3).
        voxel: Size of the details.
        library: Open3D.

    Raises:
        ConfigError: No plane holds enough of them.
    """
    library.utility.random.seed(0)
    cloud = library.geometry.PointCloud(library.utility.Vector3dVector(points))
    plane, _ = cloud.segment_plane(voxel, 3, _ITERATIONS)
    normal, offset = np.array(plane[:3]), -float(plane[3])
    for _ in range(5):  # the samples of the random search no longer matter
        on = np.abs(points @ normal - offset) < voxel
        middle = points[on].mean(axis=0)
        normal = np.linalg.svd(points[on] - middle, full_matrices=False)[2][-1]
        offset = float(normal @ middle)
    share = float(np.mean(np.abs(points @ normal - offset) < CLEARANCE * voxel))
    if share < LEAST_SHARE:
        raise ConfigError(
            f"No table is seen: the plane with most points holds {share:.0%} of them. Leave out "
            "--table, or crop the scan (--crop)."
        )
    heights = points @ normal - offset
    below = np.count_nonzero(heights < -CLEARANCE * voxel)
    above = np.count_nonzero(heights > CLEARANCE * voxel)
    return TablePlane(normal, offset) if above >= below else TablePlane(-normal, -offset)


def cut_at(table: TablePlane, solid: Solid) -> Solid:
    """Returns the part of a closed surface above the table, closed by a flat face.

    Raises:
        ConfigError: The surface cannot be cut.
        MissingLibraryError: The library that does it is absent.
    """
    require("manifold3d", "cut the surface at the table")
    manifold = as_manifold(solid)
    cut = None if manifold is None else manifold.trim_by_plane(table.normal, table.offset)
    if cut is None or not cut.num_tri():
        raise ConfigError(
            "The surface cannot be cut at the table: it is not closed, or does not reach above. "
            "Try another --voxel, or crop the scan (--crop)."
        )
    return from_manifold(cut)
