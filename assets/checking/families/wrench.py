"""What the expert needs of a wrench: two pads, as far apart as the nuts are wide."""

import math

import numpy as np

from fleet_tools.assets.checking.measures import across, axis_angle, gap
from fleet_tools.assets.checking.model_geometry import ModelGeometry
from fleet_tools.assets.checking.rule import Rule, Values
from fleet_tools.assets.families.nut_params import DEVIATION, FLATS

ALONG_PADS = (-0.008, -0.004, 0.0, 0.004, 0.008)
"""Distances from `jaw` along the pads at which the opening is measured, m."""


def opening(geometry: ModelGeometry) -> Values:
    """Returns the least width between the pads near `jaw`, m."""
    return {"": min(sum(sides) for sides in _gaps(geometry))}


def off_centre(geometry: ModelGeometry) -> Values:
    """Returns the distance of `jaw` from the middle between the pads, m."""
    back, ahead = _gaps(geometry)[ALONG_PADS.index(0.0)]
    return {"jaw": abs(back - ahead) / 2}


def _gaps(geometry: ModelGeometry) -> list[tuple[float, float]]:
    across_pads = geometry.axis("right", "left")
    along = np.cross(across_pads, across(geometry.axis("lower", "upper"), across_pads))
    jaw = geometry.p_M["jaw"]
    return [gap(geometry, jaw + x * along, across_pads) for x in ALONG_PADS]


RULES = (
    Rule(
        "opening between the pads",
        opening,
        "mm",
        low=FLATS + DEVIATION,
        high=0.044,
        reason="the widest nut of the package has to fit in; a hexagon slips through a wider jaw",
        remedy="Scale the model, or import its mesh with more or finer convex pieces "
        "(--pieces, --concavity), so that none of them fills the jaw.",
    ),
    Rule(
        "distance from the middle between the pads",
        off_centre,
        "mm",
        high=1e-3,
        reason="the nut is to touch neither pad as the jaw goes over it",
        remedy="Move the keypoint `jaw` to the middle between the pads.",
    ),
    Rule(
        "deviation from a right angle",
        axis_angle(("right", "left"), ("lower", "upper")),
        "deg",
        high=math.radians(0.6),
        reason="the expert aligns both axes with those of the nut, within 0.3 degrees each",
        remedy="Place `left` and `right` on the pads opposite each other, `upper` straight above "
        "`lower`.",
    ),
)
