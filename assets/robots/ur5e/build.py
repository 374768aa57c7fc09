"""Writes the UR5e's model file and meshes: `python -m fleet_tools.assets.robots.ur5e.build`.

The shells' shapes were designed by hand after the outer dimensions of the real links, in the frames
of the links; they contain no mesh of others. Tubes and drums are light, the caps over the joints
and the hand's fingers dark.
"""

import sys

import numpy as np

from fleet_tools.assets.robots import parallel_hand
from fleet_tools.assets.robots.arm_files import OUR_MESHES, build_program
from fleet_tools.assets.robots.skins import Mesh, X, Y, Z, dome, join, lathe, loft, rounded_box
from fleet_tools.assets.robots.ur5e.description import (
    FOREARM,
    FOREARM_OFFSET,
    SHOULDER,
    STAND_HEIGHT,
    STAND_RADIUS,
    UPPER_ARM,
    UPPER_ARM_OFFSET,
    VISUALS,
    WRIST_1,
    WRIST_2,
    description,
)


def _drum(
    radius: float, low: float, high: float, origin: tuple[float, float, float], axis: np.ndarray
) -> Mesh:
    """Returns a joint's housing: a cylinder with rounded edges between two heights on an axis."""
    side, edge = X if abs(axis[0]) < 0.5 else Y, 0.006
    profile = [
        *((low + high - z, r) for z, r in dome(radius, high - edge, high, radius - edge, 4)[::-1]),
        *dome(radius, high - edge, high, radius - edge, 4),
    ]
    return lathe(profile, origin, axis, side, n=28)


def _cap(
    radius: float, base: float, height: float, origin: tuple[float, float, float], axis: np.ndarray
) -> Mesh:
    """Returns the lid over a joint: a ring that curves in to a flat top."""
    side = X if abs(axis[0]) < 0.5 else Y
    top = dome(radius, base + 0.3 * height, base + height, 0.7 * radius, 4)
    return lathe([(base, radius), *top], origin, axis, side, n=28)


def shells() -> dict[str, Mesh]:
    """Returns the meshes by the stem of the file, each in the frame of the link in its name."""
    top, column = STAND_HEIGHT, STAND_RADIUS
    stand = join(
        rounded_box((0.1, 0.1, 0.0075), (0, 0, 0.0075), rounding=0.003),
        lathe([(0.015, column), (top - 0.015, column)], n=32),
        rounded_box((0.08, 0.08, 0.0075), (0, 0, top - 0.0075), rounding=0.003),
    )
    base = join(
        lathe([(0, 0.0745), (0.012, 0.0745), (0.016, 0.072), (0.016, 0.072), (0.03, 0.0635),
               (0.085, 0.0605), (0.0985, 0.0605)], n=32),
        rounded_box((0.012, 0.02, 0.02), (-0.068, 0, 0.04), 0.004),
    )  # fmt: skip
    # Shoulder: up from the base, round into the axis of joint 2, which is -y of link 1.
    shoulder = join(
        lathe([(0.101, 0.0605), (0.125, 0.0605), *dome(0.0605, SHOULDER, SHOULDER + 0.0605)], n=28),
        _drum(0.0605, -0.02, 0.066, (0, 0, SHOULDER), -Y),
    )
    u, f = UPPER_ARM_OFFSET, FOREARM_OFFSET
    upper_arm = join(
        _drum(0.0605, 0.0685, u + 0.05, (0, 0, 0), Z),
        lathe([(0.03, 0.046), (0.07, 0.044), (UPPER_ARM - 0.07, 0.042), (UPPER_ARM - 0.03, 0.044)],
              (0, 0, u), -X, Y, n=28),
        _drum(0.0545, 0.0745, u + 0.045, (-UPPER_ARM, 0, 0), Z),
    )  # fmt: skip
    forearm = join(
        _drum(0.0545, f - 0.05, 0.0725, (0, 0, 0), Z),
        loft([(-0.03, f - 0.042, -0.03, f + 0.042, 0.042),
              (-0.07, f - 0.039, -0.07, f + 0.039, 0.039),
              (-FOREARM + 0.06, f - 0.033, -FOREARM + 0.06, f + 0.033, 0.033),
              (-FOREARM + 0.03, f - 0.036, -FOREARM + 0.03, f + 0.036, 0.036)],
             X, Z, n=28),
        _drum(0.0435, f - 0.04, 0.0455, (-FOREARM, 0, 0), Z),
    )  # fmt: skip
    wrist_1 = join(_drum(0.0435, 0.0475, WRIST_1 + 0.042, (0, 0, 0), Z),
                   _drum(0.0435, 0, 0.0495, (0, 0, WRIST_1), -Y))  # fmt: skip
    wrist_2 = join(_drum(0.0435, 0.0515, WRIST_2 + 0.042, (0, 0, 0), Z),
                   _drum(0.0435, 0, 0.0495, (0, 0, WRIST_2), Y))  # fmt: skip
    flange = lathe([(0.0515, 0.0375), (0.09, 0.0375), (0.094, 0.0345), (0.094, 0.0345),
                    (0.0996, 0.0315)], n=28)  # fmt: skip
    return {
        "stand_trim": stand,
        "link0_trim": base,
        "link1_shell": shoulder,
        "link1_trim": _cap(0.0575, 0.02, 0.014, (0, 0, SHOULDER), Y),
        "link2_shell": upper_arm,
        "link2_trim": join(_cap(0.0575, u + 0.05, 0.014, (0, 0, 0), Z),
                           _cap(0.0515, u + 0.045, 0.014, (-UPPER_ARM, 0, 0), Z)),
        "link3_shell": forearm,
        "link3_trim": join(_cap(0.0515, 0.05 - f, 0.012, (0, 0, 0), -Z),
                           _cap(0.041, 0.04 - f, 0.012, (-FOREARM, 0, 0), -Z)),
        "link4_shell": wrist_1,
        "link4_trim": _cap(0.041, WRIST_1 + 0.042, 0.012, (0, 0, 0), Z),
        "link5_shell": wrist_2,
        "link5_trim": _cap(0.041, WRIST_2 + 0.042, 0.012, (0, 0, 0), Z),
        "link6_trim": flange,
        **parallel_hand.shells(),
    }  # fmt: skip


PROGRAM = build_program(description(), shells, {"ur5e.urdf": (VISUALS, OUR_MESHES)})
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
