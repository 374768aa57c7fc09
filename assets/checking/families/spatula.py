"""What the expert needs of a spatula: a thin edge, and a plane sole that lies flat on the table.

Directions of the blade: `along` from heel to edge, `up` from the sole to the face, `left` across.
"""

import math

import numpy as np

from fleet_tools.assets.checking.measures import across, thickness
from fleet_tools.assets.checking.model_geometry import ModelGeometry
from fleet_tools.assets.checking.rule import Rule, Values
from fleet_tools.assets.families.spatula import CLEARANCE

BEHIND_EDGE = 0.0005
"""Distance behind the foremost point at which the edge's thickness is measured, m."""

WIDTHS = (-0.01, 0.0, 0.01)
"""Distances from the blade's middle line at which it is measured, m."""


def edge_thickness(geometry: ModelGeometry) -> Values:
    """Returns the greatest thickness of the blade at its edge, m."""
    along, left, up = _axes(geometry)
    edge = geometry.p_M["edge"]
    found = [_thickness_at_edge(geometry, edge + y * left, along, up) for y in WIDTHS]
    return {"": max((t for t in found if not math.isnan(t)), default=math.nan)}


def rise(geometry: ModelGeometry) -> Values:
    """Returns the angle at which the sole rises towards the edge, rad.

    It is measured from the plane at a right angle to sole -> face, which the expert levels.
    """
    return {"": math.atan(_slopes(geometry)[0])}


def roll(geometry: ModelGeometry) -> Values:
    """Returns the angle at which the sole rises to either side, likewise, rad."""
    return {"": abs(math.atan(_slopes(geometry)[1]))}


def sole_offset(geometry: ModelGeometry) -> Values:
    """Returns the height of the blade's underside above `sole`, m; negative below it."""
    _, _, up = _axes(geometry)
    starts = [start for start, _ in geometry.chords(geometry.p_M["sole"], up)]
    return {"": min(starts, key=abs, default=math.nan)}


def clearance(geometry: ModelGeometry) -> Values:
    """Returns the height of the hand's grasp above the sole, m."""
    _, _, up = _axes(geometry)
    return {"": float((geometry.X_MG.translation() - geometry.p_M["sole"]) @ up)}


def _axes(geometry: ModelGeometry) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    up = geometry.axis("sole", "face")
    along = across(geometry.axis("heel", "edge"), up)
    return along, np.cross(up, along), up


def _thickness_at_edge(
    geometry: ModelGeometry, edge: np.ndarray, along: np.ndarray, up: np.ndarray
) -> float:
    """Returns the thickness behind the foremost point near `edge`, a point of the edge, (3,), m."""
    for back in np.arange(-0.002, 0.015, 0.00025):
        if not math.isnan(thickness(geometry, edge - back * along, up)):
            return thickness(geometry, edge - (back + BEHIND_EDGE) * along, up)
    return math.nan


def _slopes(geometry: ModelGeometry) -> tuple[float, float]:
    """Returns the slopes of the underside of the blade, along it and to the left; NaN without one.

    A plane is fitted to the underside between `sole` and the ends of the blade.
    """
    along, left, up = _axes(geometry)
    sole = geometry.p_M["sole"]
    half = 0.8 * float((geometry.p_M["edge"] - sole) @ along)
    found = []
    for x in np.linspace(-half, half, 5):
        for y in WIDTHS:
            chords = geometry.chords(sole + x * along + y * left, up)
            starts = [start for start, _ in chords if abs(start) < 0.01]
            if starts:
                found.append((x, y, 1.0, min(starts, key=abs)))
    if len(found) < 4:
        return math.nan, math.nan
    samples = np.array(found)
    plane = np.linalg.lstsq(samples[:, :3], samples[:, 3], rcond=None)[0]
    return float(plane[0]), float(plane[1])


FACE_REMEDY = (
    "Place `face` straight above `sole`, along the normal of the blade's underside; the blade is "
    "so thin that 0.1 mm turn this axis by degrees."
)

RULES = (
    Rule(
        "edge thickness",
        edge_thickness,
        "mm",
        high=0.0007,
        reason="a thicker edge pushes thin slabs ahead of it instead of going under them",
        remedy="Sharpen the blade: taper it to 0.3 mm at the edge, from below or above.",
    ),
    Rule(
        "rise of the sole towards the edge",
        rise,
        "deg",
        low=math.radians(-5),
        high=math.radians(0.3),
        reason="the expert levels this plane, so that the edge of a sole that rises towards it "
        "stands above the table, and pushes slabs ahead of it",
        remedy=FACE_REMEDY,
    ),
    Rule(
        "rise of the sole to a side",
        roll,
        "deg",
        high=math.radians(1),
        reason="the expert levels this plane, so that one side of the edge stands above the table",
        remedy=FACE_REMEDY,
    ),
    Rule(
        "height of the underside above sole",
        sole_offset,
        "mm",
        low=-0.006,
        high=0.001,
        reason="the expert presses `sole` onto the table; a higher blade pushes slabs ahead of it",
        remedy="Move `sole` onto the underside, at the middle of the blade.",
    ),
    Rule(
        "height of the hand above the sole",
        clearance,
        "mm",
        low=CLEARANCE - 1e-6,
        reason="the fingers reach 45 mm below the grasp's origin, or they would touch the table",
        remedy="Bend the neck so that the handle is higher above the blade, or give a `grasp` "
        "farther up the handle.",
    ),
)
