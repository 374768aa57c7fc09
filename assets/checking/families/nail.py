"""What the expert needs of a nail: a head on top that is far enough above the block."""

import math

from fleet_tools.assets.checking.measures import protrusion
from fleet_tools.assets.checking.model_geometry import ModelGeometry
from fleet_tools.assets.checking.rule import Rule, Values


def head_offset(geometry: ModelGeometry) -> Values:
    """Returns the distance of `head` from the top along base -> head, m."""
    axis = geometry.axis("base", "head")
    return {"head": abs(protrusion(geometry, geometry.p_M["head"], axis))}


def height_above_block(geometry: ModelGeometry) -> Values:
    """Returns the height of `head` above the other links, m."""
    own = geometry.keypoint_links["head"]
    tops = [
        float(piece.vertices[:, 2].max())
        for name, link in geometry.links.items()
        if name != own
        for piece in link.pieces
    ]
    return {"head": float(geometry.p_M["head"][2]) - max(tops) if tops else math.nan}


RULES = (
    Rule(
        "distance from the top",
        head_offset,
        "mm",
        high=0.002,
        reason="the expert brings the hammer's face to `head` within 1 mm",
        remedy="Move the keypoint `head` to the top of the nail.",
    ),
    Rule(
        "height above the block",
        height_above_block,
        "mm",
        low=0.025,
        reason="the task drives the nail 20 mm deep, and the face must not meet the block",
        remedy="Let the nail stand out farther, on a link of its own, beside that of the block.",
    ),
)
