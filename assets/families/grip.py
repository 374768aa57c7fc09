"""How every tool is held, which its handle must suit; see frame T in `assets/model.py`."""

import numpy as np

from ..solids import Solid

GRIP = 0.015
"""Half the opening of the fingers, which the handle fills where it is held, m."""

GRIP_END = 0.035
"""The handle is held, and as wide as `GRIP`, for |x| up to here, m."""

Z_TO_X = np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]])
"""Turns a loft along z into a handle along x."""


def along_x(solid: Solid) -> Solid:
    """A loft along z, laid along x; its section's x becomes -z."""
    return solid.transformed(Z_TO_X, (0.0, 0.0, 0.0))
