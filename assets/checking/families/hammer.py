"""What the expert needs of a hammer: a face that looks away from `side`, with `head` on it."""

import math

import numpy as np

from fleet_tools.assets.checking.measures import protrusion, ring
from fleet_tools.assets.checking.model_geometry import ModelGeometry
from fleet_tools.assets.checking.rule import Rule, Values

FACE_RADIUS = 0.005
"""Radius about `head` within which the face is measured, m."""


def face_offset(geometry: ModelGeometry) -> Values:
    """Returns the distance of `head` from the face along the blow, m."""
    axis = geometry.axis("side", "head")
    return {"head": abs(protrusion(geometry, geometry.p_M["head"], axis, reach=0.05))}


def face_relief(geometry: ModelGeometry) -> Values:
    """Returns by how much the face rises or falls around `head`, m."""
    axis, head = geometry.axis("side", "head"), geometry.p_M["head"]
    points = [head, *(head + FACE_RADIUS * direction for direction in ring(axis, 8))]
    heights = np.array([protrusion(geometry, point, axis, reach=0.05) for point in points])
    return {"": math.nan if np.isnan(heights).any() else float(np.ptp(heights))}


RULES = (
    Rule(
        "distance from the face along the blow",
        face_offset,
        "mm",
        high=0.010,
        reason="success needs `head` within 20 mm of the nail's head at the end of the blow; the "
        "expert failed in every scene with 20 mm, in none with 10 mm",
        remedy="Move the keypoint `head` onto the face that strikes.",
    ),
    Rule(
        "relief of the face within 5 mm of head",
        face_relief,
        "mm",
        high=0.002,
        reason="the nail is to meet a flat face, wherever the grasp's tolerance leaves it",
        remedy="Move `head` to the middle of the face, and `side` straight behind it, so that the "
        "axis from `side` to `head` is the direction of the blow; or make the face flatter.",
    ),
)
