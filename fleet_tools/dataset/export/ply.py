"""Point clouds as PLY files: one for each step of a dataset, or a single cloud.

<attempt>/<step>.ply    the cloud in the end effector's frame E, see `cloud_to_ply`
<attempt>/poses.csv     step, and [R_WE | p_WE] in rows, which moves a cloud to W

Of several datasets, these lie in `dataset_<n>/`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fleet_tools.dataset.dataset_folder import Dataset
from fleet_tools.dataset.export.source import ExportSource
from fleet_tools.errors import ConfigError, DatasetError, shown
from fleet_tools.perception.point_cloud import ABSENT, OBJECT_MASK, PLACE_MASK, TOOL_MASK
from fleet_tools.utils.libraries import require

_POSE = "end_effector_pose"


def opens(output: Path, datasets: Sequence[Dataset]) -> str:
    """Returns the line of Python that opens the copy."""
    attempt = f"{output}/{'dataset_<n>/' if len(datasets) > 1 else ''}<attempt>"
    return f"trimesh.load({f'{attempt}/<step>.ply'!r}), or any viewer of point clouds"


def write(source: ExportSource, aside: Path, target: Path) -> list[str]:
    """Writes the copy, see `exporting.ExportFormat`; one episode is in memory at a time.

    Raises:
        DatasetError: The dataset has no point clouds.
    """
    layout = source.header.observation
    name = next((name for name, spec in layout.items() if spec.kind == "points"), None)
    if name is None:
        raise DatasetError(
            f"{source.datasets[0].folder} holds no point clouds; its observations are "
            f"{', '.join(sorted(layout))}. Collect with --obs-mode point_cloud."
        )
    for of_source, episode in source.read():
        clouds = episode.observations[name]
        folder = aside / of_source.prefix / f"{of_source.record.attempt:06}"
        folder.mkdir(parents=True)
        for step, cloud in enumerate(clouds):
            (folder / f"{step:04}.ply").write_bytes(cloud_to_ply(cloud))
        poses = episode.observations[_POSE].reshape(len(clouds), -1)
        table = np.column_stack([np.arange(len(clouds)), poses])
        np.savetxt(folder / "poses.csv", table, delimiter=",", fmt=["%d"] + ["%.9g"] * 12)
    return [
        "all but the point clouds and the poses of the end effector: actions, rewards, scenes, and "
        "other observations"
    ]


# --- One cloud, as a PLY file or as Open3D's geometry ------------------------------------------


COLORS = {TOOL_MASK: (220, 120, 30), OBJECT_MASK: (40, 110, 200), PLACE_MASK: (200, 40, 90)}
"""Red, green and blue, from 0 to 255, by the value of the fourth column."""

_PROPERTIES = {"float": ("<f4", "xyz"), "uchar": ("u1", ("red", "green", "blue"))}
_VERTEX = np.dtype(
    [(name, dtype) for dtype, names in _PROPERTIES.values() for name in names] + [("part", "i1")]
)


def cloud_to_ply(cloud: np.ndarray, X_WE: np.ndarray | None = None) -> bytes:
    """Returns a cloud as a binary PLY file.

    Its vertices have x, y, z (float, m), red, green, blue, and `part`: 1 for the tool, -1 for the
    object, -2 for a marked place. A comment names the frame. Coordinates in E are the cloud's, bit
    for bit.

    Args:
        cloud: (n, 4) float32, as `observation["point_cloud"]`.
        X_WE: (3, 4), as `observation["end_effector_pose"]`, to write it in W.

    Raises:
        ConfigError: The cloud or the pose has another shape, or is not finite.
    """
    points, parts = _present(cloud, X_WE)
    rows = np.zeros(len(points), _VERTEX)
    for k, axis in enumerate("xyz"):
        rows[axis] = points[:, k]
    for mask, color in COLORS.items():
        for name, value in zip(("red", "green", "blue"), color, strict=True):
            rows[name][parts == mask] = value
    rows["part"] = parts
    frame = "E, the end effector" if X_WE is None else "W, the world"
    header = [
        "ply",
        "format binary_little_endian 1.0",
        f"comment frame {frame}; metres; part: 1 tool, -1 object, -2 place",
        f"element vertex {len(points)}",
        *(f"property {kind} {name}" for kind, (_, names) in _PROPERTIES.items() for name in names),
        "property char part",
        "end_header\n",
    ]
    return "\n".join(header).encode() + rows.tobytes()


def to_open3d(cloud: np.ndarray, X_WE: np.ndarray | None = None) -> Any:
    """Returns a cloud as an `open3d.t.geometry.PointCloud`.

    It has the attributes positions (float32, m), colors (float32, 0 to 1) and part (int8, 1 for
    the tool, -1 for the object, -2 for a marked place). Its method `to_legacy` returns an
    `open3d.geometry.PointCloud`, without the parts.

    Args:
        cloud: (n, 4) float32, as `observation["point_cloud"]`.
        X_WE: (3, 4), as `observation["end_effector_pose"]`, to get it in W.

    Raises:
        ConfigError: The cloud or the pose has another shape, or is not finite.
        MissingLibraryError: Open3D is absent.
    """
    points, parts = _present(cloud, X_WE)
    library = require("open3d", "make its geometry of clouds")
    colors = np.array([COLORS[mask] for mask in parts.tolist()], np.float32).reshape(-1, 3) / 255
    found = library.t.geometry.PointCloud(library.core.Tensor(np.ascontiguousarray(points)))
    found.point.colors = library.core.Tensor(np.ascontiguousarray(colors))
    found.point.part = library.core.Tensor(parts.astype(np.int8)[:, None])
    return found


def _present(cloud: np.ndarray, X_WE: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Returns the points that are there, (n, 3) float32, and their parts (n,)."""
    cloud = np.asarray(cloud, np.float32)
    if cloud.ndim != 2 or cloud.shape[1] != 4 or not np.isfinite(cloud).all():
        raise ConfigError(
            f"Expected a cloud with rows of four finite numbers; given: {shown(cloud)}."
        )
    if not np.isin(cloud[:, 3], [ABSENT, *COLORS]).all():
        raise ConfigError(
            "Expected 1 (tool), -1 (object), -2 (place) or 0 (absent) in the fourth column of a "
            "cloud."
        )
    cloud = cloud[cloud[:, 3] != ABSENT]
    if X_WE is None:
        return cloud[:, :3], cloud[:, 3]
    X = np.asarray(X_WE, float)
    if X.shape != (3, 4) or not np.isfinite(X).all():
        raise ConfigError(
            f"Expected a pose, a finite array [R | p] of shape (3, 4); given: {shown(X)}."
        )
    return (cloud[:, :3] @ X[:, :3].T + X[:, 3]).astype(np.float32), cloud[:, 3]
