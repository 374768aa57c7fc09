"""Reading of point clouds: PLY without faces, and PCD."""

import io
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fleet_tools.config.file_access import read_bounded
from fleet_tools.errors import ConfigError
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
class Cloud:
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


def read_cloud(file: Path) -> Cloud:
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
            f"{file} is no point cloud. Views of a scan are PLY files without faces, or PCD files; "
            "a mesh is imported by itself."
        )
    try:
        points, normals = (_pcd if _is_pcd(content) else _ply)(content, file)
    except (ValueError, KeyError, TypeError, IndexError, OverflowError, MemoryError) as error:
        reason = str(error) or type(error).__name__
        raise ConfigError(f"{file} is damaged: {reason}. Download or export it again.") from error
    return _finite(np.asarray(points, float), normals)


def _finite(points: np.ndarray, normals: np.ndarray | None) -> Cloud:
    kept = np.asarray((np.abs(points) < 1e9).all(axis=1))
    if normals is None:
        return Cloud(points[kept], None, int(np.count_nonzero(~kept)))
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.linalg.norm(np.asarray(normals, float), axis=1)
        kept &= np.asarray((lengths > 0) & np.isfinite(lengths))
    units = np.asarray(normals, float)[kept] / lengths[kept, None]
    return Cloud(points[kept], units, int(np.count_nonzero(~kept)))


def _check_count(count: int) -> None:
    if count > MAX_POINTS:
        raise ValueError(f"it says to hold {count:,} points; {MAX_POINTS:,} can be imported")


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
        raise ValueError(f"it says to hold {declared} points, and holds {len(points)}")
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
        raise ValueError(f"it says to hold {points} points, and {len(cloud.points)} can be read")
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
        raise ValueError("its header describes some fields, and not others")
    for kind, bytes_of in zip(kinds, sizes, strict=True):
        if bytes_of not in _PCD_TYPES.get(kind, ()):
            raise ValueError(f"its header has a field of the type {kind}{bytes_of}")
    if any(fields.count(axis) != 1 for axis in "xyz") or min(counts) < 1:
        raise ValueError("its header has no field for each of x, y and z")
    width, height, points = (int(header[key][0]) for key in ("WIDTH", "HEIGHT", "POINTS"))
    if width < 0 or height < 0 or width * height != points:
        raise ValueError(f"it says to be {width} x {height}, and to hold {points} points")
    _check_count(points)
    record = sum(map(math.prod, zip(sizes, counts, strict=True)))
    if record > _RECORD_BYTES:
        raise ValueError(f"it says to hold {record} bytes for each point")
    data, rest = header["DATA"][0], len(content) - size
    least = {"ascii": 2 * sum(counts) * points - 1, "binary": record * points}
    if data == "binary_compressed":
        packed, unpacked = np.frombuffer(content[size : size + 8], "<u4").tolist()
        if packed > rest - 8 or unpacked != record * points:
            raise ValueError("its compressed part has another size than it says")
    elif data not in least or rest < least[data]:
        raise ValueError(f"it says to hold {points} points, and has {rest} bytes of {data}")
    return points
