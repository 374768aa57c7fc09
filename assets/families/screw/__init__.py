"""Slotted screws in a block; a bit in the slot turns them against a brake, and they go in.

The block stands on z = 0 of the model frame, and the axis of the screw is its z axis. The head lies
in a hole, level with the top of the block, so that nothing but its top can be reached. The frame of
the screw has its origin at the bottom of the hole; the position of the joint `turn` is the angle by
which it has been screwed in, clockwise as seen from above. At zero the slot runs along x.
"""

import math

import numpy as np

from fleet_tools.assets.families import Family, Meaning
from fleet_tools.assets.families.screw.screw_parts import (
    CAST_IRON,
    INERTIA,
    OCTAGONAL,
    RANGE,
    ROOM,
    ROUND,
    SCREW_BRASS,
    SCREW_STEEL,
    SQUARE,
    ScrewParams,
    screw_parts,
)
from fleet_tools.assets.model_description import (
    PINE,
    JointDescription,
    KeypointDescription,
    LinkDescription,
    ModelDescription,
)
from fleet_tools.assets.model_geometry import ModelGeometry
from fleet_tools.assets.rules import Rule, Values, axis_angle, gap, perpendicular


def build(params: ScrewParams, name: str) -> ModelDescription:
    """Returns the screw as a model of two links, `block` and `screw`, and the joint `turn`."""
    block, screw = screw_parts(params)
    _, floor, top = params.levels
    points = {
        "slot": KeypointDescription("screw", (0.0, 0.0, floor)),
        "left": KeypointDescription("screw", (-ROOM, 0.0, floor)),
        "right": KeypointDescription("screw", (ROOM, 0.0, floor)),
        "top": KeypointDescription("screw", (0.0, 0.0, top)),
        "base": KeypointDescription("block", (0.0, 0.0, 0.0)),
    }
    turn = JointDescription(
        name="turn",
        kind="screw",
        parent="block",
        child="screw",
        axis=(0.0, 0.0, -1.0),
        limits=(-RANGE, RANGE),
        resistance=params.resistance,
        inertia=INERTIA,
        lead=params.lead,
    )
    return ModelDescription(
        kind="object",
        family="screw",
        name=name,
        links=(
            LinkDescription("block", block),
            LinkDescription("screw", screw, (0.0, 0.0, params.seat)),
        ),
        joints=(turn,),
        keypoints=points,
    )


BLACK = SCREW_STEEL.coloured(0.16, 0.17, 0.19)

CATALOGUE = {
    "wood_screw": ScrewParams(),
    "machine_screw": ScrewParams(
        head=0.0185, under=0.006, lead=0.003, base=0.042, base_height=0.050, base_corners=ROUND,
        material=BLACK, base_material=CAST_IRON,
    ),
    "drain_plug": ScrewParams(
        head=0.024, closed=True, bevel=0.002, lead=0.003, base=0.050, base_height=0.045,
        base_corners=OCTAGONAL, material=SCREW_BRASS,
        base_material=CAST_IRON.coloured(0.22, 0.33, 0.42),
    ),
    "clamp_screw": ScrewParams(
        head=0.0195, under=0.003, closed=True, lead=0.006, base_height=0.062,
        material=SCREW_STEEL.coloured(0.78, 0.72, 0.45), base_material=CAST_IRON,
    ),
    "cover_screw": ScrewParams(
        head=0.022, bevel=0.0025, lead=0.005, base=0.047, base_height=0.048, base_corners=ROUND,
        material=SCREW_BRASS,
    ),
    "coin_slot_cap": ScrewParams(
        head=0.0255, under=0.0025, closed=True, bevel=0.003, lead=0.004, base=0.052,
        base_height=0.058, base_corners=OCTAGONAL, material=BLACK,
        base_material=CAST_IRON.coloured(0.55, 0.56, 0.58),
    ),
}  # fmt: skip


def sample(rng: np.random.Generator) -> ScrewParams:
    """Returns the parameters of a random plausible screw."""
    return ScrewParams(
        head=rng.uniform(0.018, 0.0255),
        under=rng.uniform(0.0025, 0.0065),
        closed=bool(rng.random() < 0.5),
        bevel=rng.uniform(0.0008, 0.003),
        thread=rng.uniform(0.006, 0.010),
        lead=rng.uniform(0.0025, 0.006),
        base=rng.uniform(0.042, 0.052),
        base_height=rng.uniform(0.044, 0.065),
        base_corners=(ROUND, OCTAGONAL, SQUARE)[rng.integers(3)],
        resistance=rng.uniform(0.4, 1.2),
        material=(SCREW_STEEL, SCREW_BRASS)[rng.integers(2)],
        base_material=(PINE, CAST_IRON)[rng.integers(2)],
    )


ALONG = (-0.010, -0.006, 0.0, 0.006, 0.010)
"""Distances from the middle of the slot along it at which its width is measured, m."""


def slot_width(geometry: ModelGeometry) -> Values:
    """Returns the least width of the slot, halfway between `slot` and `top`, m."""
    along, axis = geometry.axis("left", "right"), geometry.axis("slot", "top")
    across = np.cross(axis, perpendicular(along, axis))
    middle = (geometry.p_M["slot"] + geometry.p_M["top"]) / 2
    return {"": min(sum(gap(geometry, middle + x * along, across)) for x in ALONG)}


def lean(geometry: ModelGeometry) -> Values:
    """Returns the angle of the slot's walls from the axis, one half of that between them, rad."""
    along, axis = geometry.axis("left", "right"), geometry.axis("slot", "top")
    across = np.cross(axis, perpendicular(along, axis))
    slot, top = geometry.p_M["slot"], geometry.p_M["top"]
    depth = float(np.linalg.norm(top - slot))
    low, high = (sum(gap(geometry, slot + t * (top - slot), across)) for t in (0.25, 0.75))
    return {"": math.atan2(high - low, depth)}  # both walls, over half of the depth


RULES = (
    Rule(
        "width of the slot at half its depth",
        slot_width,
        "mm",
        low=0.0060,
        high=0.0080,
        reason="the package's bits have 7.6 mm there as they sit; one that stands on the floor "
        "turns nothing, and one that is hardly in slips out",
        remedy="Else import its mesh with more or finer convex pieces (--pieces, --concavity), so "
        "that none of them fills the slot.",
        scales=True,
    ),
    Rule(
        "lean of the slot's walls",
        lean,
        "deg",
        low=math.radians(20),
        high=math.radians(40),
        reason="the flanks of the package's bits lean by 30 degrees, and touch the walls by edges "
        "alone if these differ",
        remedy="Give the slot walls that lean like the bits' flanks.",
    ),
    Rule(
        "deviation from a right angle",
        axis_angle(("left", "right"), ("slot", "top")),
        "deg",
        high=math.radians(0.6),
        reason="the expert aligns the screwdriver with both axes, within 0.5 degrees each",
        remedy="Place `left` and `right` at one height, `top` straight above `slot`.",
    ),
)


FAMILY = Family(
    kind="object",
    keypoints={
        "slot": Meaning("the middle of the slot's floor"),
        "left": Meaning("one end of the slot, at its floor", partner="right"),
        "right": Meaning("the other end of the slot, at its floor", partner="left"),
        "top": Meaning("straight above `slot`, level with the top of the head"),
        "base": Meaning("the middle of the underside of the block"),
    },
    catalogue=CATALOGUE,
    build=build,
    sample=sample,
    rules=RULES,
)
