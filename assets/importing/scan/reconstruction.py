"""From the files of a scan to a mesh: all steps in their order."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.spatial import KDTree

from fleet_tools.assets.importing.mesh_file import RawMesh
from fleet_tools.assets.importing.scan.alignment import aligned
from fleet_tools.assets.importing.scan.surface import closed, oriented, poisson_surface, unseen
from fleet_tools.assets.importing.scan.table import CLEARANCE, Table, cut_at, find_table
from fleet_tools.assets.importing.scan.views import View, read_views
from fleet_tools.assets.importing.settings import ScanSettings
from fleet_tools.assets.solids import Solid
from fleet_tools.errors import ConfigError
from fleet_tools.utils.libraries import require

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
    """
    library = require("open3d", "make a surface of a scan")
    views, notes = read_views(files, settings)
    voxel = _voxel(views, settings.voxel)
    if settings.align and len(views) > 1:
        views = aligned(views, voxel, library)
        notes.append(f"registered {len(views) - 1} view(s) to the others")
    table = None
    if settings.table:
        table = find_table(np.concatenate([view.points for view in views]), voxel, library)
        above = [view.chosen(table.heights(view.points) > CLEARANCE * voxel) for view in views]
        views = [view for view in above if len(view.points)]
        if not views:
            raise ConfigError("Nothing stands on the table. Leave out --table.")
        voxel = _voxel(views, settings.voxel)
        notes.append("cut off the table")
    cloud = oriented(views, voxel, library)
    points = np.array(cloud.points)
    solid, strays = poisson_surface(cloud, voxel, library)
    notes += strays
    solid = closed(solid)
    if table is not None:
        solid = cut_at(table, solid)
    notes += _coverage(solid, points, voxel, settings.max_unseen, table)
    notes.append(f"made a surface of {len(points)} points with details of {voxel:.4g}")
    return RawMesh(solid.vertices, solid.triangles, tuple(notes))


def _voxel(views: Sequence[View], given: float | None) -> float:
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
            f"{longest / MAX_CELLS:.3g}, or crop the scan (--crop)."
        )
    return given


def _coverage(
    solid: Solid, points: np.ndarray, voxel: float, max_unseen: float, table: Table | None
) -> list[str]:
    """Returns a note on what was not seen.

    Raises:
        ConfigError: It is too much.
    """
    if table is not None:  # the face on it cannot be seen
        on_table = np.abs(table.heights(solid.vertices)) < 1e-6 * voxel
        solid = replace(solid, triangles=solid.triangles[~on_table[solid.triangles].all(axis=1)])
    share, farthest = unseen(solid, points, voxel)
    if share > max_unseen:
        raise ConfigError(
            f"{share:.0%} of the surface was not seen, up to {farthest:.3g} away from a point; "
            f"{max_unseen:.0%} may be. Add views of it, align them (--poses, --align), "
            "take the table away (--table), or allow more with --max-unseen."
        )
    if share < REMARKABLE:
        return []
    return [
        f"not seen: {share:.1%} of the surface, up to {farthest:.3g} away from a point, is closed "
        "smoothly"
    ]
