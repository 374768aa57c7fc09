"""Writes the UR5e's model file and meshes: `python -m fleet_tools.assets.robots.ur5e.build`."""

import sys

from fleet_tools.assets.robots.ur5e.geometry import VISUALS, description
from fleet_tools.assets.robots.ur5e.shells import shells
from fleet_tools.assets.robots.urdf import urdf_text
from fleet_tools.assets.robots.writing import build_program


def _urdfs() -> dict[str, str]:
    return {"ur5e.urdf": urdf_text(description(), VISUALS, "meshes/{}.obj")}


PROGRAM = build_program("ur5e", shells, _urdfs)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
