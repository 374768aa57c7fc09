"""Nuts and bolt heads on a fixed base; a wrench on the flats turns them against a brake.

The base stands on z = 0 of the model frame, and the axis of rotation is its z axis. The nut's frame
has its origin where the axis leaves the base, below a washer; the position of the joint `turn` is
the angle by which the nut has been tightened, clockwise as seen from above. At zero two of the
flats face +y and -y.
"""

import math

import numpy as np

from fleet_tools.assets.families.nut_params import (
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
    SLOPE,
    SQUARE,
    STUD_STEEL,
    WASHER,
    NutParams,
)
from fleet_tools.assets.materials import PINE
from fleet_tools.assets.model_description import (
    JointDescription,
    KeypointDescription,
    LinkDescription,
    ModelDescription,
    PartDescription,
)
from fleet_tools.assets.solids import (
    Section,
    Station,
    circle,
    frusta,
    joined,
    loft,
    rectangle,
    section_loft,
)


def build(params: NutParams, name: str) -> ModelDescription:
    """Returns the nut as a model of two links, `base` and `nut`, and the joint `turn`."""
    _, foot, edge, top = params.levels
    is_fixed = params.crown == "stud"  # the crown belongs to the base
    crown = (_stud(params) if is_fixed else _crown(params),)
    base = (_base(params), *(crown if is_fixed else ()))
    nut = (_body(params), *(() if is_fixed else crown))
    origin = (0.0, 0.0, params.base_height)
    grip = (foot + edge) / 2
    summit = top + params.crown_height
    points = {
        "nut": KeypointDescription("nut", (0.0, 0.0, grip)),
        "left": KeypointDescription("nut", (0.0, params.half, grip)),
        "right": KeypointDescription("nut", (0.0, -params.half, grip)),
        "top": (
            KeypointDescription("base", (0.0, 0.0, params.base_height + summit))
            if is_fixed
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


def _base(p: NutParams) -> PartDescription:
    """Makes the base and the washer on it."""
    height, bevel = p.base_height, 0.002

    def section(inset: float) -> Section:
        half = p.base - inset
        return Section(half, half, 0.003) if p.base_corners == SQUARE else circle(half)

    corners = 5 if p.base_corners == SQUARE else p.base_corners
    visual = [(0.0, section(0)), (height - bevel, section(0)), (height, section(bevel))]
    washer = circle(max(p.flange, p.reach) + 0.002)
    visual += [(height, washer), (height + WASHER, washer)]
    collision = frusta([(0.0, section(0)), (height, section(0))], min(p.base_corners, OCTAGONAL))
    return PartDescription("base", section_loft(visual, corners), p.base_material, collision)


def _outline(half: float, sides: int, z: float) -> np.ndarray:
    """Returns the corners of a nut at a height, (sides, 3).

    Args:
        half: Distance of the flats from the axis, m.
        sides: Number of flats, 6 or 4.
        z: Height, m.
    """
    side = half * SLOPE
    corners = {
        6: [(2 * side, 0), (side, half), (-side, half), (-2 * side, 0), (-side, -half),
            (side, -half)],
        4: [(half, half), (-half, half), (-half, -half), (half, -half)],
    }[sides]  # fmt: skip
    return np.round([(x, y, z) for x, y in corners], 9)


def _body(p: NutParams) -> PartDescription:
    """Makes flats, chamfer, and the flange if there is one."""
    seat, foot, edge, top = p.levels
    prism = [_outline(p.half, p.sides, z) for z in (foot, edge)]
    bevel = _outline(p.top, p.sides, top)
    visual, collision = loft([*prism, bevel]), [loft(prism), loft([prism[1], bevel])]
    if p.flange:
        rim = circle(p.flange)
        lip = (seat + 0.4 * p.flange_height, rim)
        collar = section_loft([(seat, rim), lip, (foot, circle(p.reach))], ROUND)
        visual = joined(collar, visual)
        half = round(0.93 * p.flange, 6)  # about as large as the circle
        collision.append(loft([_outline(half, 6, z) for z in (seat, lip[0])]))
    return PartDescription("nut", visual, p.material, tuple(collision))


def _stud(p: NutParams) -> PartDescription:
    """Makes the thread that leaves the nut, in the frame of the base."""
    r, h, top = p.crown_radius, p.crown_height, p.levels[-1]
    foot = p.base_height + WASHER
    summit = p.base_height + top + h
    turns = [(summit - 0.002 - 0.003 * k, circle(r - 0.0012 * (k % 2))) for k in range(4)]
    turns = [turn for turn in turns if turn[0] > p.base_height + top - 0.002]
    stations = [(foot, circle(r)), *reversed(turns), (summit, circle(0.85 * r))]
    collision = frusta([(foot, rectangle(r, r)), (summit, rectangle(0.8 * r, 0.8 * r))], 1)
    return PartDescription("stud", section_loft(stations, 3), STUD_STEEL, collision)


def _crown(p: NutParams) -> PartDescription:
    """Makes a dome or a boss on top of the nut."""
    r, h, top = p.crown_radius, p.crown_height, p.levels[-1]
    stations: list[Station]
    if p.crown == "dome":
        angles = [k / 6 * math.pi / 2 for k in range(6)]
        arc = [(top + h * math.sin(a), circle(r * math.cos(a))) for a in angles]
        stations = [*arc, (top + h, None)]
        tip = rectangle(0.4 * r, 0.4 * r)
    else:
        stations = [(top, circle(r)), (top + 0.6 * h, circle(r)), (top + h, circle(0.8 * r))]
        tip = rectangle(0.8 * r, 0.8 * r)
    collision = frusta([(top, rectangle(0.9 * r, 0.9 * r)), (top + h, tip)], 1)
    return PartDescription(p.crown, section_loft(stations, 5), p.material, collision)


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
