"""Nuts and bolt heads on a fixed base; a wrench on the flats turns them against a brake.

The base stands on z = 0 of the model frame, and the axis of rotation is its z axis. The nut's frame
has its origin where the axis leaves the base, below a washer. The position of the joint `turn` is
the angle by which the nut has been tightened, clockwise as seen from above. At zero two of the
flats face +y and -y.
"""

import math

import numpy as np

from fleet_tools.assets.families import Family, Meaning, behind
from fleet_tools.assets.families.nut.nut_parts import (
    CAST_IRON,
    CROWNS,
    DEVIATION,
    FLATS,
    INERTIA,
    NUT_BRASS,
    NUT_STEEL,
    OCTAGONAL,
    RANGE,
    ROUND,
    SQUARE,
    NutParams,
    nut_parts,
)
from fleet_tools.assets.model_description import (
    PINE,
    JointDescription,
    KeypointDescription,
    LinkDescription,
    ModelDescription,
)
from fleet_tools.assets.model_geometry import ModelGeometry, chords
from fleet_tools.assets.rules import Rule, Values, axis_angle


def build(params: NutParams, name: str) -> ModelDescription:
    """Returns the nut as a model of two links, `base` and `nut`, and the joint `turn`."""
    _, foot, edge, top = params.levels
    base, nut = nut_parts(params)
    origin = (0.0, 0.0, params.base_height)
    grip = (foot + edge) / 2
    summit = top + params.crown_height
    points = {
        "nut": KeypointDescription("nut", (0.0, 0.0, grip)),
        "left": KeypointDescription("nut", (0.0, params.half, grip)),
        "right": KeypointDescription("nut", (0.0, -params.half, grip)),
        "top": (
            KeypointDescription("base", (0.0, 0.0, params.base_height + summit))
            if params.crown == "stud"
            else KeypointDescription("nut", (0.0, 0.0, summit))
        ),
        "base": KeypointDescription("base", (0.0, 0.0, 0.0)),
    }
    turn = JointDescription(
        name="turn",
        kind="revolute",
        parent="base",
        child="nut",
        axis=(0.0, 0.0, -1.0),
        limits=(-RANGE, RANGE),
        resistance=params.resistance,
        inertia=INERTIA,
    )
    return ModelDescription(
        kind="object",
        family="nut",
        name=name,
        links=(LinkDescription("base", base), LinkDescription("nut", nut, origin)),
        joints=(turn,),
        keypoints=points,
    )


CATALOGUE = {
    "hex_nut": NutParams(),
    "square_nut": NutParams(
        flats=0.0398, height=0.023, sides=4, crown_radius=0.0115, crown_height=0.016,
        base=0.048, base_height=0.060, material=NUT_STEEL.coloured(0.30, 0.29, 0.28),
    ),
    "flange_nut": NutParams(
        flats=0.0402, height=0.026, flange=0.032, flange_height=0.006, crown_height=0.008,
        base=0.050, base_height=0.045, base_corners=ROUND, base_material=CAST_IRON,
        material=NUT_STEEL.coloured(0.78, 0.72, 0.45),
    ),
    "coupling_nut": NutParams(
        height=0.044, crown_radius=0.011, crown_height=0.006, base=0.042, base_height=0.040,
        base_corners=OCTAGONAL, base_material=CAST_IRON.coloured(0.22, 0.33, 0.42),
    ),
    "cap_nut": NutParams(
        flats=0.0401, height=0.025, crown="dome", crown_radius=0.0120, crown_height=0.015,
        base=0.046, base_height=0.055, base_corners=ROUND, material=NUT_BRASS,
    ),
    "bolt_head": NutParams(
        flats=0.0399, height=0.022, chamfer=0.0025, crown="boss", crown_radius=0.0125,
        crown_height=0.003, base=0.049, base_height=0.065, base_material=CAST_IRON,
        material=NUT_STEEL.coloured(0.16, 0.17, 0.19),
    ),
}  # fmt: skip


def sample(rng: np.random.Generator) -> NutParams:
    """Returns the parameters of a random plausible nut or bolt head."""
    sides = (6, 6, 4)[rng.integers(3)]
    flanged = sides == 6 and rng.random() < 0.4
    return NutParams(
        flats=FLATS + DEVIATION * rng.uniform(-1, 1),
        height=rng.uniform(0.023, 0.042),
        sides=sides,
        chamfer=rng.uniform(0.0025, 0.0035),
        crown=CROWNS[rng.integers(len(CROWNS))],
        crown_radius=rng.uniform(0.0100, 0.0115),
        crown_height=rng.uniform(0.004, 0.016),
        flange=rng.uniform(0.029, 0.035) if flanged else 0.0,
        flange_height=rng.uniform(0.004, 0.007) if flanged else 0.0,
        base=rng.uniform(0.042, 0.052),
        base_height=rng.uniform(0.040, 0.065),
        base_corners=(ROUND, OCTAGONAL, SQUARE)[rng.integers(3)],
        resistance=rng.uniform(1.0, 3.0),
        material=(NUT_STEEL, NUT_BRASS)[rng.integers(2)],
        base_material=(PINE, CAST_IRON)[rng.integers(2)],
    )


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
        remedy="Else place the keypoints on the flats and the corners of a hexagon.",
        scales=True,
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


FAMILY = Family(
    kind="object",
    keypoints={
        "nut": Meaning("the nut's axis, at half the height of its flats"),
        "left": Meaning("the middle of a flat", partner="right"),
        "right": Meaning("the middle of the opposite flat", behind("left"), partner="left"),
        "top": Meaning("the highest point of the axis"),
        "base": Meaning("the middle of the underside of the base"),
    },
    catalogue=CATALOGUE,
    build=build,
    sample=sample,
    rules=RULES,
)
