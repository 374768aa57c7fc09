"""The table on which a scanned thing stands."""

from dataclasses import dataclass
from types import ModuleType

import numpy as np

from fleet_tools.assets.solids import Solid
from fleet_tools.errors import ConfigError
from fleet_tools.utils.libraries import require

CLEARANCE = 2.0
"""Distance from the table within which points count as the table's, in voxels."""
LEAST_SHARE = 0.1
"""Share of the points that a table must have."""
_ITERATIONS = 2000


@dataclass(frozen=True, eq=False)
class Table:
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


def find_table(points: np.ndarray, voxel: float, library: ModuleType) -> Table:
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
    return Table(normal, offset) if above >= below else Table(-normal, -offset)


def cut_at(table: Table, solid: Solid) -> Solid:
    """Returns the part of a closed surface above the table, closed by a flat face.

    Raises:
        ConfigError: The surface cannot be cut.
        MissingLibraryError: The library that does it is absent.
    """
    library = require("manifold3d", "cut the surface at the table")
    manifold = library.Manifold(
        library.Mesh64(
            np.ascontiguousarray(solid.vertices, np.float64),
            np.ascontiguousarray(solid.triangles, np.uint64),
        )
    )
    cut = manifold.trim_by_plane(table.normal, table.offset)
    if manifold.status() != library.Error.NoError or not cut.num_tri():
        raise ConfigError(
            "The surface cannot be cut at the table: it is not closed, or does not reach above. "
            "Try another --voxel, or crop the scan (--crop)."
        )
    mesh = cut.to_mesh64()
    return Solid(np.array(mesh.vert_properties)[:, :3], np.array(mesh.tri_verts, np.int64))
