"""Points of surfaces in an image, as a camera sees them."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Hits:
    """Points of a surface in an image.

    Attributes:
        pixels: (n,), indices of their pixels, counted along the rows of the image.
        depths: (n,) float32, m.
    """

    pixels: np.ndarray
    depths: np.ndarray
