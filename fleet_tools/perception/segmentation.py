"""Segmentation: the part of the scene that a pixel shows."""

import numpy as np

BACKGROUND, ROBOT, TOOL, OBJECT = range(4)
SEGMENTS = ("background", "robot", "tool", "object")
"""Names of the values of a segmentation; the table is background."""


def segmentation(labels: np.ndarray) -> np.ndarray:
    """Returns segments (height, width) uint8, given the render labels of a `RenderScene`, int16.

    What the renderer labels as empty is background.
    """
    return np.where(labels < len(SEGMENTS), labels, BACKGROUND).astype(np.uint8)
