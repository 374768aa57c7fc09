"""Reconstruction of the surface of a scan."""

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from scipy.spatial import KDTree

from fleet_tools.assets.solids import Solid, area_vectors, joined
from fleet_tools.errors import ConfigError
from fleet_tools.parallel.apart import call_apart
from fleet_tools.studio.importing.mesh_file import RawMesh
from fleet_tools.studio.importing.repair import cleaned, repaired_shells
from fleet_tools.studio.importing.scan_files import ScanCloud, read_views
from fleet_tools.studio.importing.settings import ScanSettings
from fleet_tools.utils.libraries import require

NEIGHBOURHOOD = 3.0
"""Radius within which a normal is estimated and points support each other, in voxels."""
LEAST_NEIGHBOURS = 5
"""Number of other points there that a point needs to be no outlier."""
LEAST_POINTS = 500
"""Smallest number of points, a voxel apart, for a surface."""
STRAY = 0.05
"""Largest area of a part beside the main one that is dropped, relative to this."""
MAX_TRIANGLES = 30_000
"""Largest number of triangles of a surface: all further steps take time in proportion."""
_SCALE = 1.1
_DEPTHS = (5, 10)


def oriented(views: Sequence[ScanCloud], voxel: float, library: ModuleType) -> Any:
    """Returns the points of all views, a voxel apart in each, with normals and without outliers.

    Each view is thinned out by itself, since the two sides of a blade are seen from different
    places. Normals are the files'; otherwise they are estimated, and made consistent along the
    surface (Hoppe et al., "Surface Reconstruction from Unorganized Points", 1992), which fails at
    thin parts.

    Args:
        views: The views, in one frame.
        voxel: Size of the details, in the unit of the files.
        library: Open3D.

    Raises:
        ConfigError: There are too few points, or they lie in a plane.
    """
    union = library.geometry.PointCloud()
    for view in views:
        union += _oriented(view, voxel, library)
    union, _ = union.remove_radius_outlier(LEAST_NEIGHBOURS, NEIGHBOURHOOD * voxel)
    count = len(union.points)
    if count < LEAST_POINTS:
        raise ConfigError(
            f"The scan has {count} usable points at a spacing of {voxel:.3g}; {LEAST_POINTS} are "
            "needed. Scan it more densely, or give another --voxel."
        )
    points = np.array(union.points)
    thickness = np.linalg.svd(points - points.mean(axis=0), compute_uv=False)[-1] / np.sqrt(count)
    if thickness < voxel / 4:
        raise ConfigError(
            "All points lie in one plane: the scan shows only one face of the object. Add views "
            "from other sides."
        )
    return union


def _oriented(view: ScanCloud, voxel: float, library: ModuleType) -> Any:
    cloud = library.geometry.PointCloud(library.utility.Vector3dVector(view.points))
    if view.normals is not None:
        cloud.normals = library.utility.Vector3dVector(view.normals)
        cloud = cloud.voxel_down_sample(voxel)
        cloud.normalize_normals()
        return cloud
    cloud = cloud.voxel_down_sample(voxel)
    cloud.estimate_normals(library.geometry.KDTreeSearchParamHybrid(NEIGHBOURHOOD * voxel, 20))
    if len(cloud.points) > LEAST_NEIGHBOURS:
        cloud.orient_normals_consistent_tangent_plane(20)
        gaps = np.asarray(cloud.points) - cloud.get_center()
        if (gaps * np.asarray(cloud.normals)).sum() < 0:
            cloud.normals = library.utility.Vector3dVector(-np.asarray(cloud.normals))
    return cloud


def poisson_surface(cloud: Any, voxel: float, library: ModuleType) -> tuple[Solid, list[str]]:
    """Returns the surface by Poisson's equation, and notes.

    Source: Kazhdan and Hoppe, "Screened Poisson Surface Reconstruction", 2013.

    Args:
        cloud: Points with normals, as Open3D's point cloud.
        voxel: Size of the details; cells of the octree have half of it.
        library: Open3D.

    Raises:
        ConfigError: There are several surfaces.
    """
    longest = float(np.ptp(np.asarray(cloud.points), axis=0).max())
    depth = int(np.clip(round(np.log2(2 * _SCALE * longest / voxel)), *_DEPTHS))
    mesh, _ = library.geometry.TriangleMesh.create_from_point_cloud_poisson(
        cloud, depth=depth, scale=_SCALE, n_threads=1
    )
    if len(mesh.triangles) > MAX_TRIANGLES:  # where it is flat, few say as much (Garland 1997)
        mesh = mesh.simplify_quadric_decimation(MAX_TRIANGLES)
    return _main_part(mesh)


def _main_part(mesh: Any) -> tuple[Solid, list[str]]:
    """Returns the largest connected part of Open3D's mesh, and notes."""
    if not mesh.has_triangles():
        raise ConfigError("The scan has no surface. Add views, or give another --voxel.")
    part, _, areas = map(np.asarray, mesh.cluster_connected_triangles())
    main = int(areas.argmax())
    others = np.delete(areas, main)
    if others.max(initial=0.0) > STRAY * areas[main]:
        raise ConfigError(
            "The scan has several separate surfaces; expected one object. Remove the table and all "
            "else from it, or add views."
        )
    mesh.remove_triangles_by_mask(part != main)
    mesh.remove_unreferenced_vertices()
    notes = [f"dropped {len(others)} stray part(s) of the surface"] * bool(len(others))
    return Solid(np.array(mesh.vertices), np.array(mesh.triangles, np.int64)), notes


def closed(solid: Solid) -> Solid:
    """Returns a surface with its holes closed.

    Poisson's surface is open where it leaves the octree, behind what was not seen; these rims lie
    on a side of the octree's cube.

    Raises:
        ConfigError: A hole cannot be closed.
    """
    surface, _ = cleaned(solid.vertices, solid.triangles)
    shells, _ = repaired_shells(surface)
    if not all(shell.closed for shell in shells):
        raise ConfigError(
            "The scan's surface is not closed: too much of the object was not seen. Add views, "
            "register them more closely, or remove the table from them."
        )
    return joined(*(shell.solid for shell in shells))


def unseen(solid: Solid, points: np.ndarray, voxel: float) -> tuple[float, float]:
    """Returns the share of a surface's area that no point, (n, 3), is near to.

    Also returns the largest distance of a triangle's middle from a point.
    """
    corners = solid.vertices[solid.triangles]
    distances, _ = KDTree(points).query(corners.mean(axis=1))
    areas = np.linalg.norm(area_vectors(corners), axis=1)
    return float(areas[distances > NEIGHBOURHOOD * voxel].sum() / areas.sum()), distances.max()


CELLS = 256
"""Number of voxels along the longest side, if none is given."""
MAX_CELLS = 512
"""Largest number of them."""
REMARKABLE = 0.001
"""Share of the surface from which the import says that it was not seen."""
_SAMPLES = 20_000


def scanned_mesh(files: Sequence[Path], settings: ScanSettings) -> RawMesh:
    """Makes a closed mesh of the views of a scan; the same arguments give the same mesh.

    Raises:
        ConfigError: The views are no surface of a closed body; the message names the remedy.
        MissingLibraryError: Open3D is absent.
        NativeLibraryError: It failed.
    """
    remedy = "Crop the scan, or give another --voxel."
    return call_apart("Open3D", remedy, _scanned_mesh, files, settings)


def _scanned_mesh(files: Sequence[Path], settings: ScanSettings) -> RawMesh:
    library = require("open3d", "make a surface of a scan")
    views, notes = read_views(files)
    voxel = _voxel(views, settings.voxel)
    cloud = oriented(views, voxel, library)
    points = np.array(cloud.points)
    solid, strays = poisson_surface(cloud, voxel, library)
    notes += strays
    solid = closed(solid)
    notes += _coverage(solid, points, voxel, settings.max_unseen)
    notes.append(f"made a surface of {len(points)} points with details of {voxel:.4g}")
    return RawMesh(solid.vertices, solid.triangles, tuple(notes))


def _voxel(views: Sequence[ScanCloud], given: float | None) -> float:
    """Returns the size of details: the longest side's, but no finer than points are apart."""
    points = np.concatenate([view.points for view in views])
    low, high = np.percentile(points, [0.1, 99.9], axis=0)  # few points may be far away
    longest = float((high - low).max())
    if not longest > 0:
        raise ConfigError("The scan has no extent: all points are in one place.")
    if given is None:
        every = points[:: max(1, len(points) // _SAMPLES)]
        apart, _ = KDTree(points).query(every, k=2)
        return max(longest / CELLS, 2 * float(np.median(apart[:, 1])))
    if longest / given > MAX_CELLS:
        raise ConfigError(
            f"--voxel {given:g} is too fine for a scan of {longest:.4g}: give at least "
            f"{longest / MAX_CELLS:.3g}, or crop the scan."
        )
    return given


def _coverage(solid: Solid, points: np.ndarray, voxel: float, max_unseen: float) -> list[str]:
    """Returns a note on what was not seen.

    Raises:
        ConfigError: It is too much.
    """
    share, farthest = unseen(solid, points, voxel)
    if share > max_unseen:
        raise ConfigError(
            f"{share:.0%} of the surface was not seen, up to {farthest:.3g} away from a point; at "
            f"most {max_unseen:.0%} is allowed. Add views, register them more closely, remove the "
            "table from them, or raise --max-unseen."
        )
    if share < REMARKABLE:
        return []
    return [
        f"not seen: {share:.1%} of the surface, up to {farthest:.3g} away from a point, is closed "
        "smoothly"
    ]
