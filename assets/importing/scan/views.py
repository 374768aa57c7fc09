"""The views of a scan, in one frame."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pydantic

from fleet_tools.assets.importing.scan.cloud_files import MAX_POINTS, read_cloud
from fleet_tools.assets.importing.settings import ScanSettings
from fleet_tools.config.values import Number, Value, Vector3, load_yaml
from fleet_tools.errors import ConfigError

Row = tuple[Number, Number, Number, Number]

RIGID = 1e-3
"""How far the rotation of a pose may be from orthonormal."""


class ViewPoses(Value):
    """Where the cameras of a scan were: a YAML file."""

    X_WC: Mapping[str, tuple[Row, Row, Row, Row]]
    """Pose of the camera by the name of its file, (4, 4), in the unit of the files."""

    @pydantic.field_validator("X_WC")
    @classmethod
    def _rigid(cls, poses: Mapping[str, tuple]) -> Mapping[str, tuple]:
        for name, pose in poses.items():
            X = np.array(pose)
            error = np.abs(X[:3, :3].T @ X[:3, :3] - np.eye(3)).max()
            right_handed = np.linalg.det(X[:3, :3]) > 0
            if error > RIGID or not right_handed or list(X[3]) != [0, 0, 0, 1]:
                raise ValueError(f"{name}: a pose is a rotation and a translation, above 0 0 0 1")
        return poses


@dataclass(frozen=True, eq=False)
class View:
    """Points that were seen from one place.

    Attributes:
        name: Name of the file.
        points: (n, 3), in the scan's frame W.
        normals: (n, 3), outward, where the file has them.
        camera: (3,), where the camera was, if that is known.
    """

    name: str
    points: np.ndarray
    normals: np.ndarray | None
    camera: np.ndarray | None

    def chosen(self, kept: np.ndarray) -> "View":
        """Returns the points with these indices, or with this mask."""
        normals = None if self.normals is None else self.normals[kept]
        return replace(self, points=self.points[kept], normals=normals)

    def moved(self, X: np.ndarray) -> "View":
        """Returns the view moved by a pose (4, 4)."""
        R, p = X[:3, :3], X[:3, 3]
        normals = None if self.normals is None else self.normals @ R.T
        camera = None if self.camera is None else R @ self.camera + p
        return View(self.name, self.points @ R.T + p, normals, camera)


def read_views(files: Sequence[Path], settings: ScanSettings) -> tuple[list[View], list[str]]:
    """Reads the files of a scan, each of them a view, and crops them.

    Points are sorted, so that their order does not matter to what follows.

    Returns:
        The views, and notes.

    Raises:
        ConfigError: A file cannot be read, has no pose among those given, or shows nothing within
            the box.
    """
    poses = None if settings.poses is None else _poses(settings.poses, files)
    views, dropped, cropped = [], 0, 0
    for file in files:
        cloud = read_cloud(file)
        dropped += cloud.dropped
        view = View(file.name, cloud.points, cloud.normals, None)
        if poses is not None:
            view = replace(view, camera=np.zeros(3)).moved(poses[file.name])
        if settings.crop is not None:
            view = view.chosen(_within(view.points, *settings.crop))
        cropped += len(cloud.points) - len(view.points)
        if not len(view.points):
            raise ConfigError(
                f"{file} holds no usable point{' within --crop' if settings.crop else ''}."
            )
        views.append(view.chosen(np.lexsort(view.points.T)))
        if sum(len(view.points) for view in views) > MAX_POINTS:
            raise ConfigError(f"The scan has more than {MAX_POINTS:,} points. Thin it out.")
    count = sum(len(view.points) for view in views)
    notes = [f"read a scan of {count} points in {len(views)} view(s)"]
    notes += [f"dropped {dropped} points that are not finite"] * bool(dropped)
    notes += [f"left out {cropped} points beyond --crop"] * bool(cropped)
    return views, notes


def _poses(file: Path, files: Sequence[Path]) -> dict[str, np.ndarray]:
    names = [each.name for each in files]
    poses = load_yaml(ViewPoses, file).X_WC
    absent = sorted(set(names) - set(poses))
    if absent or len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        what = f"no pose of {', '.join(absent)}" if absent else f"{', '.join(twice)} given twice"
        raise ConfigError(
            f"{file} gives poses by file name: {what}. It has those of {', '.join(sorted(poses))}."
        )
    return {name: np.array(poses[name]) for name in names}


def _within(points: np.ndarray, low: Vector3, high: Vector3) -> np.ndarray:
    return np.asarray(((points >= low) & (points <= high)).all(axis=1))
