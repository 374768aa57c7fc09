"""Reading of mesh files of common formats."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fleet_tools.errors import ConfigError
from fleet_tools.sim.mesh_reading import file_axes, read_parts


@dataclass(frozen=True, eq=False)
class RawMesh:
    """The unchecked content of a mesh file, including NaN, duplicates and holes.

    Attributes:
        vertices: Positions, (n, 3), in the axes of the file, and in its unit; that of COLLADA
            files, which say it, is already m.
        triangles: Vertex indices, (m, 3).
        notes: How it was made, if it was not read.
    """

    vertices: np.ndarray
    triangles: np.ndarray
    notes: tuple[str, ...] = ()


def read_mesh(file: Path) -> RawMesh:
    """Reads all meshes of a file as one.

    Raises:
        UnknownNameError, MissingLibraryError: The format is not supported, or not here.
        ConfigError: The file is missing, empty, damaged or holds no triangles.
    """
    if not file.is_file():
        raise ConfigError(f"There is no file {file}.")
    if not file.stat().st_size:
        raise ConfigError(f"{file} is empty. Download or export it again.")
    parts = read_parts(file)
    offsets = np.concatenate([[0], np.cumsum([len(part.vertices) for part in parts])])
    vertices = [np.zeros((0, 3)), *(np.asarray(part.vertices, float) for part in parts)]
    triangles = [np.zeros((0, 3), np.int64)]
    triangles += [np.asarray(p.faces, np.int64) + k for p, k in zip(parts, offsets, strict=False)]
    meters, _ = file_axes(file)
    mesh = RawMesh(meters * np.concatenate(vertices), np.concatenate(triangles))
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
