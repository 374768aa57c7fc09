"""Model descriptions as SDFormat text with Drake's extensions."""

import math
import xml.etree.ElementTree as ET

from fleet_tools.assets.decimals import decimal, decimals
from fleet_tools.assets.materials import Material
from fleet_tools.assets.model_description import (
    JointDescription,
    LinkDescription,
    ModelDescription,
)


def mesh_path(name: str) -> str:
    """Returns the path of a mesh file in its model folder."""
    return f"meshes/{name}.obj"


def collision_name(part: str, index: int) -> str:
    """Returns the name of one of a part's collision solids, and of its mesh file."""
    return f"{part}_collision_{index}"


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
    body = link.mass_properties()
    inertial = _add(element, "inertial")
    _add(inertial, "pose", decimals((*body.centre, 0, 0, 0)))
    _add(inertial, "mass", decimal(body.mass, 9))
    tensor = _add(inertial, "inertia")
    for i, j in ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)):
        _add(tensor, f"i{'xyz'[i]}{'xyz'[j]}", decimal(body.inertia[i, j], 13))
    for part in link.parts:
        visual = _add(element, "visual", name=part.name)
        _add(_add(_add(visual, "geometry"), "mesh"), "uri", mesh_path(part.name))
        _add(_add(visual, "material"), "diffuse", decimals((*part.material.colour, 1), 4))
        for k in range(len(part.collision)):
            _add_collision(element, collision_name(part.name, k), part.material)


def _add_collision(link: ET.Element, name: str, material: Material) -> None:
    element = _add(link, "collision", name=name)
    mesh = _add(_add(element, "geometry"), "mesh")
    _add(mesh, "uri", mesh_path(name))
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
