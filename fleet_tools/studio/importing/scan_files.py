"""Reading of scans: point clouds, PLY files without faces."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fleet_tools.config.file_access import read_bounded
from fleet_tools.errors import ConfigError

MAX_BYTES = 2**30
"""Largest file."""
MAX_POINTS = 10_000_000
"""Largest number of points of all files; 100 times what a surface of the default detail needs."""

_HEADER_BYTES = 65536


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
    return head.startswith(b"ply") and not any(
        words[:2] == [b"element", b"face"] and words[2:] != [b"0"]
        for words in map(bytes.split, head.partition(b"end_header")[0].splitlines())
    )


def read_cloud(file: Path) -> ScanCloud:
    """Reads a point cloud, whose points are sorted, so that their order does not matter.

    Raises:
        ConfigError: The file is missing, damaged, too large, or a mesh.
    """
    try:
        content = read_bounded(file, MAX_BYTES)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}.") from None
    if not is_scan(file):
        raise ConfigError(
            f"{file} is not a point cloud: expected a PLY file without faces. Import a mesh alone, "
            "without views of a scan."
        )
    try:
        points, normals = _ply(content)
    except (ValueError, KeyError, TypeError, IndexError, OverflowError, MemoryError) as error:
        reason = str(error) or type(error).__name__
        raise ConfigError(f"{file} is damaged: {reason}. Download or export it again.") from error
    return _finite(np.asarray(points, float), normals)


def _finite(points: np.ndarray, normals: np.ndarray | None) -> ScanCloud:
    order = np.lexsort(points.T)
    points = points[order]
    kept = (np.abs(points) < 1e9).all(axis=1)
    if normals is not None:
        normals = np.asarray(normals, float)[order]
        with np.errstate(over="ignore", invalid="ignore"):
            lengths = np.linalg.norm(normals, axis=1)
        kept &= (lengths > 0) & np.isfinite(lengths)
        normals = normals[kept] / lengths[kept, None]
    return ScanCloud(points[kept], normals, int(np.count_nonzero(~kept)))


def _ply(content: bytes) -> tuple[np.ndarray, np.ndarray | None]:
    from trimesh.exchange.ply import load_ply

    for line in content[:_HEADER_BYTES].partition(b"end_header")[0].splitlines():
        words = line.split()
        if words[:1] == [b"element"] and int(words[2]) > MAX_POINTS:
            raise ValueError(
                f"its header announces {int(words[2]):,} points; at most {MAX_POINTS:,} can be "
                "imported"
            )
    try:
        loaded = load_ply(io.BytesIO(content), skip_materials=True)
    except Exception as error:  # trimesh's readers raise all kinds of errors on damaged files
        raise ValueError(str(error) or type(error).__name__) from error
    points = np.asarray(loaded.get("vertices", np.zeros((0, 3))), float)
    declared = loaded["metadata"]["_ply_raw"].get("vertex", {}).get("length", 0)
    if len(points) != declared:
        raise ValueError(f"its header announces {declared} points, but it holds {len(points)}")
    return points, loaded.get("vertex_normals")


def read_views(files: Sequence[Path]) -> tuple[list[ScanCloud], list[str]]:
    """Reads the files of a scan, each of them a view; returns the views, and notes.

    Raises:
        ConfigError: A file cannot be read, or shows nothing.
    """
    views: list[ScanCloud] = []
    for file in files:
        views.append(read_cloud(file))
        if not len(views[-1].points):
            raise ConfigError(f"{file} holds no usable point.")
        if sum(len(view.points) for view in views) > MAX_POINTS:
            raise ConfigError(
                f"The scan has more than {MAX_POINTS:,} points. Reduce it, for instance in MeshLab."
            )
    count, dropped = sum(len(v.points) for v in views), sum(v.dropped for v in views)
    notes = [f"read a scan of {count} points in {len(views)} view(s)"]
    notes += [f"dropped {dropped} points that are not finite"] * bool(dropped)
    return views, notes
