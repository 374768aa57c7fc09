"""An arm's model files: what they say, as values in SI units, their URDF, and their program."""

import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import atan2, cos, hypot, pi, sin
from pathlib import Path
from typing import NamedTuple

from fleet_tools.assets.robots.skins import Mesh, obj_text
from fleet_tools.config.file_access import assets_root
from fleet_tools.utils import cli

Vector3 = tuple[float, float, float]

ORIGIN: Vector3 = (0, 0, 0)


class Inertial(NamedTuple):
    """Mass properties of a link in its frame.

    Attributes:
        mass: Mass, kg.
        centre: Centre of mass, m.
        moments: Moments xx, yy, zz and products xy, xz, yz of inertia about it, kg m^2.
        rpy: Roll, pitch and yaw, in the link's frame, of the axes of the moments, rad.
    """

    mass: float
    centre: Vector3
    moments: tuple[float, float, float, float, float, float]
    rpy: Vector3 = ORIGIN


class Visual(NamedTuple):
    """Visual geometry of a link.

    Attributes:
        mesh: Stem of the mesh file.
        colour: Name of the colour; the file's if None.
        xyz: Position in the link's frame, m.
        rpy: Roll, pitch and yaw in the link's frame, rad.
    """

    mesh: str
    colour: str | None = None
    xyz: Vector3 = ORIGIN
    rpy: Vector3 = ORIGIN


Visuals = Mapping[str, Sequence[Visual]]
"""Visual geometry by link."""


class Capsule(NamedTuple):
    """A collision capsule: start and end of its axis, and radius, m."""

    start: Vector3
    end: Vector3
    radius: float


class Box(NamedTuple):
    """A collision box: centre and size, m."""

    centre: Vector3
    size: Vector3


@dataclass(frozen=True)
class Motor:
    """The drive of a joint, and its limits.

    Attributes:
        lower, upper: Limits of the position, rad.
        velocity: Limit of the speed, rad/s.
        effort: Limit of the torque, N m.
        reflected_inertia: Inertia of the rotor as the joint feels it, kg m^2.
        acceleration: Limit of the acceleration, rad/s^2; none if None.
    """

    lower: float
    upper: float
    velocity: float
    effort: float
    reflected_inertia: float
    acceleration: float | None = None


class Joint(NamedTuple):
    """A joint: the pose of a link in another, and its motor if it turns about the link's z axis."""

    name: str
    parent: str
    child: str
    xyz: Vector3 = ORIGIN
    rpy: Vector3 = ORIGIN
    motor: Motor | None = None


@dataclass(frozen=True)
class RobotDescription:
    """An arm with its hand.

    Names of links, joints and colours are without the robot's name, which the file puts before
    them. No link collides with another of the robot.

    Attributes:
        name: Name of the robot.
        header: Where its numbers come from; a comment at the top of the file.
        colours: Red, green, blue and alpha by name, as URDF writes them.
        links: Names of the links, the base first.
        joints: Joints between them.
        hand_frame: Name of the frame between the finger tips, and its link and position in it, m:
            z points away from the palm, y along the closing of the fingers.
        inertials: Mass properties by link; a link without is a frame only.
        capsules, boxes: Collision geometry by link.
        rigid: Links with rigid hydroelastic contact, which touch tools.
        friction: Coulomb coefficients by link.
        default_friction: Coulomb coefficient of all other links.
    """

    name: str
    header: str
    colours: Mapping[str, str]
    links: Sequence[str]
    joints: Sequence[Joint]
    hand_frame: tuple[str, str, Vector3]
    inertials: Mapping[str, Inertial]
    capsules: Mapping[str, Sequence[Capsule]]
    boxes: Mapping[str, Sequence[Box]]
    rigid: Sequence[str] = ()
    friction: Mapping[str, float] = field(default_factory=dict)
    default_friction: float = 0.4


def craig_joint(i: int, row: Vector3, motor: Motor) -> Joint:
    """Returns joint i from a row a [m], d [m], alpha [rad] of the modified convention."""
    a, d, alpha = row
    c, s = quarter_turn(alpha)
    return Joint(f"joint{i}", f"link{i - 1}", f"link{i}", (a, -s * d, c * d), (alpha, 0, 0), motor)


def box_inertial(mass: float, size: Vector3, centre: Vector3) -> Inertial:
    """Returns the mass properties of a solid box: kg, sizes along the axes and centre in m."""
    x, y, z = (mass * s**2 / 12 for s in size)
    xx, yy, zz = (round(moment, 12) for moment in (y + z, x + z, x + y))
    return Inertial(mass, centre, (xx, yy, zz, 0, 0, 0))


def quarter_turn(alpha: float) -> tuple[int, int]:
    """Returns cosine and sine of -1, 0 or 1 quarter turns, rad, without rounding."""
    assert round(2 * alpha / pi) in (-1, 0, 1)
    return round(cos(alpha)), round(sin(alpha))


OUR_MESHES = "meshes/{}.obj"
"""URI of the meshes that we build, see `urdf_text`."""

GEAR_RATIO = 100  # a convention: only rotor inertia * ratio^2 enters the dynamics


def urdf_text(robot: RobotDescription, visuals: Visuals, mesh_uri: str) -> str:
    """Returns the content of a URDF file; `mesh_uri` has {} for the stem of a mesh file's name."""
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
        limit = {name: getattr(motor, name) for name in ("lower", "upper", "velocity", "effort")}
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


class BuildOptions(cli.Options):
    """Writes the URDF files and the visual meshes of an arm.

    Exit codes:
    0: the files are written.
    2: it cannot begin.
    """

    output: Path | None = None
    """Folder of the files (default: the package's)."""


def build_program(
    robot: RobotDescription,
    meshes: Callable[[], Mapping[str, Mesh]],
    urdfs: Mapping[str, tuple[Visuals, str]],
) -> cli.Program:
    """Returns the program `python -m fleet_tools.assets.robots.ROBOT.build`.

    Args:
        robot: The arm, named as its folder in `assets/robots/`.
        meshes: Returns visual meshes by the stem of their file in `meshes/`.
        urdfs: Visual geometry and URI of the meshes, see `urdf_text`, by name of the URDF file.
    """

    def build(options: BuildOptions) -> int:
        folder = options.output or assets_root() / "robots" / robot.name
        (folder / "meshes").mkdir(parents=True, exist_ok=True)
        header = f"Generated by assets/robots/{robot.name}/build.py"
        files = {f"meshes/{stem}.obj": obj_text(mesh, header) for stem, mesh in meshes().items()}
        files |= {name: urdf_text(robot, *visual) for name, visual in urdfs.items()}
        for name, content in files.items():
            (folder / name).write_text(content, encoding="utf-8", newline="\n")
        options.report({"folder": str(folder)}, lambda: str(folder))
        return cli.OK

    return cli.Program(f"assets.robots.{robot.name}.build", cli.Command(BuildOptions, build))
