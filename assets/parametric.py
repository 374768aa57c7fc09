"""Shared parts of families: the handle of a tool."""

import numpy as np

from fleet_tools.assets.model_description import Material, PartDescription
from fleet_tools.assets.solids import Section, Solid, loft, rectangle, section_ring

GRIP = 0.015
"""Half the opening of the fingers, which the handle fills where it is held, m."""

GRIP_END = 0.035
"""The handle is held, and as wide as `GRIP`, where |x| is at most this, m."""

Z_TO_X = np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]])
"""Rotates a loft along z into a handle along x."""


def along_x(solid: Solid) -> Solid:
    """Rotates a loft along z so that it lies along x; the x axis of its sections becomes -z."""
    return solid.transformed(Z_TO_X, (0.0, 0.0, 0.0))


def grip_part(
    butt_x: float, nose_x: float, half_z: float, roundness: float, material: Material
) -> PartDescription:
    """Makes a handle along x, `grip`, that fills the fingers and has rounded ends.

    Args:
        butt_x: Lower x of its ends, m.
        nose_x: Upper one.
        half_z: Half its height, m.
        roundness: Roundness of its section: near 0 a bar, 1 an oval or a rod.
        material: Its material.
    """
    radius = roundness * min(half_z, GRIP)
    full, end = Section(half_z, GRIP, radius), Section(0.6 * half_z, 0.7 * GRIP, 0.6 * radius)
    nearly = end.interpolated(full, 0.75)
    profile = [(butt_x, end), (butt_x + 0.003, nearly), (butt_x + 0.009, full)]
    profile += [(nose_x - 0.009, full), (nose_x - 0.003, nearly), (nose_x, end)]
    visual = loft([section_ring(section, x, 4) for x, section in profile])
    collision = [section_ring(rectangle(half_z, GRIP), x, 1) for x in (butt_x, nose_x)]
    return PartDescription("grip", along_x(visual), material, (along_x(loft(collision)),))
