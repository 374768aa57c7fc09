"""Reading of mesh files of common formats, by trimesh."""

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from fleet_tools.errors import ConfigError, UnknownNameError
from fleet_tools.sim.catalog import MESH_SUFFIXES
from fleet_tools.utils.libraries import require

if TYPE_CHECKING:  # its import takes 0.3 s
    import trimesh

UpAxis = Literal["x", "y", "z"]

_HEADER_BYTES = 20_000
"""Part of a COLLADA file in which unit and axes are given."""
_UP_AXIS = re.compile(rb"<up_axis>\s*([XYZ])_UP\s*</up_axis>")
_UNIT = re.compile(rb"""<unit\s[^>]*\bmeter\s*=\s*["']([^"']+)""")
_FROM: dict[UpAxis, tuple[tuple[int, ...], ...]] = {
    "x": ((0, -1, 0), (0, 0, -1), (1, 0, 0)),
    "y": ((1, 0, 0), (0, 0, -1), (0, 1, 0)),
    "z": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
}
"""Rotations to axes in which z is up, from those in which another one is."""


def read_parts(
    file: Path, content: bytes | None = None, *, materials: bool = False
) -> "list[trimesh.Trimesh]":
    """Reads the meshes of a file, in its unit and axes.

    Args:
        file: The file.
        content: What it holds, if it is not on the disk.
        materials: Whether to read materials and textures; those that are missing are no error.

    Raises:
        UnknownNameError: The format is not supported.
        MissingLibraryError: The library that reads this format is absent.
        ConfigError: The file is damaged, or holds no triangles.
    """
    suffix = file.suffix.lower()
    if suffix not in MESH_SUFFIXES:
        known = [each.removeprefix(".") for each in MESH_SUFFIXES]
        remedy = f"Export {file} in one of these formats, for instance from Blender."
        raise UnknownNameError("mesh format", suffix.removeprefix("."), known, remedy)
    if suffix == ".dae":
        require("collada", f"read {file}", "Or export the mesh as GLB, for instance from Blender.")
    import trimesh

    try:
        scene = trimesh.load(
            file if content is None else io.BytesIO(content),
            file_type=suffix.removeprefix("."),
            force="scene",
            process=False,
            skip_materials=not materials,
        )
        assert isinstance(scene, trimesh.Scene)  # by `force`
        parts = []
        for node in scene.graph.nodes_geometry:
            X, name = scene.graph[node]
            part = scene.geometry[name]
            if isinstance(part, trimesh.Trimesh):
                # Copies without their cache would lose the normals of the file.
                parts.append(part.copy(include_cache=True).apply_transform(X))
        if any(np.shape(x)[1:] != (3,) for part in parts for x in (part.vertices, part.faces)):
            raise ValueError("not all its vertices and faces have three entries")
    except Exception as error:  # each format has its own errors
        reason = str(error) or type(error).__name__
        raise ConfigError(
            f"{file} cannot be read as {suffix[1:].upper()}: {reason}. Download or export it again."
        ) from error
    return parts


def file_axes(file: Path) -> tuple[float, UpAxis]:
    """Returns the unit of a mesh file in m, and its axis that is up.

    COLLADA says both, and glTF's are fixed; other formats are as Drake takes them.

    Raises:
        ConfigError: The file cannot be read, or its unit is not a length.
    """
    suffix = file.suffix.lower()
    if suffix != ".dae":
        return 1.0, "y" if suffix in (".glb", ".gltf") else "z"
    try:
        with file.open("rb") as opened:
            header = opened.read(_HEADER_BYTES)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}.") from None
    up, unit = _UP_AXIS.search(header), _UNIT.search(header)
    try:
        meters = float(unit[1]) if unit else 1.0
    except ValueError:
        meters = np.nan
    if not 1e-9 < meters < 1e9:
        raise ConfigError(f"{file} has no unit of length: <unit meter=...> is not a number.")
    return meters, cast(UpAxis, up[1].decode().lower()) if up else "y"


def to_model_frame(file: Path) -> np.ndarray:
    """Returns the transform, (4, 4), from a file's unit and axes to m with z up, as in a model.

    Raises:
        ConfigError: See `file_axes`.
    """
    meters, up = file_axes(file)
    transform = np.eye(4)
    transform[:3, :3] = meters * np.array(_FROM[up])
    return transform
