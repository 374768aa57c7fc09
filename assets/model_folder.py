"""Folders of models as they are written: SDFormat, Wavefront meshes, and labels.

The same description gives the same bytes.
"""

import math
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from fleet_tools.assets.model_description import (
    SIGNATURE,
    JointDescription,
    LinkDescription,
    ModelDescription,
    PartDescription,
    Position,
)
from fleet_tools.assets.solids import MassProperties, Solid
from fleet_tools.storage.atomic_files import replace_folder


def model_files(model: ModelDescription) -> dict[str, bytes]:
    """Returns the content of each file of a model's folder by its relative path."""
    texts = {"model.sdf": sdf_text(model), "keypoints.yaml": _keypoints_text(model)}
    for part in (part for link in model.links for part in link.parts):
        texts[mesh_path(part.name)] = obj_text(part.solid)
        for k, solid in enumerate(part.collision):
            text = (
                obj_text(solid, part.collision_digits)
                if part.core is None
                else vtk_text(solid, part.core)
            )
            texts[collision_path(part, k)] = text
    return {path: text.encode() for path, text in sorted(texts.items())}


def changed_files(model: ModelDescription, folder: Path) -> list[str]:
    """Returns the relative paths at which a folder differs from what `write_model` would write."""
    expected, found = model_files(model), read_files(folder)
    return sorted(p for p in expected.keys() | found.keys() if expected.get(p) != found.get(p))


def write_model(model: ModelDescription, folder: Path) -> None:
    """Writes a model's folder, whole or not at all.

    Args:
        model: The model.
        folder: A new or empty folder, or one that a generator wrote, which is replaced.

    Raises:
        FileExistsError: The folder holds something that no generator wrote.
    """
    found = read_files(folder)
    if found and not found.get("keypoints.yaml", b"").startswith(SIGNATURE.encode()):
        raise FileExistsError(
            f"{folder} was not written by a generator and was left unchanged. Choose another "
            "--output, or move the folder away."
        )
    replace_folder(folder, model_files(model))


def read_files(folder: Path) -> dict[str, bytes]:
    """Returns the content of each file below a folder by its relative path; none if absent."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def _keypoints_text(model: ModelDescription) -> str:
    lines = [
        f"{model.signature} --family {model.family}",
        f"family: {model.family}",
        f"kind: {model.kind}",
        "keypoints:  # metres, in the named link's frame",
    ]
    for name, keypoint in model.keypoints.items():
        position = _yaml_floats(keypoint.position)
        lines.append(f"  {name}: {{link: {keypoint.link}, position: [{position}]}}")
    if model.grasp is not None:
        lines += [
            "grasp:  # X_TG",
            f"  translation_m: [{decimals(model.grasp.translation_m, separator=', ')}]",
            f"  rpy_deg: [{decimals(model.grasp.rpy_deg, separator=', ')}]",
        ]
    return "\n".join(lines) + "\n"


def _yaml_floats(position: Position) -> str:
    """Returns numbers that YAML reads as floats; it would read 5e-05 as a string."""
    texts = [decimal(value, 9) for value in position]
    return ", ".join(text if "." in text else f"{text}.0" for text in texts)


def mesh_path(name: str) -> str:
    """Returns the path of a mesh file in its model folder."""
    return f"meshes/{name}.obj"


def collision_name(part: str, index: int) -> str:
    """Returns the name of one of a part's collision solids, and of its mesh file."""
    return f"{part}_collision_{index}"


def collision_path(part: PartDescription, index: int) -> str:
    """Returns the path of the mesh file of one of a part's collision solids."""
    path = mesh_path(collision_name(part.name, index))
    return path if part.core is None else path.replace(".obj", ".vtk")


def sdf_text(model: ModelDescription) -> str:
    """Returns the content of `model.sdf`."""
    root = ET.Element("sdf", {"version": "1.9", "xmlns:drake": "https://drake.mit.edu"})
    root.append(ET.Comment(f"{model.signature[1:]}, family {model.family} "))
    element = ET.SubElement(root, "model", name=model.name)
    for link in model.links:
        _add_link(element, link)
    for joint in model.joints:
        _add_joint(element, joint)
    ET.indent(root)
    return '<?xml version="1.0"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _add(parent: ET.Element, tag: str, text: str | None = None, **attributes: str) -> ET.Element:
    element = ET.SubElement(parent, tag, attributes)
    element.text = text
    return element


def _add_link(model: ET.Element, link: LinkDescription) -> None:
    element = _add(model, "link", name=link.name)
    _add(element, "pose", decimals((*link.origin, 0, 0, 0)))
    element.append(inertial_element(link.mass_properties()))
    for part in link.parts:
        visual = _add(element, "visual", name=part.name)
        _add(_add(_add(visual, "geometry"), "mesh"), "uri", mesh_path(part.name))
        _add(_add(visual, "material"), "diffuse", decimals((*part.material.colour, 1), 4))
        for k in range(len(part.collision)):
            _add_collision(element, part, k)


def inertial_element(body: MassProperties) -> ET.Element:
    """Returns SDFormat's <inertial> of a link."""
    inertial = ET.Element("inertial")
    _add(inertial, "pose", decimals((*body.centre, 0, 0, 0)))
    _add(inertial, "mass", decimal(body.mass, 9))
    tensor = _add(inertial, "inertia")
    for i, j in ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)):
        _add(tensor, f"i{'xyz'[i]}{'xyz'[j]}", decimal(body.inertia[i, j], 13))
    return inertial


def _add_collision(link: ET.Element, part: PartDescription, index: int) -> None:
    element = _add(link, "collision", name=collision_name(part.name, index))
    material, mesh = part.material, _add(_add(element, "geometry"), "mesh")
    _add(mesh, "uri", collision_path(part, index))
    if part.core is None:
        _add(mesh, "drake:declare_convex")
    properties = _add(element, "drake:proximity_properties")
    if math.isinf(material.modulus):
        _add(properties, "drake:rigid_hydroelastic")
    else:
        _add(properties, "drake:compliant_hydroelastic")
        _add(properties, "drake:hydroelastic_modulus", decimal(material.modulus, 0))
    _add(properties, "drake:hunt_crossley_dissipation", decimal(material.dissipation, 4))
    for kind in ("dynamic", "static"):
        _add(properties, f"drake:mu_{kind}", decimal(material.friction, 4))


def _add_joint(model: ET.Element, joint: JointDescription) -> None:
    element = _add(model, "joint", name=joint.name, type=joint.kind)
    _add(element, "parent", joint.parent)
    _add(element, "child", joint.child)
    if joint.kind == "screw":
        _add(element, "screw_thread_pitch", decimal(joint.lead, 9))
    axis = _add(element, "axis")
    _add(axis, "xyz", decimals(joint.axis))
    limit = _add(axis, "limit")
    _add(limit, "lower", decimal(joint.limits[0], 9))
    _add(limit, "upper", decimal(joint.limits[1], 9))
    _add(limit, "effort", decimal(joint.resistance, 9))
    element.append(ET.Comment(" an implicit Coulomb brake: holds up to the effort limit "))
    _add(element, "drake:controller_gains", p="0", d="100000")
    _add(element, "drake:rotor_inertia", decimal(joint.inertia, 9))


CREASE_DEG = 35.0
"""Faces that meet at less than this angle are shaded as one smooth surface."""


def corner_normals(solid: Solid) -> np.ndarray:
    """Returns unit normals for shading at the corners of each triangle, (m, 3 corners, 3).

    They are smooth across edges up to `CREASE_DEG`, sharp beyond. No triangle is degenerate.
    """
    a, b, c = np.moveaxis(solid.vertices[solid.triangles], 1, 0)
    areas = np.cross(b - a, c - a)  # (m, 3), along the normals, twice the areas long
    units = areas / np.linalg.norm(areas, axis=1, keepdims=True)
    normals = np.empty((len(solid.triangles), 3, 3))
    for vertex in range(len(solid.vertices)):
        around, corner = np.nonzero(solid.triangles == vertex)
        smooth = units[around] @ units[around].T > math.cos(math.radians(CREASE_DEG))
        normals[around, corner] = smooth @ areas[around]
    return normals / np.linalg.norm(normals, axis=2, keepdims=True)


def vtk_text(solid: Solid, core: Position) -> str:
    """Returns the text of a VTK file of the tetrahedra between triangles and a point."""
    number = len(solid.triangles)
    points = [*solid.vertices, core]
    lines = ["# vtk DataFile Version 3.0", "collision", "ASCII", "DATASET UNSTRUCTURED_GRID"]
    lines += [f"POINTS {len(points)} double", *(decimals(point) for point in points)]
    lines.append(f"CELLS {number} {5 * number}")
    lines += [f"4 {a} {c} {b} {len(points) - 1}" for a, b, c in solid.triangles]
    lines += [f"CELL_TYPES {number}", *["10"] * number]
    return "\n".join(lines) + "\n"


def obj_text(solid: Solid, digits: int = 9) -> str:
    """Returns the text of an OBJ file with normals; coordinates have digits after the point."""
    rounded = np.round(corner_normals(solid).reshape(-1, 3), 4) + 0.0  # no -0
    normals, indices = np.unique(rounded, axis=0, return_inverse=True)
    lines = ["v " + " ".join(decimal(x, digits) for x in vertex) for vertex in solid.vertices]
    lines += ["vn " + " ".join(decimal(x, 4) for x in normal) for normal in normals]
    for corners in zip(solid.triangles + 1, indices.reshape(-1, 3) + 1, strict=True):
        lines.append("f " + " ".join(f"{v}//{n}" for v, n in zip(*corners, strict=True)))
    return "\n".join(lines) + "\n"


def decimal(value: float, digits: int) -> str:
    """Returns the shortest decimal of a number rounded to digits after the point, no exponent.

    Zero is never negative, so that equal values have equal texts.
    """
    text = f"{value:.{digits}f}".rstrip("0").rstrip(".") if digits else f"{value:.0f}"
    return "0" if text in ("-0", "") else text


def decimals(values: Iterable[float], digits: int = 9, separator: str = " ") -> str:
    """Returns the decimals of several numbers, with a separator between them."""
    return separator.join(decimal(value, digits) for value in values)
