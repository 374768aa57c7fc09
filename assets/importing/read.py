"""Reading a mesh file of any common format into plain arrays."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fleet_tools.errors import ConfigError, UnknownNameError
from fleet_tools.sim.catalog import MESHES

FORMATS = tuple(suffix.removeprefix(".") for suffix in MESHES)
GLTF = ("glb", "gltf")


@dataclass(frozen=True, eq=False)
class RawMesh:
    """What a file says, unchecked: NaN, duplicates and holes included.

    Attributes:
        vertices: (n, 3), in the file's own unit and axes.
        triangles: (m, 3) vertex indices.
    """

    vertices: np.ndarray
    triangles: np.ndarray


def read_mesh(file: Path) -> RawMesh:
    """Reads all meshes of a file as one.

    Raises:
        UnknownNameError: No such format is read.
        ConfigError: The file is missing, empty, damaged or holds no triangles.
    """
    suffix = file.suffix.lower().removeprefix(".")
    if not file.is_file():
        raise ConfigError(f"There is no file {file}.")
    if suffix not in FORMATS:
        remedy = "Export the mesh as one of these, for instance from Blender."
        raise UnknownNameError("mesh format", suffix, FORMATS, remedy)
    if not file.stat().st_size:
        raise ConfigError(f"{file} is empty; download or export it anew.")
    raw = _load(file, suffix)
    if not len(raw.triangles):
        raise ConfigError(
            f"{file} holds no triangles ({len(raw.vertices)} points); a point cloud must be "
            "made a surface first, for instance in MeshLab."
        )
    indices = raw.triangles
    if indices.min() < 0 or indices.max() >= len(raw.vertices):
        raise ConfigError(f"{file} is damaged: a triangle names a vertex that is not there.")
    return raw


def _load(file: Path, suffix: str) -> RawMesh:
    import trimesh

    try:
        # Materials are skipped: a missing texture is no reason to refuse a shape.
        scene = trimesh.load_scene(file, file_type=suffix, process=False, skip_materials=True)
        parts = [part for part in scene.dump() if isinstance(part, trimesh.Trimesh)]
    except Exception as error:  # trimesh's readers raise whatever a damaged file provokes
        reason = str(error) or type(error).__name__
        raise ConfigError(f"{file} cannot be read as {suffix.upper()}: {reason}.") from error
    counts = [len(part.vertices) for part in parts]
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    vertices = [np.zeros((0, 3)), *(np.asarray(part.vertices, float) for part in parts)]
    triangles = [np.zeros((0, 3), np.int64)]
    triangles += [np.asarray(p.faces, np.int64) + k for p, k in zip(parts, offsets, strict=False)]
    return RawMesh(np.concatenate(vertices), np.concatenate(triangles))
