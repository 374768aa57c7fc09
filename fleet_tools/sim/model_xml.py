"""Checks a model's XML before Drake reads it.

Drake takes whatever it is told: a model that includes itself ends the process, a contact mesh of
nanometres fills the memory, and a mesh may be any file of the machine. It gives
a link without `<inertial>` 1 kg and 1 kg m^2 (SDFormat) or nothing at all (URDF), and an impossible
inertia becomes some sphere's, all without an error.
"""

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import numpy as np

from fleet_tools.config.file_access import read_bounded
from fleet_tools.errors import ConfigError, shown

MAX_BYTES = 2_000_000
"""Largest size of a model file."""

MAX_DEPTH = 30
"""Largest number of levels."""

MAX_COUNTS = {"link": 100, "joint": 100, "collision": 1000, "visual": 1000}
"""Largest number of elements of a kind."""

MAX_ELEMENTS = 50_000
"""Largest number of all elements."""

MAX_MESH_BYTES = 50_000_000
"""Largest size of all meshes of a model together; one that is used twice counts twice."""

SIZES_M = (1e-6, 10.0)
"""Range of the dimensions of shapes, m."""

MAX_FINENESS = 200.0
"""Largest ratio of a shape's largest dimension to the edges of its contact mesh."""

MIN_RESOLUTION_M = 1e-4
"""Shortest edges of a contact mesh, m."""

MAX_NUMBER = 1e20
"""Largest number that is no limit of a joint."""

SCALES = (1e-6, 1e6)
"""Range of the scales of meshes."""

_DIMENSIONS = ("radius", "length", "radii", "size")
_NAMES = ("name", "filename", "link", "frame", "relative_to", "parent", "child", "texture")
_FILES = ("uri", "albedo_map", "diffuse_map")
_LIMITS = ("limit", "lower", "upper", "effort", "velocity")
_PACKAGE = re.compile(r"^(?:model|package)://[^/]+/")
_COLLIDING = (".gltf", ".obj", ".vtk")
"""Mesh formats that Drake accepts for collision shapes."""
_NOT_A_NUMBER = re.compile(r"[-+]?nan(\(.*)?", re.IGNORECASE)


def read_model_xml(file: Path) -> ET.Element:
    """Reads a model file whose content is safe to be given to Drake.

    Args:
        file: SDFormat or URDF file.

    Returns:
        The root element.

    Raises:
        ConfigError: It is not XML, includes other models, is too large, names files outside of its
            folder, or gives numbers that no shape or inertia can have.
    """
    try:
        root = ET.fromstring(read_bounded(file, MAX_BYTES))
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}.") from None
    except (ET.ParseError, ValueError, LookupError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{file} is not XML: {error}.") from None
    _check_counts(root, file)
    for element in root.iter():
        if _local(element) == "include":
            raise ConfigError(
                f"{file}: <include> is not supported, because a model's folder must be complete. "
                "Write the links and joints into the file."
            )
        _check_numbers(element, file)
    for element in root.iter():
        if _local(element) in ("collision", "visual"):
            _check_shape(element, file)
    _check_meshes(root, file)
    return root


def _check_counts(root: ET.Element, file: Path) -> None:
    level, depth, total = [root], 0, 0
    while level:
        depth, total = depth + 1, total + len(level)
        if depth > MAX_DEPTH or total > MAX_ELEMENTS:
            raise ConfigError(
                f"{file} is too large: at most {MAX_ELEMENTS:,} elements and {MAX_DEPTH} levels "
                "are read."
            )
        level = [child for element in level for child in element]
    for tag, largest in MAX_COUNTS.items():
        if (count := sum(1 for _ in root.iter(tag))) > largest:
            raise ConfigError(
                f"{file} has {count:,} elements <{tag}>; at most {largest:,} are allowed."
            )


def _check_numbers(element: ET.Element, file: Path) -> None:
    texts = {name: text for name, text in element.attrib.items() if name not in _NAMES}
    if _local(element) not in (*_NAMES, *_FILES):
        texts[""] = element.text or ""
    for name, text in texts.items():
        for word in text.split():
            if _NOT_A_NUMBER.fullmatch(word) or (
                abs(_float(word)) > MAX_NUMBER and _local(element) not in _LIMITS
            ):
                where = f"<{_local(element)}>" + (f" {name}" if name else "")
                raise ConfigError(
                    f"{file}: {where} has {shown(word)}; expected numbers up to {MAX_NUMBER:g}."
                )


def _check_shape(shape: ET.Element, file: Path) -> None:
    """Checks the dimensions of a shape, and how fine its contact mesh is."""
    place = f"{file}: the {_local(shape)} {shown(shape.get('name'))}"
    largest = 0.0
    for element in shape.iter():
        for name in _DIMENSIONS:
            text = element.get(name) or (element.text if _local(element) == name else None)
            for number in map(_float, (text or "").split()):
                if not SIZES_M[0] <= number <= SIZES_M[1]:
                    raise ConfigError(
                        f"{place} has the {name} {number:g} m; expected {SIZES_M[0]:g} to "
                        f"{SIZES_M[1]:g} m for dimensions of shapes."
                    )
                largest = max(largest, number * (1 if name in ("length", "size") else 2))
        text = element.get("scale") or (element.text if _local(element) == "scale" else None)
        for number in map(_float, (text or "").split()):
            if not SCALES[0] <= abs(number) <= SCALES[1]:
                raise ConfigError(f"{place} has a mesh with the scale {number:g}.")
    for uri in _uris(shape) if _local(shape) == "collision" else ():
        if Path(path_of(uri) or uri).suffix.lower() not in _COLLIDING:
            raise ConfigError(
                f"{place} has the mesh {shown(uri)}; expected {', '.join(_COLLIDING)} files for "
                "collision shapes. `python -m fleet_tools.assets import` makes convex pieces of a "
                "mesh, which also simulate faster."
            )
    shortest = max(MIN_RESOLUTION_M, largest / MAX_FINENESS)
    for element in shape.iter():
        if _local(element) == "mesh_resolution_hint":
            for number in map(_float, (element.get("value") or element.text or "").split()):
                if not number >= shortest:
                    raise ConfigError(
                        f"{place} has a mesh_resolution_hint of {number:g} m; give at least "
                        f"{shortest:g} m."
                    )


def _check_meshes(root: ET.Element, file: Path) -> None:
    total = 0
    for uri, path in _named_files(root, file):
        try:
            total += path.stat().st_size if path is not None else 0
            is_file = path is None or path.is_file()
        except OSError:  # such as of a link to itself
            is_file = False
        if path is None or not is_file:
            what = "is outside of the model's folder" if path is None else "is not a file"
            raise ConfigError(
                f"{file}: {shown(uri)} {what}. Put meshes and textures into the folder of the "
                "model, and refer to them by relative paths, model://NAME/... or "
                "package://NAME/...."
            )
    if total > MAX_MESH_BYTES:
        raise ConfigError(
            f"{file}: its meshes and textures have {total:,} bytes; at most {MAX_MESH_BYTES:,} are "
            "read."
        )


def mesh_files(file: Path) -> list[Path]:
    """Returns the meshes and textures that a model file names, in its folder.

    Raises:
        ConfigError: See `read_model_xml`.
    """
    named = _named_files(read_model_xml(file), file)
    return sorted({path for _, path in named if path is not None})


def inside(folder: Path, name: str) -> Path | None:
    """Returns the path of a file that is named relative to a folder; None if it leads out of it."""
    try:
        path = (folder / name).resolve()
        return path if path.is_relative_to(folder.resolve()) else None
    except (OSError, ValueError, RuntimeError):  # such as of a link to itself
        return folder / "?"


def path_of(uri: str) -> str | None:
    """Returns the path that a URI of a model file is, relative to the model's folder or absolute.

    A model is a package on its own, whose name a copy may not have: model://NAME/PATH and
    package://NAME/PATH are PATH in its folder.

    Args:
        uri: The URI, without spaces around it.

    Returns:
        The path, which may lead out of the folder; None if the URI has another scheme.
    """
    path = _PACKAGE.sub("", uri).removeprefix("file://")
    if "://" in path:
        return None
    return unquote(path) if uri.startswith("file://") else path


def _uris(root: ET.Element) -> Iterator[str]:
    """Yields what names the files of a part of a model file."""
    for element in root.iter():
        text = element.text if _local(element) in _FILES else None
        for uri in filter(None, [element.get("filename"), text]):
            yield uri.strip()


def _named_files(root: ET.Element, file: Path) -> Iterator[tuple[str, Path | None]]:
    """Yields each URI of a model file, and its path; None if it is outside of the folder."""
    for uri in _uris(root):
        path = path_of(uri)
        yield uri, None if path is None else inside(file.parent, path)


def _float(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return math.nan


def _local(element: ET.Element) -> str:
    """Returns an element's tag without its namespace."""
    return element.tag.rpartition("}")[2].rpartition(":")[2] if isinstance(element.tag, str) else ""


IMPORT = "`python -m fleet_tools.assets import MESH` computes it from a mesh"


def check_masses(file: Path) -> None:
    """Refuses links with geometry but without a physically possible inertia.

    Args:
        file: SDFormat or URDF file.

    Raises:
        ConfigError: A link lacks mass or inertia, or no body can have them; the message names it.
            Or the file's content is not allowed.
    """
    for link in read_model_xml(file).iter("link"):
        if link.find("collision") is None and link.find("visual") is None:
            continue
        location = f"{file}: the link {link.get('name')!r}"
        inertial = link.find("inertial")
        if inertial is not None and inertial.get("auto") in ("true", "1"):
            continue  # Drake computes it from the collision shapes and their density
        mass = None if inertial is None else _number(inertial.find("mass"), "value")
        tensor = None if inertial is None else _tensor(inertial.find("inertia"))
        if mass is None or tensor is None:
            lacks = "<inertial>" if inertial is None else "<mass>" if mass is None else "<inertia>"
            raise ConfigError(
                f"{location} lacks {lacks}. Give its mass (kg), centre of mass and inertia about "
                f"it (kg m^2); {IMPORT}."
            )
        moments = np.linalg.eigvalsh(tensor)
        if mass <= 0 or moments[0] <= 0 or moments[2] > (moments[0] + moments[1]) * (1 + 1e-6):
            raise ConfigError(
                f"{location} has the mass {mass:g} kg and principal moments of inertia "
                f"{', '.join(f'{x:.4g}' for x in moments)} kg m^2, which are impossible: each "
                "must be positive and at most the sum of the others. "
                f"{IMPORT[0].upper()}{IMPORT[1:]}."
            )


def _number(element: ET.Element | None, attribute: str) -> float | None:
    """Reads a number, which SDFormat writes as text and URDF as an attribute."""
    text = None if element is None else element.get(attribute) or element.text
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _tensor(element: ET.Element | None) -> np.ndarray | None:
    if element is None:
        return None
    tensor = np.zeros((3, 3))
    for i, j in ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)):
        name = f"i{'xyz'[i]}{'xyz'[j]}"
        text = element.get(name) or element.findtext(name)
        if i == j and text is None:
            return None
        try:
            tensor[i, j] = tensor[j, i] = float(text or 0)
        except ValueError:
            return None
    return tensor
