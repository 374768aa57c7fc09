"""Reading of mesh files of common formats."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fleet_tools.errors import ConfigError, UnknownNameError
from fleet_tools.sim.catalog import MESH_SUFFIXES

FORMATS = tuple(suffix.removeprefix(".") for suffix in MESH_SUFFIXES)


@dataclass(frozen=True, eq=False)
class RawMesh:
    """The unchecked content of a mesh file, including NaN, duplicates and holes.

    Attributes:
        vertices: Positions, (n, 3), in unit and axes of the file.
        triangles: Vertex indices, (m, 3).
        notes: How it was made, if it was not read.
    """

    vertices: np.ndarray
    triangles: np.ndarray
    notes: tuple[str, ...] = ()


def read_mesh(file: Path) -> RawMesh:
    """Reads all meshes of a file as one.

    Raises:
        UnknownNameError: The format is not supported.
        ConfigError: The file is missing, empty, damaged or holds no triangles.
    """
    suffix = file.suffix.lower().removeprefix(".")
    if not file.is_file():
        raise ConfigError(f"There is no file {file}.")
    if suffix not in FORMATS:
        remedy = "Export the mesh in one of these formats, for instance from Blender."
        raise UnknownNameError("mesh format", suffix, FORMATS, remedy)
    if not file.stat().st_size:
        raise ConfigError(f"{file} is empty. Download or export it again.")
    mesh = _load(file, suffix)
    if not len(mesh.triangles):
        raise ConfigError(
            f"{file} holds no triangles ({len(mesh.vertices)} points). Export a point cloud as PLY "
            "or PCD, of which a surface is made."
        )
    if mesh.triangles.min() < 0 or mesh.triangles.max() >= len(mesh.vertices):
        raise ConfigError(
            f"{file} is damaged: a triangle refers to a vertex that does not exist. Download or "
            "export it again."
        )
    return mesh


def _load(file: Path, suffix: str) -> RawMesh:
    import trimesh

    try:
        # Materials are skipped, so that a missing texture is no error.
        scene = trimesh.load_scene(file, file_type=suffix, process=False, skip_materials=True)
        parts = [part for part in scene.dump() if isinstance(part, trimesh.Trimesh)]
        if any(
            np.shape(each)[1:] != (3,) for part in parts for each in (part.vertices, part.faces)
        ):
            raise ValueError("not all its vertices and faces have three entries")
    except Exception as error:  # trimesh's readers raise all kinds of errors on damaged files
        reason = str(error) or type(error).__name__
        raise ConfigError(
            f"{file} cannot be read as {suffix.upper()}: {reason}. Download or export it again."
        ) from error
    counts = [len(part.vertices) for part in parts]
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    vertices = [np.zeros((0, 3)), *(np.asarray(part.vertices, float) for part in parts)]
    triangles = [np.zeros((0, 3), np.int64)]
    triangles += [np.asarray(p.faces, np.int64) + k for p, k in zip(parts, offsets, strict=False)]
    return RawMesh(np.concatenate(vertices), np.concatenate(triangles))
