"""Writes the Panda's model files: `python -m fleet_tools.assets.robots.panda.build`.

`panda.urdf` has our own visual meshes. `panda_franka_visuals.urdf` has the same dynamics and
collision geometry, and Franka's visual meshes from Drake's model package.

The shells' shapes were designed by hand after the outer dimensions of the real links, in the frames
of the links; they contain no mesh of others.
"""

import sys
from collections.abc import Sequence

import numpy as np

from fleet_tools.assets.robots.arm_files import OUR_MESHES, build_program
from fleet_tools.assets.robots.panda.description import FRANKA_VISUALS, VISUALS, description
from fleet_tools.assets.robots.skins import (
    Mesh,
    X,
    Y,
    Z,
    dome,
    join,
    lathe,
    loft,
    rounded_box,
    skin,
)

R = 0.055
"""Radius of the arm's tubes, m."""


def _forearm_bar(levels: Sequence[tuple[float, float, float]]) -> Mesh:
    """Returns the bar along the outside of the forearm, round about the wrist's axis at its end.

    Args:
        levels: Inset, height above the forearm's spine, and scale of the width, of each ring.
    """
    spine_z = (-0.22, -0.20, -0.17, -0.136, -0.104, -0.07, -0.036, 0, 0.03, 0.055)
    spine_y = (0.067, 0.077, 0.090, 0.101, 0.107, 0.112, 0.118, 0.12, 0.114, 0.092)
    angle = np.linspace(0, np.radians(115), 8)
    rings = []
    for inset, height, scale in levels:
        head, tail = 0.05 - inset, 0.034 - inset
        z = [*head * np.cos(angle), -0.048, -0.078, -0.112, -0.15, *-0.184 - tail * np.sin(angle)]
        w = [*head * np.sin(angle), 0.037 - inset, 0.0315 - inset, 0.030 - inset, 0.032 - inset,
             *tail * np.cos(angle)]  # fmt: skip
        keep = np.array(w) > -1e-9
        z, w = np.array(z)[keep], np.array(w)[keep] * scale
        half = np.stack([w, np.interp(z, spine_z, spine_y) + height, z], -1)
        rings.append(np.concatenate([half, half[::-1] * (-1, 1, 1)]))
    return skin(rings)


def shells() -> dict[str, Mesh]:
    """Returns the meshes by the stem of the file, each in the frame of the link in its name."""
    # Base: a column inclined into its foot, and the dark ring under joint 1.
    base = loft(
        [
            (-0.138, 0.002, 0.071, 0.002, 0.082),
            (-0.135, 0.020, 0.069, 0.024, 0.077),
            (-0.116, 0.048, 0.065, 0.048, 0.068),
            (-0.082, 0.080, 0.060, 0.074, 0.060),
            (-0.057, 0.112, 0.056, 0.104, 0.056),
            (-R, 0.118, R, 0.118, R),
        ],
        right=X, n=28,
    )  # fmt: skip
    foot = rounded_box((0.068, 0.096, 0.006), (-0.084, 0, 0.006), rounding=0.003, exponent=5)
    collar = lathe([(0.104, 0.0575), (0.107, 0.0588), (0.112, 0.0588), (0.137, 0.0588),
                    (0.1405, 0.057), (0.1415, 0.054)], n=32)  # fmt: skip
    lamp = lathe([(0.05, 0.0155), (0.0582, 0.0155), *dome(0.0155, 0.0582, 0.0594, 0.013, 3)],
                 (0, 0, 0.123), X, Y, n=16)  # fmt: skip

    # Shoulder of links 1 and 2: up out of the tube, sideways, and round into the cross axis.
    shoulder = loft(
        [
            (0.055, -0.192, -0.055, -0.192, R),
            (0.055, -0.140, -0.055, -0.145, R),
            (0.047, -0.107, -0.063, -0.108, 0.054),
            (0.020, -0.087, -0.084, -0.073, 0.0525),
            (-0.001, -0.077, -0.108, -0.042, 0.0515),
            (-0.007, -0.069, -0.126, -0.008, 0.051),
            (-0.006, -0.063, -0.119, 0.028, 0.0525),
            (-0.004, -0.059, -0.085, 0.050, 0.054),
            (-0.002, -0.056, -0.040, 0.055, R),
            (0.000, -0.055, 0.000, 0.055, R),
        ],
        n=24,
    )  # fmt: skip

    # Elbow of links 3 and 4: a domed tube, a cross drum beside it, a saddle between them.
    drum = (0.0825, 0, 0)
    saddle = np.array([0.074, 0.040, 0.056])
    length = np.linalg.norm(saddle)
    saddle_side = np.cross(saddle, Y) / np.hypot(*saddle[::2])
    cap = dome(0.044, 0, 0.044)
    neck = [*((-h, r) for h, r in cap[::-1]), (0.3 * length, 0.041), (0.6 * length, 0.041),
            (0.8 * length, 0.044), *((length + h, 1.1 * r) for h, r in cap)]  # fmt: skip
    elbow = join(
        lathe([(-0.1255, 0.0535), (-0.1225, 0.0535), (-0.1225, 0.0535), (-0.1225, R),
               (-0.1225, R), (-0.085, R), *dome(R, -0.062, 0.0, steps=6)], n=24),
        lathe([(0.0005, R), (0.068, R)], drum, Y, Z, n=24),
        lathe(neck, (0.006, 0, -0.062), saddle / length, saddle_side, n=24),
        lathe([(0.106, 0.0335), *dome(0.0335, 0.108, 0.1115, 0.026, 3)], drum, Y, Z, n=32),
    )  # fmt: skip
    bowl = lathe([(0.064, 0.0562), (0.068, 0.0568), (0.080, 0.0555), (0.080, 0.0555),
                  (0.106, 0.0395), (0.1095, 0.036)], drum, Y, Z, n=32)  # fmt: skip

    # Forearm, link 5: wide at the elbow, a slim neck, and round into the wrist's drum.
    forearm = loft(
        [
            (-0.055, -0.2595, 0.055, -0.2595, R),
            (-0.056, -0.225, 0.064, -0.228, 0.0545),
            (-0.048, -0.190, 0.078, -0.198, 0.052),
            (-0.020, -0.160, 0.091, -0.168, 0.047),
            (0.022, -0.136, 0.101, -0.136, 0.041),
            (0.047, -0.108, 0.107, -0.104, 0.038),
            (0.056, -0.080, 0.112, -0.072, 0.039),
            (0.053, -0.064, 0.118, -0.036, 0.044),
            (0.047, -0.058, 0.119, 0.004, 0.049),
            (0.040, -0.056, 0.108, 0.038, 0.053),
            (0.024, -0.0555, 0.066, 0.053, R),
            (0.000, -0.055, 0.000, 0.055, R),
        ],
        n=24,
    )  # fmt: skip

    inlay = _forearm_bar([(0.0125, -0.006, 1), (0.0125, 0.0015, 1), (0.0150, 0.0040, 1),
                 (0.0150, 0.0047, 0.5), (0.0150, 0.0049, 0)])  # fmt: skip
    frame = _forearm_bar([(0, -0.030, 1), (0, -0.009, 1), (0.003, -0.002, 1), (0.011, 0.0025, 1),
                 (0.011, 0.0025, 1), (0.0125, -0.004, 1)])  # fmt: skip

    # Wrist, link 6: the drum of joint 6 and the upright barrel of joint 7, 88 mm beside it.
    barrel = np.array([0.088, 0, 0])
    wrist = join(
        lathe([(-0.051, 0.0465), (-0.040, 0.0450), (-0.020, 0.0440), (0.010, 0.0450),
               (0.045, 0.0445), *dome(0.0430, 0.064, 0.081, 0.032, 4)], barrel, Y, Z, n=24),
        lathe([(0.0005, 0.0525), (0.012, 0.052), (0.034, 0.047), (0.040, 0.044)], n=24),
        lathe([(-0.030, 0.030, 0.034), (0.020, 0.036, 0.045), (0.060, 0.036, 0.046),
               (0.088, 0.034, 0.046)], (0, 0, 0.010), X, -Z, 2.6, n=16),
        lathe([(0.052, 0.0305), *dome(0.0305, 0.0540, 0.0565, 0.024, 3)], n=20),
    )  # fmt: skip
    wrist_trim = join(
        lathe([(0.034, 0.0475), (0.038, 0.0485), (0.044, 0.0475), (0.044, 0.0475),
               (0.053, 0.037), (0.0548, 0.034)], n=24),
        lathe([(0.0005, 0.0533), (0.009, 0.0530)], n=24),
        lathe([(0.072, 0.0345), *dome(0.0345, 0.0805, 0.0835, 0.029, 3)], barrel, Y, Z, n=20),
    )  # fmt: skip

    # Flange, link 7: a dark drum, and the white grip with its button, at 45 degrees.
    out, aside = (X + Y) / np.sqrt(2), (Y - X) / np.sqrt(2)
    flange = lathe([(0.0515, 0.0455), (0.054, 0.0465), (0.094, 0.0465), (0.097, 0.0455),
                    (0.097, 0.0455), (0.097, 0.0405), (0.097, 0.0405), (0.1068, 0.0405)],
                   n=24)  # fmt: skip
    button = lathe(dome(0.012, 0, 0.004, steps=4), 0.080 * out + 0.058 * Z, -Z, X, n=12)
    grip = lathe([(0.025, 0.029, 0.018), (0.060, 0.029, 0.018), (0.085, 0.028, 0.0185),
                  (0.098, 0.0265, 0.0175), (0.104, 0.023, 0.014), (0.1055, 0.018, 0.010)],
                 0.076 * Z, out, aside, exponent=4, n=20)  # fmt: skip

    # Hand: a flat box, narrower at the wrist, with a dark groove on both faces and at the rail.
    hand = lathe([(0.004, 0.0165, 0.087), (0.0055, 0.0190, 0.0900), (0.0095, 0.0205, 0.0925),
                  (0.030, 0.0205, 0.0980), (0.052, 0.0205, 0.1015), (0.060, 0.0200, 0.1015),
                  (0.0645, 0.0185, 0.1000), (0.066, 0.0160, 0.0970)],
                 exponent=9, n=28)  # fmt: skip
    hand_trim = join(
        lathe([(0.000, 0.0315), (0.0075, 0.0315)], n=24),
        rounded_box((0.0212, 0.076, 0.0065), (0, 0, 0.026), rounding=0.0008),
        rounded_box((0.0075, 0.086, 0.0012), (0, 0, 0.0658), rounding=0.0004),
    )
    finger = loft(
        [
            (0.0110, 0.000, 0.0260, 0.000, 0.0105),
            (0.0110, 0.018, 0.0260, 0.018, 0.0105),
            (0.0095, 0.024, 0.0245, 0.024, 0.0100),
            (0.0025, 0.035, 0.0165, 0.035, 0.0090),
            (0.0015, 0.039, 0.0152, 0.039, 0.0088),
            (0.0015, 0.0535, 0.0152, 0.0535, 0.0088),
        ],
        exponent=7, n=20,
    )  # fmt: skip
    pad = rounded_box(
        (0.0088, 0.0085, 0.0024), (0, 0.0024, 0.0452), rounding=0.0008, axis=Y, side=X
    )
    return {
        "link0_shell": join(base, foot, lamp),
        "link0_trim": collar,
        "link1_shell": shoulder,
        "link3_shell": elbow,
        "link3_trim": bowl,
        "link5_shell": join(forearm, inlay),
        "link5_trim": frame,
        "link6_shell": wrist,
        "link6_trim": wrist_trim,
        "link7_shell": grip,
        "link7_trim": join(flange, button),
        "hand_shell": hand,
        "hand_trim": hand_trim,
        "finger_shell": finger,
        "finger_trim": pad,
    }


FRANKA_MESH = "package://drake_models/franka_description/meshes/visual/{}.gltf"


URDFS = {
    "panda.urdf": (VISUALS, OUR_MESHES),
    "panda_franka_visuals.urdf": (FRANKA_VISUALS, FRANKA_MESH),
}
PROGRAM = build_program(description(), shells, URDFS)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
