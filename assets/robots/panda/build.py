"""Writes the Panda's model files: `python -m fleet_tools.assets.robots.panda.build`.

`panda.urdf` has our own visual meshes. `panda_franka_visuals.urdf` has the same dynamics and
collision geometry, and Franka's visual meshes from Drake's model package.
"""

import sys

from fleet_tools.assets.robots.panda.geometry import FRANKA_VISUALS, VISUALS, description
from fleet_tools.assets.robots.panda.shells import shells
from fleet_tools.assets.robots.urdf import urdf_text
from fleet_tools.assets.robots.writing import build_program

FRANKA_MESH = "package://drake_models/franka_description/meshes/visual/{}.gltf"


def _urdfs() -> dict[str, str]:
    return {
        "panda.urdf": urdf_text(description(), VISUALS, "meshes/{}.obj"),
        "panda_franka_visuals.urdf": urdf_text(description(), FRANKA_VISUALS, FRANKA_MESH),
    }


PROGRAM = build_program("panda", shells, _urdfs)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
