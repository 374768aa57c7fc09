"""What the expert needs of a slab: a flat underside, with `base` in its middle."""

import math

import numpy as np

from fleet_tools.assets.checking.measures import angle, surface_distance
from fleet_tools.assets.checking.model_geometry import ModelGeometry
from fleet_tools.assets.checking.rule import Rule, Values


def tilt(geometry: ModelGeometry) -> Values:
    """Returns the angle of base -> top from z, rad."""
    return {"base -> top": angle(geometry.axis("base", "top"), np.array([0.0, 0.0, 1.0]))}


def off_centre(geometry: ModelGeometry) -> Values:
    """Returns the horizontal distance of `base` from the centre of mass, m."""
    link = geometry.links[geometry.keypoint_links["base"]]
    return {"base": float(np.linalg.norm((geometry.p_M["base"] - link.p_MCom)[:2]))}


RULES = (
    Rule(
        "distance from the surface",
        surface_distance("base", "top"),
        "mm",
        high=0.001,
        reason="the expert brings the sole under `base` within 0.5 mm",
        remedy="Move `base` to the middle of the underside, `top` straight above it.",
    ),
    Rule(
        "angle from the vertical",
        tilt,
        "deg",
        high=math.radians(1),
        reason="the expert holds the blade at a right angle to base -> top, within 0.2 degrees",
        remedy="Place `top` straight above `base`, for a model that lies on z = 0.",
    ),
    Rule(
        "distance from below the centre of mass",
        off_centre,
        "mm",
        high=0.01,
        reason="the middle of the blade goes under `base`, and the slab is to stay on it",
        remedy="Move `base` below the centre of mass.",
    ),
)
