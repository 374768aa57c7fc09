"""What an arm's model file says, as values: links, joints and their geometry, in SI units.

`fleet_tools.assets.robots.urdf` writes a description as text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import cos, pi, sin
from typing import NamedTuple

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
        colour: Name of the colour; that of the file if None.
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
    """What moves a joint, and its limits.

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


def box_inertial(mass: float, size: Vector3, centre: Vector3) -> Inertial:
    """Returns the mass properties of a solid box: kg, sizes along the axes and centre in m."""
    x, y, z = (mass * s**2 / 12 for s in size)
    xx, yy, zz = (round(moment, 12) for moment in (y + z, x + z, x + y))
    return Inertial(mass, centre, (xx, yy, zz, 0, 0, 0))


def quarter_turn(alpha: float) -> tuple[int, int]:
    """Returns cosine and sine of -1, 0 or 1 quarter turns, rad, without rounding."""
    assert round(2 * alpha / pi) in (-1, 0, 1)
    return round(cos(alpha)), round(sin(alpha))
