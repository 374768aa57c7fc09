"""Reading of mesh files of common formats, by trimesh."""

import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast
from xml.etree import ElementTree

import numpy as np

from fleet_tools.errors import ConfigError, UnknownNameError
from fleet_tools.sim.catalog import MESH_SUFFIXES, UpAxis

if TYPE_CHECKING:  # its import takes 0.3 s
    import trimesh

_ROTATIONS: dict[UpAxis, tuple[tuple[int, ...], ...]] = {
    "x": ((0, -1, 0), (0, 0, -1), (1, 0, 0)),
    "y": ((1, 0, 0), (0, 0, -1), (0, 1, 0)),
    "z": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "-x": ((0, 1, 0), (0, 0, -1), (-1, 0, 0)),
    "-y": ((1, 0, 0), (0, 0, 1), (0, -1, 0)),
    "-z": ((1, 0, 0), (0, -1, 0), (0, 0, -1)),
}
"""Rotations to axes in which z is up; COLLADA's, of which -x, -y and -z are the opposites."""


@dataclass(frozen=True)
class FileAxes:
    """Unit and axes in a mesh file.

    Attributes:
        unit: Its unit, m; None if neither the file nor its format says it.
        up: Its axis that is up; z if neither says it.
    """

    unit: float | None
    up: UpAxis

    @property
    def words(self) -> str:
        """The same in words."""
        unit = "no unit" if self.unit is None else f"unit {self.unit:g} m"
        return f"{unit}, {self.up} up"

    @property
    def to_model(self) -> np.ndarray:
        """The matrix, (3, 3), to m with z up; a file without a unit is in m, as Drake takes it."""
        return (1.0 if self.unit is None else self.unit) * rotation_to_z(self.up)


def rotation_to_z(up: UpAxis) -> np.ndarray:
    """Returns the rotation matrix, (3, 3), to axes in which z is up."""
    return np.array(_ROTATIONS[up], float)


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
        from fleet_tools.utils.libraries import require

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
            raise ValueError("expected three entries in each vertex and face")
    except Exception as error:  # each format has its own errors
        reason = str(error) or type(error).__name__
        raise ConfigError(
            f"{file} cannot be read as {suffix[1:].upper()}: {reason}. Download or export it again."
        ) from error
    return parts


def file_axes(file: Path) -> FileAxes:
    """Returns the unit and the axes in a mesh file.

    COLLADA files say both, and glTF is in m with y up. Other formats say nothing.

    Raises:
        ConfigError: The file cannot be read, or its unit is not a length.
    """
    suffix = file.suffix.lower()
    if suffix in (".glb", ".gltf"):
        return FileAxes(1.0, "y")
    if suffix != ".dae":
        return FileAxes(None, "z")
    # The asset of the whole file; geometries and nodes can have others, for their own history.
    meter, axis = None, "Y_UP"  # the standard's
    path: list[str] = []
    try:
        with file.open("rb") as opened:
            for event, element in ElementTree.iterparse(opened, ("start", "end")):
                if event == "start":
                    path.append(element.tag.rpartition("}")[2])
                    continue
                match path[1:]:
                    case ["asset", "unit"]:
                        meter = element.get("meter", "1")
                    case ["asset", "up_axis"]:
                        axis = (element.text or "").strip()
                    case ["asset"]:
                        break
                path.pop()
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}.") from None
    except (ElementTree.ParseError, ValueError, LookupError) as error:  # or an unknown encoding
        raise ConfigError(
            f"{file} cannot be read as DAE: {error}. Download or export it again."
        ) from None
    if axis not in ("X_UP", "Y_UP", "Z_UP"):
        raise ConfigError(
            f"{file} says <up_axis>{axis[:40]}</up_axis>; expected X_UP, Y_UP or Z_UP. Correct it "
            "in the file, or export the mesh again."
        )
    return FileAxes(None if meter is None else _length(meter, file), cast(UpAxis, axis[0].lower()))


def _length(meter: str, file: Path) -> float:
    try:
        unit = float(meter)
    except ValueError:
        unit = math.nan
    if not 1e-9 < unit < 1e9:
        raise ConfigError(
            f'{file} says <unit meter="{meter[:40]}">, which is not a length in metres. Correct '
            'it in the file, such as <unit meter="0.001"> for millimetres, or export the mesh '
            "again."
        )
    return unit


def to_model_frame(file: Path) -> np.ndarray:
    """Returns the transform, (4, 4), from a file's unit and axes to m with z up, as in a model.

    Raises:
        ConfigError: See `file_axes`.
    """
    transform = np.eye(4)
    transform[:3, :3] = file_axes(file).to_model
    return transform
