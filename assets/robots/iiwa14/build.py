"""Writes the iiwa 14's model file and meshes: `python -m fleet_tools.assets.robots.iiwa14.build`.

The shells' shapes were designed by hand after the outer dimensions of the real links, in the frames
of the links; they contain no mesh of others. Tubes and drums are light, the caps over the joints
orange.
"""

import sys

import numpy as np

from fleet_tools.assets.robots import parallel_hand
from fleet_tools.assets.robots.arm_files import OUR_MESHES, build_program
from fleet_tools.assets.robots.iiwa14.description import (
    FLANGE,
    FOREARM_TUBE,
    TUBE,
    VISUALS,
    WRIST_TUBE,
    description,
)
from fleet_tools.assets.robots.skins import Mesh, X, Y, Z, dome, join, lathe, rounded_box


def _tube(radius: float, low: float, axis: np.ndarray) -> Mesh:
    """Returns a tube along an axis, whose round end covers the origin, from a height below it."""
    return lathe([(low, radius), *dome(radius, -0.05, 0.02)], axis=axis, side=X, n=28)


def _drum(radius: float, low: float, high: float, axis: np.ndarray) -> Mesh:
    """Returns a joint's housing: a cylinder between two heights on an axis, with a round edge."""
    rim = dome(radius, high - 0.02, high, radius - 0.02, 4)
    return lathe([(low, radius), (high - 0.02, radius), *rim], axis=axis, side=X, n=28)


def _cap(radius: float, base: float, axis: np.ndarray) -> Mesh:
    """Returns the lid over a joint, 14 mm high."""
    top = dome(radius, base + 0.004, base + 0.014, 0.6 * radius, 4)
    return lathe([(base, radius), *top], axis=axis, side=X, n=28)


def shells() -> dict[str, Mesh]:
    """Returns the meshes by the stem of the file, each in the frame of the link in its name."""
    base = join(
        rounded_box((0.11, 0.11, 0.02), (0, 0, 0.02), rounding=0.006, exponent=4),
        lathe([(0.04, 0.095), (0.07, 0.088), (0.12, 0.08), (0.1575, TUBE + 0.004)], n=32),
    )
    meshes = {"link0_shell": base}
    # Links 1 and 3 lead up to a joint across the arm; links 2 and 4 go on behind it.
    for name, low, side in (("link1", -0.2, -Y), ("link3", -0.185, Y)):
        tube = _tube(TUBE, low, Z)
        meshes[f"{name}_shell"] = join(tube, _drum(TUBE, -0.04, 0.075, side))
        meshes[f"{name}_trim"] = _cap(TUBE - 0.006, 0.075, side)
    for name, radius, low, along in (("link2", TUBE, -0.23, Y), ("link4", FOREARM_TUBE, -0.21, -Y)):
        tube = _tube(radius, low, along)
        meshes[f"{name}_shell"] = join(tube, _drum(TUBE - 0.002, -0.03, 0.075, Z))
        meshes[f"{name}_trim"] = _cap(TUBE - 0.008, 0.075, Z)
    forearm = lathe(
        [(-0.185, FOREARM_TUBE), (-0.13, FOREARM_TUBE), *dome(FOREARM_TUBE, -0.12, -0.07)], n=28
    )
    arch = rounded_box((0.035, 0.018, 0.07), (0, -0.065, -0.055), rounding=0.012, exponent=3)
    meshes["link5_shell"] = join(forearm, arch)
    meshes["link5_trim"] = lathe([(-0.15, FOREARM_TUBE + 0.001), (-0.14, FOREARM_TUBE + 0.001)])
    meshes["link6_shell"] = join(
        _drum(WRIST_TUBE, -0.045, 0.055, Z),
        lathe([(0, WRIST_TUBE), (0.06, WRIST_TUBE), (0.075, 0.044)], axis=-Y, side=X, n=28),
    )
    meshes["link6_trim"] = _cap(WRIST_TUBE - 0.006, 0.055, Z)
    meshes["link7_trim"] = lathe(
        [(0.076, 0.043), (0.1, 0.043), (0.108, 0.04), (0.108, 0.04), (FLANGE, 0.0315)], n=28
    )
    return {**meshes, **parallel_hand.shells()}


PROGRAM = build_program(description(), shells, {"iiwa14.urdf": (VISUALS, OUR_MESHES)})
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
