"""What the expert needs of a knife: a straight, thin edge on the side away from the palm."""

import math

import numpy as np

from fleet_tools.assets.checking.measures import across, axis_angle, surface_distance, thickness
from fleet_tools.assets.checking.model_geometry import ModelGeometry
from fleet_tools.assets.checking.rule import Rule, Values

ABOVE_EDGE = 0.0005
"""Distance from the edge at which the blade's thickness is measured, m."""


def edge_thickness(geometry: ModelGeometry) -> Values:
    """Returns the thickness of the blade at its edge, by keypoint, m."""
    along = geometry.axis("heel", "tip")
    down = across(geometry.axis("spine", "edge"), along)
    sideways, edge = np.cross(along, down), geometry.p_M["edge"]
    half = float(np.linalg.norm(geometry.p_M["tip"] - geometry.p_M["heel"])) / 2
    points = [edge + s * half * along - ABOVE_EDGE * down for s in (-0.8, 0.0, 0.8)]
    found = [thickness(geometry, point, sideways) for point in points]
    return {"": max((t for t in found if not math.isnan(t)), default=math.nan)}


RULES = (
    Rule(
        "thickness of the edge",
        edge_thickness,
        "mm",
        high=0.004,
        reason="the edge goes in between blocks that touch; a thicker one comes down on them",
        remedy="Grind the blade to a wedge, or import it with finer convex pieces.",
    ),
    Rule(
        "distance from the surface",
        surface_distance("edge", "heel", "tip"),
        "mm",
        high=0.002,
        reason="the expert brings `edge` to 4 mm above the table, and the line from `heel` to "
        "`tip` along the seam",
        remedy="Move these keypoints onto the edge: its rear end, middle and front end.",
    ),
    Rule(
        "deviation from a right angle",
        axis_angle(("heel", "tip"), ("spine", "edge")),
        "deg",
        high=math.radians(1),
        reason="the expert levels the edge and holds the blade upright, within 0.5 degrees each",
        remedy="Place `spine` straight above `edge`, at a right angle to the edge.",
    ),
)
