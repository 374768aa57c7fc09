"""Our hand: a parallel gripper of solid boxes, for arms whose maker sells none.

Its sizes [m] and masses [kg] are our choice. Its fingers close along y, 30 mm apart.
"""

from collections.abc import Mapping

from fleet_tools.assets.robots.arm_files import (
    ORIGIN,
    Box,
    Inertial,
    Joint,
    Vector3,
    Visual,
    Visuals,
    box_inertial,
)
from fleet_tools.assets.robots.skins import Mesh, join, lathe, rounded_box

MASS = 0.7
SIZE = (0.052, 0.148, 0.064)
CENTRE = (0, 0, 0.032)
FINGER_MASS = 0.02
FINGER_SIZE = (0.02, 0.016, 0.05)
FINGER_CENTRE = (0, 0.008, 0.025)  # left finger, mirrored for the right
FINGER_MOUNT = 0.062
FINGER_OPENING = 0.015

TCP: tuple[str, str, Vector3] = ("hand_tcp", "hand", (0, 0, 0.1034))
"""Frame between the finger tips, as far from the flange as on the Panda's hand."""

LINKS = ("hand", "leftfinger", "rightfinger")
FRICTION = {"leftfinger": 0.9, "rightfinger": 0.9}  # rubber pads
_SIDES = (("leftfinger", 1), ("rightfinger", -1))

VISUALS: Visuals = {
    "hand": [Visual("hand_shell", "shell"), Visual("hand_trim", "trim")],
    **{finger: [Visual(f"{finger}_trim", "trim")] for finger, _ in _SIDES},
}


def _mirrored(side: int) -> Vector3:
    x, y, z = FINGER_CENTRE
    return x, side * y, z


BOXES: Mapping[str, list[Box]] = {
    "hand": [Box(CENTRE, SIZE)],
    **{finger: [Box(_mirrored(side), FINGER_SIZE)] for finger, side in _SIDES},
}
INERTIALS: Mapping[str, Inertial] = {
    "hand": box_inertial(MASS, SIZE, CENTRE),
    **{finger: box_inertial(FINGER_MASS, FINGER_SIZE, _mirrored(side)) for finger, side in _SIDES},
}


def joints(flange: str, yaw: float) -> list[Joint]:
    """Returns the fixed joints of hand and fingers.

    Args:
        flange: Link with the flange's frame.
        yaw: Angle of the hand about the flange's axis, rad.
    """
    mounted = [Joint("hand_joint", flange, "hand", ORIGIN, (0, 0, yaw))]
    for finger, side in _SIDES:
        xyz = (0, side * FINGER_OPENING, FINGER_MOUNT)
        mounted.append(Joint(f"{finger}_joint", "hand", finger, xyz))
    return mounted


def shells() -> dict[str, Mesh]:
    """Returns its visual meshes by the stem of the file."""
    x, y, z = (size / 2 for size in SIZE)
    rail = rounded_box((0.012, y - 0.012, 0.002), (0, 0, 2 * z), rounding=0.0008)
    collar = lathe([(0, 0.0315), (0.006, 0.0335), (0.006, 0.0335), (0.012, 0.0315)], n=24)
    half = tuple(size / 2 for size in FINGER_SIZE)
    return {
        "hand_shell": rounded_box((x, y, z), CENTRE, rounding=0.006, exponent=6),
        "hand_trim": join(rail, collar),
        **{
            f"{finger}_trim": rounded_box(half, _mirrored(side), rounding=0.003)
            for finger, side in _SIDES
        },
    }
