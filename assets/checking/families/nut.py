"""What the expert needs of a nut: flats of a common width, and corners that a jaw can turn."""

import math

import numpy as np

from fleet_tools.assets.checking.convex_pieces import chords
from fleet_tools.assets.checking.measures import axis_angle
from fleet_tools.assets.checking.model_geometry import ModelGeometry
from fleet_tools.assets.checking.rule import Rule, Values


def across_flats(geometry: ModelGeometry) -> Values:
    """Returns the width along right -> left through `nut`, m."""
    return {"": _width(geometry, geometry.axis("right", "left"))}


def corners(geometry: ModelGeometry) -> Values:
    """Returns the greatest width through `nut` by the least one."""
    widths = [_width(geometry, direction) for direction in _half_turn(geometry)]
    return {"": max(widths) / min(widths)}


def angle_of_flats(geometry: ModelGeometry) -> Values:
    """Returns the angle between right -> left and the normal of the flats, rad."""
    flats = geometry.axis("right", "left")
    axis = geometry.axis("base", "top")
    angles = np.radians(np.arange(-15, 15.01, 0.5))
    widths = [
        _width(geometry, math.cos(a) * flats + math.sin(a) * np.cross(axis, flats)) for a in angles
    ]
    return {"": abs(float(angles[int(np.argmin(widths))]))}


def _half_turn(geometry: ModelGeometry) -> list[np.ndarray]:
    """Returns unit vectors over half a turn about the nut's axis, in steps of a degree."""
    axis, flats = geometry.axis("base", "top"), geometry.axis("right", "left")
    other = np.cross(axis, flats)
    return [math.cos(a) * flats + math.sin(a) * other for a in np.radians(range(180))]


def _width(geometry: ModelGeometry, direction: np.ndarray) -> float:
    """Returns the width of the nut's own link through `nut`, m."""
    pieces = geometry.links[geometry.keypoint_links["nut"]].pieces
    around = [
        end - start for start, end in chords(pieces, geometry.p_M["nut"], direction)
        if start <= 1e-4 and end >= -1e-4
    ]  # fmt: skip
    return max(around, default=math.nan)


RULES = (
    Rule(
        "width across flats",
        across_flats,
        "mm",
        low=0.0372,
        high=0.0410,
        reason="the package's wrenches open by 41.2 mm; a wider nut does not fit in, and a hexagon "
        "that is narrower slips through",
        remedy="Scale the nut.",
    ),
    Rule(
        "width across corners by that across flats",
        corners,
        "",
        low=1.07,
        reason="a jaw turns a nut by its corners: the expert turns an octagon (1.08), and slips "
        "on a decagon (1.05)",
        remedy="Give the nut four or six flats; a mesh that is nearly round may have lost them in "
        "the simplification or in its convex hull.",
    ),
    Rule(
        "angle between right -> left and the flats' normal",
        angle_of_flats,
        "deg",
        high=math.radians(2),
        reason="the expert aligns this axis with the jaw, whose clearance leaves few degrees",
        remedy="Place `left` and `right` in the middle of opposite flats.",
    ),
    Rule(
        "deviation from a right angle",
        axis_angle(("right", "left"), ("base", "top")),
        "deg",
        high=math.radians(0.6),
        reason="the expert aligns the wrench with both axes, within 0.3 degrees each",
        remedy="Place `left` and `right` at one height, `top` straight above `base`.",
    ),
)
