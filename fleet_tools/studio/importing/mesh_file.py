"""Reading of mesh files of common formats."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fleet_tools.errors import ConfigError
from fleet_tools.sim.catalog import Kind
from fleet_tools.sim.mesh_reading import file_axes, read_parts
from fleet_tools.studio.importing.settings import UNITS, ScaleSettings, UpAxis


@dataclass(frozen=True, eq=False)
class RawMesh:
    """The unchecked content of a mesh file, including NaN, duplicates and holes.

    Attributes:
        vertices: Positions, (n, 3), in the axes of the file, and in its unit; COLLADA files
            say it, and are already in m.
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


PLAUSIBLE: dict[Kind, tuple[float, float]] = {"tool": (0.05, 0.6), "object": (0.01, 0.6)}
"""Range of the longest side, m, in which a unit is guessed."""

POSSIBLE = (0.002, 2.0)
"""Range of the longest side, m, that can be imported."""


@dataclass(frozen=True)
class ChosenScale:
    """The scale of a file.

    Attributes:
        factor: Metres per unit of the file.
        note: How it was determined.
    """

    factor: float
    note: str


def choose_scale(settings: ScaleSettings, longest: float, kind: Kind) -> ChosenScale:
    """Determines the scale of a file from the settings, or guesses it.

    Args:
        settings: Settings of the scale.
        longest: Longest side of the bounding box, in the unit of the file.
        kind: Whether the model is a tool or an object.

    Raises:
        ConfigError: The scale must be guessed, and cannot be.
    """
    if settings.length is not None:
        factor = settings.length / longest
        return ChosenScale(factor, f"scaled by {factor:.6g} to be {settings.length:g} m long")
    if settings.scale is not None:
        size = longest * settings.scale
        return ChosenScale(settings.scale, f"scaled by {settings.scale:g} to {size:.4g} m")
    return guess_scale(longest, kind)


def guess_scale(longest: float, kind: Kind) -> ChosenScale:
    """Takes the first of metres, millimetres, centimetres and inches that gives a plausible size.

    Args:
        longest: Longest side of the bounding box, in the unit of the file.
        kind: Whether the model is a tool or an object.

    Raises:
        ConfigError: No unit does, or the mesh was normalized to unit length.
    """
    low, high = PLAUSIBLE[kind]
    fits = [unit for unit, metres in UNITS.items() if low <= longest * metres <= high]
    normalized = min(abs(longest - 1), abs(longest - 2)) < 1e-3
    if not fits or normalized:
        reason = "looks normalized" if normalized else "fits no unit"
        raise ConfigError(
            f"The mesh's longest side is {longest:.6g}, which {reason} for a {kind} of {low} to "
            f"{high} m (tried: {', '.join(UNITS)}). Give its length in metres, such as "
            "--length 0.3, or its unit, such as --scale inch."
        )
    unit, *others = fits
    if unit == "m":
        return ChosenScale(1.0, f"taken as metres: its longest side is {longest:.4g} m")
    alternatives = [f"{other} would give {longest * UNITS[other]:.3g} m" for other in others]
    hint = f"; {' and '.join(alternatives)}: say --scale {others[0]} if so" if others else ""
    size = longest * UNITS[unit]
    return ChosenScale(
        UNITS[unit],
        f"taken as {unit}: its longest side of {longest:.6g} would make a {kind} of {longest:.4g} m"
        f" if it were metres, and makes one of {size:.3g} m{hint}",
    )


def check_size(extents: np.ndarray) -> None:
    """Refuses models that are too large or too small to be simulated with the others.

    Args:
        extents: Sides of the bounding box, (3,), m.

    Raises:
        ConfigError: The model is too large or too small.
    """
    low, high = POSSIBLE
    if not low <= extents.max() <= high:
        raise ConfigError(
            f"The model would be {extents.max():.3g} m long; {low} to {high} m can be simulated "
            "on the table. Give --length METRES or another --scale."
        )


def rotation_to_z(up: UpAxis) -> np.ndarray:
    """Returns the rotation matrix (3, 3) that turns an axis of the file to z by the least angle."""
    axis = np.zeros(3)
    axis["xyz".index(up[-1])] = -1.0 if up.startswith("-") else 1.0
    if up == "z":
        return np.eye(3)
    if up == "-z":
        return np.diag([1.0, -1.0, -1.0])
    cross = np.cross(axis, [0.0, 0.0, 1.0])
    K = np.array([[0, -cross[2], cross[1]], [cross[2], 0, -cross[0]], [-cross[1], cross[0], 0]])
    return np.eye(3) + K + K @ K  # Rodrigues' formula for a quarter turn
