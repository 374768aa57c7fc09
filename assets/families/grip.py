"""The grip that every tool's handle fits; for frame T see `assets.model_description`."""

import numpy as np

from fleet_tools.assets.solids import Solid

GRIP = 0.015
"""Half the opening of the fingers, which the handle fills where it is held, m."""

GRIP_END = 0.035
"""The handle is held, and as wide as `GRIP`, where |x| is at most this, m."""

Z_TO_X = np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]])
"""Rotates a loft along z into a handle along x."""


def along_x(solid: Solid) -> Solid:
    """Rotates a loft along z so that it lies along x; the x axis of its sections becomes -z."""
    return solid.transformed(Z_TO_X, (0.0, 0.0, 0.0))
