"""An arm's description as URDF text with Drake's extensions."""

import xml.etree.ElementTree as ET
from math import atan2, hypot

from fleet_tools.assets.robots.description import (
    ORIGIN,
    Capsule,
    Joint,
    Motor,
    RobotDescription,
    Vector3,
    Visuals,
)

GEAR_RATIO = 100  # a convention: only rotor inertia * ratio^2 enters the dynamics


def urdf_text(robot: RobotDescription, visuals: Visuals, mesh_uri: str) -> str:
    """Returns the content of a URDF file.

    Args:
        robot: The arm and its hand.
        visuals: Visual geometry by link.
        mesh_uri: URI of a mesh file, with {} for the stem of its name.
    """
    root = ET.Element("robot", {"xmlns:drake": "http://drake.mit.edu", "name": robot.name})
    root.append(ET.Comment(robot.header))
    colours = (visual.colour for of_link in visuals.values() for visual in of_link)
    for colour in dict.fromkeys(colours):
        if colour is not None:
            material = _add(root, "material", name=f"{robot.name}_{colour}")
            _add(material, "color", rgba=robot.colours[colour])
    for link in robot.links:
        _add_link(root, robot, link, visuals, mesh_uri)
    for joint in robot.joints:
        _add_joint(root, robot.name, joint)
    frame, link, xyz = robot.hand_frame
    names = {"name": f"{robot.name}_{frame}", "link": f"{robot.name}_{link}"}
    _add(root, "frame", **names, xyz=xyz, rpy=ORIGIN)
    motors = ((joint.name, joint.motor) for joint in robot.joints if joint.motor)
    for i, (joint, motor) in enumerate(motors, start=1):
        _add_transmission(root, robot.name, i, joint, motor)
    group = _add(root, "drake:collision_filter_group", name=robot.name)
    for link in robot.links:
        _add(group, "drake:member", link=f"{robot.name}_{link}")
    _add(group, "drake:ignored_collision_filter_group", name=robot.name)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=False) + "\n"


def _text(*values: float) -> str:
    """Returns numbers as text that is read back exactly, without a trailing ".0"."""
    return " ".join(repr(float(value) + 0.0).removesuffix(".0") for value in values)


def _add(parent: ET.Element, tag: str, **attributes: str | float | tuple[float, ...]) -> ET.Element:
    """Appends an element; attributes that are numbers, or tuples of them, become text."""
    texts = {}
    for name, value in attributes.items():
        if isinstance(value, str):
            texts[name] = value
        else:
            texts[name] = _text(*value) if isinstance(value, tuple) else _text(value)
    return ET.SubElement(parent, tag, texts)


def _capsule_pose(capsule: Capsule) -> tuple[float, Vector3, Vector3]:
    """Returns length, xyz and rpy of a capsule along z that coincides with the given one."""
    (x0, y0, z0), (x1, y1, z1), _ = capsule
    x, y, z = x1 - x0, y1 - y0, z1 - z0
    xyz = (round((x0 + x1) / 2, 9), round((y0 + y1) / 2, 9), round((z0 + z1) / 2, 9))
    rpy = (0, round(atan2(hypot(x, y), z), 9), round(atan2(y, x), 9))
    return round(hypot(x, y, z), 9), xyz, rpy


def _add_link(
    root: ET.Element, robot: RobotDescription, name: str, visuals: Visuals, mesh_uri: str
) -> None:
    """Appends a link with its mass properties and its geometry."""
    link = _add(root, "link", name=f"{robot.name}_{name}")
    if name in robot.inertials:
        mass, centre, (xx, yy, zz, xy, xz, yz), rpy = robot.inertials[name]
        inertial = _add(link, "inertial")
        _add(inertial, "origin", xyz=centre, rpy=rpy)
        _add(inertial, "mass", value=mass)
        _add(inertial, "inertia", ixx=xx, ixy=xy, ixz=xz, iyy=yy, iyz=yz, izz=zz)
    for mesh, colour, xyz, rpy in visuals.get(name, ()):
        visual = _add(link, "visual")
        _add(visual, "origin", xyz=xyz, rpy=rpy)
        _add(_add(visual, "geometry"), "mesh", filename=mesh_uri.format(mesh))
        if colour is not None:
            _add(visual, "material", name=f"{robot.name}_{colour}")
    for capsule in robot.capsules.get(name, ()):
        length, xyz, rpy = _capsule_pose(capsule)
        geometry = _add_collision(link, robot, name, xyz, rpy)
        _add(geometry, "drake:capsule", radius=capsule.radius, length=length)
    for box in robot.boxes.get(name, ()):
        _add(_add_collision(link, robot, name, box.centre, ORIGIN), "box", size=box.size)


def _add_collision(
    link: ET.Element, robot: RobotDescription, name: str, xyz: Vector3, rpy: Vector3
) -> ET.Element:
    """Appends a collision element, and returns its geometry, which is still empty."""
    collision = _add(link, "collision")
    _add(collision, "origin", xyz=xyz, rpy=rpy)
    geometry = _add(collision, "geometry")
    properties = _add(collision, "drake:proximity_properties")
    if name in robot.rigid:
        _add(properties, "drake:rigid_hydroelastic")
        _add(properties, "drake:mesh_resolution_hint", value=0.01)
    friction = robot.friction.get(name, robot.default_friction)
    _add(properties, "drake:mu_static", value=friction)
    _add(properties, "drake:mu_dynamic", value=friction)
    return geometry


def _add_joint(root: ET.Element, robot: str, joint: Joint) -> None:
    kind = "revolute" if joint.motor else "fixed"
    element = _add(root, "joint", name=f"{robot}_{joint.name}", type=kind)
    _add(element, "parent", link=f"{robot}_{joint.parent}")
    _add(element, "child", link=f"{robot}_{joint.child}")
    _add(element, "origin", xyz=joint.xyz, rpy=joint.rpy)
    if motor := joint.motor:
        _add(element, "axis", xyz=(0, 0, 1))
        limit = {
            "lower": motor.lower,
            "upper": motor.upper,
            "velocity": motor.velocity,
            "effort": motor.effort,
        }
        if motor.acceleration is not None:
            limit["drake:acceleration"] = motor.acceleration
        _add(element, "limit", **limit)


def _add_transmission(root: ET.Element, robot: str, index: int, joint: str, motor: Motor) -> None:
    """Appends the actuator of a joint."""
    transmission = _add(root, "transmission", name=f"{robot}_transmission{index}")
    _add(transmission, "type").text = "transmission_interface/SimpleTransmission"
    _add(transmission, "joint", name=f"{robot}_{joint}")
    actuator = _add(transmission, "actuator", name=f"{robot}_{joint}")
    _add(actuator, "drake:gear_ratio", value=GEAR_RATIO)
    rotor_inertia = round(motor.reflected_inertia / GEAR_RATIO**2, 15)
    _add(actuator, "drake:rotor_inertia", value=rotor_inertia)
