"""Reading of point clouds: PLY without faces, and PCD."""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pydantic

from fleet_tools.config.file_access import read_bounded
from fleet_tools.config.values import Number, Value, Vector3, load_yaml
from fleet_tools.errors import ConfigError
from fleet_tools.studio.importing.settings import ScanSettings
from fleet_tools.utils.libraries import require

MAX_BYTES = 2**30
"""Largest file."""
MAX_POINTS = 10_000_000
"""Largest number of points of all files; 100 times what a surface of the default detail needs."""

_HEADER_BYTES = 65536
_RECORD_BYTES = 1024
_PCD_TYPES = {"F": (4, 8), "I": (1, 2, 4, 8), "U": (1, 2, 4, 8)}
_PCD_KEYS = ("FIELDS", "SIZE", "TYPE", "COUNT", "WIDTH", "HEIGHT", "POINTS", "DATA")


@dataclass(frozen=True, eq=False)
class ScanCloud:
    """The points of a file, all of them finite.

    Attributes:
        points: (n, 3), in unit and axes of the file.
        normals: (n, 3), outward unit vectors, where the file has them.
        dropped: Number of points left out because they were not finite.
    """

    points: np.ndarray
    normals: np.ndarray | None
    dropped: int


def is_scan(file: Path) -> bool:
    """Returns whether a file holds points without faces; its content says so, not its name."""
    try:
        with file.open("rb") as opened:
            head = opened.read(_HEADER_BYTES)
    except OSError:
        return False
    if head.startswith(b"ply"):
        return not any(
            words[:2] == [b"element", b"face"] and words[2:] != [b"0"]
            for words in map(bytes.split, head.partition(b"end_header")[0].splitlines())
        )
    return _is_pcd(head)


def read_cloud(file: Path) -> ScanCloud:
    """Reads a point cloud.

    Raises:
        ConfigError: The file is missing, damaged, too large, or a mesh.
        MissingLibraryError: It is a PCD file, and Open3D is absent.
    """
    try:
        content = read_bounded(file, MAX_BYTES)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}.") from None
    if not is_scan(file):
        raise ConfigError(
            f"{file} is not a point cloud: expected a PLY file without faces, or a PCD file. "
            "Import a mesh alone, without views of a scan."
        )
    try:
        points, normals = (_pcd if _is_pcd(content) else _ply)(content, file)
    except (ValueError, KeyError, TypeError, IndexError, OverflowError, MemoryError) as error:
        reason = str(error) or type(error).__name__
        raise ConfigError(f"{file} is damaged: {reason}. Download or export it again.") from error
    return _finite(np.asarray(points, float), normals)


def _finite(points: np.ndarray, normals: np.ndarray | None) -> ScanCloud:
    kept = np.asarray((np.abs(points) < 1e9).all(axis=1))
    if normals is None:
        return ScanCloud(points[kept], None, int(np.count_nonzero(~kept)))
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.linalg.norm(np.asarray(normals, float), axis=1)
        kept &= np.asarray((lengths > 0) & np.isfinite(lengths))
    units = np.asarray(normals, float)[kept] / lengths[kept, None]
    return ScanCloud(points[kept], units, int(np.count_nonzero(~kept)))


def _check_count(count: int) -> None:
    if count > MAX_POINTS:
        raise ValueError(
            f"its header announces {count:,} points; at most {MAX_POINTS:,} can be imported"
        )


def _ply(content: bytes, file: Path) -> tuple[np.ndarray, np.ndarray | None]:
    from trimesh.exchange.ply import load_ply

    for line in content[:_HEADER_BYTES].partition(b"end_header")[0].splitlines():
        words = line.split()
        if words[:1] == [b"element"]:
            _check_count(int(words[2]))
    try:
        loaded = load_ply(io.BytesIO(content), skip_materials=True)
    except Exception as error:  # trimesh's readers raise all kinds of errors on damaged files
        raise ValueError(str(error) or type(error).__name__) from error
    points = np.asarray(loaded.get("vertices", np.zeros((0, 3))), float)
    declared = loaded["metadata"]["_ply_raw"].get("vertex", {}).get("length", 0)
    if len(points) != declared:
        raise ValueError(f"its header announces {declared} points, but it holds {len(points)}")
    return points, loaded.get("vertex_normals")


def _is_pcd(content: bytes) -> bool:
    lines = content[:1024].splitlines()
    return any(line.split()[:1] == [b"VERSION"] for line in lines[:4])


def _pcd(content: bytes, file: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Checks the header, which Open3D's reader trusts, and lets it read the points."""
    points = _checked_pcd_points(content)
    library = require("open3d", "read PCD files")
    cloud = library.io.read_point_cloud(str(file), format="pcd", remove_nan_points=False)
    if len(cloud.points) != points:
        raise ValueError(
            f"its header announces {points} points, but {len(cloud.points)} can be read"
        )
    normals = np.array(cloud.normals) if cloud.has_normals() else None
    return np.array(cloud.points), normals


def _checked_pcd_points(content: bytes) -> int:
    """Returns the number of points that the header says, if the file can hold so many."""
    header: dict[str, list[str]] = {}
    size = 0
    for line in content[:_HEADER_BYTES].splitlines(keepends=True):
        size += len(line)
        words = line.decode("ascii").split()
        if words and not words[0].startswith("#"):
            header[words[0]] = words[1:]
            if words[0] == "DATA":
                break
    absent = [key for key in _PCD_KEYS if not header.get(key) and key != "COUNT"]
    if absent:
        raise ValueError(f"its header lacks {', '.join(absent)}")
    fields, kinds = header["FIELDS"], header["TYPE"]
    sizes = [int(n) for n in header["SIZE"]]
    counts = [int(n) for n in header.get("COUNT") or ["1"] * len(fields)]
    if not len(fields) == len(kinds) == len(sizes) == len(counts):
        raise ValueError("its header describes only some of its fields")
    for kind, bytes_of in zip(kinds, sizes, strict=True):
        if bytes_of not in _PCD_TYPES.get(kind, ()):
            raise ValueError(f"its header has a field of the type {kind}{bytes_of}")
    if any(fields.count(axis) != 1 for axis in "xyz") or min(counts) < 1:
        raise ValueError("its header has no fields x, y and z")
    width, height, points = (int(header[key][0]) for key in ("WIDTH", "HEIGHT", "POINTS"))
    if width < 0 or height < 0 or width * height != points:
        raise ValueError(f"its header announces {width} x {height}, but {points} points")
    _check_count(points)
    record = sum(map(math.prod, zip(sizes, counts, strict=True)))
    if record > _RECORD_BYTES:
        raise ValueError(f"its header announces {record} bytes for each point")
    data, rest = header["DATA"][0], len(content) - size
    least = {"ascii": 2 * sum(counts) * points - 1, "binary": record * points}
    if data == "binary_compressed":
        packed, unpacked = np.frombuffer(content[size : size + 8], "<u4").tolist()
        if packed > rest - 8 or unpacked != record * points:
            raise ValueError("its compressed part has another size than announced")
    elif data not in least or rest < least[data]:
        raise ValueError(f"its header announces {points} points, but it has {rest} bytes of {data}")
    return points


Row = tuple[Number, Number, Number, Number]

RIGID = 1e-3
"""Largest deviation of a pose's rotation from orthonormal."""


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
                raise ValueError(
                    f"{name}: expected a pose: a rotation and a translation, above the row 0 0 0 1"
                )
        return poses


@dataclass(frozen=True, eq=False)
class ScanView:
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

    def chosen(self, kept: np.ndarray) -> "ScanView":
        """Returns the points with these indices, or with this mask."""
        normals = None if self.normals is None else self.normals[kept]
        return replace(self, points=self.points[kept], normals=normals)

    def moved(self, X: np.ndarray) -> "ScanView":
        """Returns the view moved by a pose (4, 4)."""
        R, p = X[:3, :3], X[:3, 3]
        normals = None if self.normals is None else self.normals @ R.T
        camera = None if self.camera is None else R @ self.camera + p
        return ScanView(self.name, self.points @ R.T + p, normals, camera)


def read_views(files: Sequence[Path], settings: ScanSettings) -> tuple[list[ScanView], list[str]]:
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
        view = ScanView(file.name, cloud.points, cloud.normals, None)
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
            raise ConfigError(
                f"The scan has more than {MAX_POINTS:,} points. Reduce it, for instance in MeshLab."
            )
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
            f"{file} gives poses by file name: {what}. It has poses of {', '.join(sorted(poses))}."
        )
    return {name: np.array(poses[name]) for name in names}


def _within(points: np.ndarray, low: Vector3, high: Vector3) -> np.ndarray:
    return np.asarray(((points >= low) & (points <= high)).all(axis=1))
