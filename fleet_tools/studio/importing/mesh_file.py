"""Reading of mesh files of common formats."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fleet_tools.assets.usual_sizes import ANY, unusual, usual_size, within
from fleet_tools.errors import ConfigError
from fleet_tools.sim.catalog import Kind
from fleet_tools.sim.mesh_reading import file_axes, read_parts
from fleet_tools.studio.importing.settings import UNITS, ScaleSettings


@dataclass(frozen=True, eq=False)
class RawMesh:
    """The unchecked content of a mesh file, including NaN, duplicates and holes.

    Attributes:
        vertices: Positions, (n, 3), in axes and unit of the file.
        triangles: Vertex indices, (m, 3).
        notes: How it was made, if it was not read.
        unit: The unit that the file says, m; None if it says none.
    """

    vertices: np.ndarray
    triangles: np.ndarray
    notes: tuple[str, ...] = ()
    unit: float | None = None


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
    unit = file_axes(file).unit
    mesh = RawMesh(np.concatenate(vertices), np.concatenate(triangles), unit=unit)
    if not len(mesh.triangles):
        raise ConfigError(
            f"{file} holds no triangles ({len(mesh.vertices)} points). Export a point cloud as "
            "PLY; the program makes a surface from it."
        )
    if mesh.triangles.min() < 0 or mesh.triangles.max() >= len(mesh.vertices):
        raise ConfigError(
            f"{file} is damaged: a triangle refers to a vertex that does not exist. Download or "
            "export it again."
        )
    return mesh


POSSIBLE = (0.002, 2.0)
"""Range of the longest side, m, that can be imported."""


@dataclass(frozen=True)
class ChosenScale:
    """The scale of a file.

    Attributes:
        factor: Metres per unit of the file.
        note: How it was determined.
        doubt: What the user should check about it, if anything.
    """

    factor: float
    note: str
    doubt: str = ""


def choose_scale(
    settings: ScaleSettings, longest: float, stated: float | None, kind: Kind, family: str
) -> ChosenScale:
    """Determines the scale of a file: by the settings, else by the file, else by a guess.

    Args:
        settings: Settings of the scale.
        longest: Longest side of the bounding box, in the unit of the file.
        stated: The unit that the file says, m; None if it says none.
        kind: Whether the model is a tool or an object.
        family: Name of its family.

    Raises:
        ConfigError: The scale must be guessed, and cannot be.
    """
    if settings.length is not None:
        factor = settings.length / longest
        return ChosenScale(factor, f"scaled by {factor:.6g} to be {settings.length:g} m long")
    if settings.scale is not None:
        size = longest * settings.scale
        note = f"scaled by {settings.scale:g} to {size:.4g} m"
        if stated is not None and not np.isclose(stated, settings.scale, rtol=1e-3):
            note += f", in place of the file's own unit, {unit_text(stated)}"
        return ChosenScale(settings.scale, note)
    if stated is None:
        return guess_scale(longest, kind, family)
    size, usual = longest * stated, usual_size(kind, family).length
    if within(size, usual) or (within(size, POSSIBLE) and not _is_normalized(longest)):
        note = f"the file says its unit, {unit_text(stated)}: its longest side is {size:.4g} m"
        return ChosenScale(stated, note)
    guess = guess_scale(longest, kind, family)
    doubt = f"in the unit of the file, {unit_text(stated)}, it would be {size:.4g} m long"
    return ChosenScale(guess.factor, guess.note, doubt)


def unit_text(metres: float) -> str:
    """Returns a unit in words, such as "inch (0.0254 m)"."""
    names = [name for name, each in UNITS.items() if np.isclose(each, metres, rtol=1e-3)]
    return f"{names[0]} ({metres:g} m)" if names else f"{metres:g} m"


def _is_normalized(longest: float) -> bool:
    return min(abs(longest - 1), abs(longest - 2)) < 1e-3


def guess_scale(longest: float, kind: Kind, family: str) -> ChosenScale:
    """Takes the first of metres, millimetres, centimetres and inches that gives a plausible size.

    The longest side is in the unit of the file. The family's usual size is tried first.

    Raises:
        ConfigError: No unit does, or the mesh was normalized to unit length.
    """
    usual = usual_size(kind, family).length
    ranges = (usual, ANY[kind].length)
    fits = [[u for u, metres in UNITS.items() if within(longest * metres, each)] for each in ranges]
    units = fits[0] or fits[1]
    if not units or _is_normalized(longest):
        reason = "fits no unit" if not units else "looks normalized"
        low, high = usual
        raise ConfigError(
            f"The mesh's longest side is {longest:.6g}, which {reason} for a {kind} of the family "
            f"{family}, usually {low:.2g} to {high:.2g} m (tried: {', '.join(UNITS)}). Give its "
            "length in metres, such as --length 0.3, or its unit, such as --scale inch."
        )
    unit, *others = units
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


def size_warnings(
    kind: Kind, family: str, length: float, scale: float, mass: float | None = None
) -> list[str]:
    """Returns warnings about an unusual length, m, or mass, kg, of a model, with remedies.

    `scale` is metres per unit of its file.
    """
    warnings = []
    usual = usual_size(kind, family)
    units = [u for u, metres in UNITS.items() if within(length / scale * metres, usual.length)]
    options = [(f"--scale {u}", length / scale * UNITS[u]) for u in units]
    options = options or [(f"--length {usual.typical_length:.2g}", usual.typical_length)]
    remedy = " and ".join(f"{option} would make it {1000 * x:.3g} mm" for option, x in options)
    for words in unusual(kind, family, length):
        warnings.append(f"{words}; {remedy}")
    for words in unusual(kind, family, mass=mass):
        cause = "its size is the cause" if warnings else "--mass is in kg, --density in kg/m^3"
        warnings.append(f"{words}; {cause}")
    return warnings


def check_size(kind: Kind, family: str, length: float, scale: float) -> None:
    """Refuses models that are too large or too small to be simulated with the others.

    Raises:
        ConfigError: The model is so; `size_warnings` has the same arguments.
    """
    low, high = POSSIBLE
    if not within(length, POSSIBLE):
        raise ConfigError(
            f"The model would be {length:.3g} m long; expected {low} to {high} m: "
            f"{size_warnings(kind, family, length, scale)[0]}."
        )
