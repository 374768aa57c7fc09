"""Visual and collision geometry of the Panda, by link."""

from collections.abc import Mapping, Sequence
from math import pi
from typing import NamedTuple

from fleet_tools.assets.robots.panda import parameters
from fleet_tools.assets.robots.panda.parameters import Vector3

ORIGIN: Vector3 = (0, 0, 0)
BESIDE: Vector3 = (-0.0825, 0, 0)
TURN_X, TURN_BACK_X, TURN_Z = (pi / 2, 0, 0), (-pi / 2, 0, 0), (0, 0, pi)


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


class Capsule(NamedTuple):
    """A collision capsule: start and end of its axis, and radius, m."""

    start: Vector3
    end: Vector3
    radius: float


class Box(NamedTuple):
    """A collision box: centre and size, m."""

    centre: Vector3
    size: Vector3


Visuals = Mapping[str, Sequence[Visual]]
"""Visual geometry by link."""

# Links 2 and 4 are links 1 and 3 turned over.
VISUALS: Visuals = {
    "link0": [Visual("link0_shell", "shell"), Visual("link0_trim", "trim")],
    "link1": [Visual("link1_shell", "shell")],
    "link2": [Visual("link1_shell", "shell", ORIGIN, TURN_BACK_X)],
    "link3": [Visual("link3_shell", "shell"), Visual("link3_trim", "trim")],
    "link4": [
        Visual("link3_shell", "shell", BESIDE, TURN_X),
        Visual("link3_trim", "trim", BESIDE, TURN_X),
    ],
    "link5": [Visual("link5_shell", "shell"), Visual("link5_trim", "trim")],
    "link6": [Visual("link6_shell", "shell"), Visual("link6_trim", "trim")],
    "link7": [Visual("link7_shell", "shell"), Visual("link7_trim", "trim")],
    "hand": [Visual("hand_shell", "shell"), Visual("hand_trim", "trim")],
    "leftfinger": [Visual("finger_shell", "grey"), Visual("finger_trim", "trim")],
    "rightfinger": [
        Visual("finger_shell", "grey", ORIGIN, TURN_Z),
        Visual("finger_trim", "trim", ORIGIN, TURN_Z),
    ],
}
FRANKA_VISUALS: Visuals = {
    **{name: [Visual(name)] for name in (*(f"link{i}" for i in range(8)), "hand")},
    "leftfinger": [Visual("finger", None, ORIGIN, TURN_X)],
    "rightfinger": [Visual("finger", None, ORIGIN, (pi / 2, 0, pi))],
}

# Collision geometry by link. Capsules extend over the seams into the next link, with which they do
# not collide: the arm's links ignore each other.
CAPSULES = {
    "link0": [Capsule((-0.02, 0, 0.06), (0, 0, 0.12), 0.058)],
    "link1": [
        Capsule((0, 0, -0.18), (0, -0.035, -0.075), 0.055),
        Capsule((0, -0.073, 0), (0, 0, 0), 0.055),
    ],
    "link2": [
        Capsule((0, -0.18, 0), (0, -0.075, 0.035), 0.055),
        Capsule((0, 0, 0.073), (0, 0, 0), 0.055),
    ],
    "link3": [
        Capsule((0, 0, -0.115), (0, 0, -0.05), 0.055),
        Capsule((0.0825, 0, 0), (0.0825, 0.057, 0), 0.056),
    ],
    "link4": [
        Capsule((-0.0825, 0.115, 0), (-0.0825, 0.05, 0), 0.055),
        Capsule((0, 0, 0), (0, 0, 0.057), 0.056),
    ],
    "link5": [
        Capsule((0, 0, -0.25), (0, 0.03, -0.175), 0.055),
        Capsule((0, 0.06, -0.16), (0, 0.08, -0.07), 0.045),
        Capsule((0, 0, 0), (0, 0.07, 0), 0.056),
    ],
    "link6": [
        Capsule((0.088, -0.03, 0), (0.088, 0.038, 0), 0.046),
        Capsule((0, 0, 0.008), (0.06, 0, 0), 0.05),
    ],
    "link7": [
        Capsule((0, 0, 0.055), (0, 0, 0.07), 0.046),
        Capsule((0.03, 0.03, 0.076), (0.06, 0.06, 0.076), 0.026),
    ],
}
BOXES = {
    "link0": [Box((-0.04, 0, 0.03), (0.222, 0.17, 0.06))],
    "hand": [Box((0, 0, 0.033), parameters.HAND_BOX)],
    "leftfinger": [
        Box((0, 0.0185, 0.014), (0.021, 0.015, 0.028)),
        Box((0, 0.0076, 0.0415), (0.0176, 0.0152, 0.024)),
    ],
}
BOXES["rightfinger"] = [Box((x, -y, z), size) for (x, y, z), size in BOXES["leftfinger"]]
RIGID = ("link7", "hand", "leftfinger", "rightfinger")
"""Links with rigid hydroelastic contact, which touch tools."""

FRICTION = {"leftfinger": 0.9, "rightfinger": 0.9}
"""Coulomb coefficients of rubber pads, by link."""

METAL_FRICTION = 0.4
"""Coulomb coefficient of painted metal, on all other links."""
