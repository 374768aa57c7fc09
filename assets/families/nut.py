"""Nuts and bolt heads on a fixed base; a wrench on the flats turns them against a brake.

The base stands on z = 0 of the model frame, and the axis of rotation is its z axis. The nut's frame
has its origin where the axis leaves the base, below a washer. The position of the joint `turn` is
the angle by which the nut has been tightened, clockwise as seen from above. At zero two of the
flats face +y and -y.
"""

import math
import typing
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fleet_tools.assets.families import Family, Meaning, behind
from fleet_tools.assets.model_description import (
    CAST_IRON,
    HARD_BRASS,
    HARD_STEEL,
    PINE,
    JointDescription,
    LinkDescription,
    Material,
    ModelDescription,
    PartDescription,
    jointed_model,
)
from fleet_tools.assets.model_geometry import ModelGeometry, chords
from fleet_tools.assets.rules import Rule, Values, right_angles
from fleet_tools.assets.solids import (
    OCTAGONAL,
    ROUND,
    SQUARE,
    Section,
    Station,
    circle,
    frusta,
    joined,
    loft,
    rectangle,
    section_loft,
)

FLATS = 0.040
"""Nominal width across flats, for which the family of wrenches is made, m."""

DEVIATION = 0.0002
"""Greatest deviation of the width across flats, m."""

WASHER = 0.004
"""Height of the washer between base and nut, m."""

INERTIA = 1e-3
"""Added inertia about the axis of rotation, kg m^2; see `JointDescription`."""

RANGE = math.pi
"""Greatest angle of rotation from zero in either direction, rad."""

SLOPE = 0.577
"""tan(30 deg) with so few digits that the corners of a nut whose half width is in whole micrometres
are in whole nanometres. The sides of a chamfered nut then stay plane when they are written, on
which contact depends (`solids.frusta`)."""

INSET = 0.8
"""Width of a chamfer as a fraction of its height."""

CrownName = Literal["stud", "dome", "boss"]
CROWNS: tuple[CrownName, ...] = typing.get_args(CrownName)

STUD_STEEL = HARD_STEEL.coloured(0.45, 0.46, 0.48)


@dataclass(frozen=True)
class NutParams:
    """The parameters of a nut on its base, lengths in m.

    Attributes:
        flats: Width across flats.
        height: Height of the flats and the chamfer together.
        sides: Number of flats, 6 or 4.
        chamfer: Height of the bevel around the top, which guides the jaw.
        crown: Shape on top: `stud` (the fixed thread leaves the nut), `dome` (a cap nut) or `boss`
            (the head of a bolt).
        crown_radius, crown_height: Radius and height of the crown.
        flange: Radius of a collar below the flats; 0 for none.
        flange_height: Height of the collar.
        base: Half the width of the base.
        base_height: Height of the base.
        base_corners: `ROUND`, `OCTAGONAL` or `SQUARE`.
        resistance: Torque at which the nut gives way, N m.
        material: Material of the nut.
        base_material: Material of the base.
    """

    flats: float = FLATS
    height: float = 0.024
    sides: int = 6
    chamfer: float = 0.003
    crown: CrownName = "stud"
    crown_radius: float = 0.012
    crown_height: float = 0.012
    flange: float = 0.0
    flange_height: float = 0.0
    base: float = 0.045
    base_height: float = 0.050
    base_corners: int = SQUARE
    resistance: float = 2.0
    material: Material = HARD_STEEL
    base_material: Material = PINE

    @property
    def half(self) -> float:
        """Half the width across flats, m, in whole micrometres."""
        return round(self.flats / 2, 6)

    @property
    def top(self) -> float:
        """Half the width between opposite sides at the chamfer's upper end, m."""
        return round(self.half - INSET * self.chamfer, 6)

    @property
    def reach(self) -> float:
        """Distance from the axis to the corners, m."""
        return self.half * (2 * SLOPE if self.sides == 6 else math.sqrt(2))

    @property
    def levels(self) -> tuple[float, float, float, float]:
        """Heights in the nut's frame, m: underside, lower and upper end of the flats, and top."""
        foot = WASHER + self.flange_height
        top = foot + self.height
        return WASHER, foot, top - self.chamfer, top


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
    """Returns the corners of a nut of 4 or 6 sides at a height, (sides, 3)."""
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


def build(params: NutParams, name: str) -> ModelDescription:
    """Returns the nut as a model of two links, `base` and `nut`, and the joint `turn`."""
    _, foot, edge, top = params.levels
    fixed = (_base(params), _stud(params)) if params.crown == "stud" else (_base(params),)
    turned = (_body(params),) if params.crown == "stud" else (_body(params), _crown(params))
    base = LinkDescription("base", fixed)
    nut = LinkDescription("nut", turned, (0.0, 0.0, params.base_height))
    grip, summit = (foot + edge) / 2, top + params.crown_height
    on_stud = base, (0.0, 0.0, params.base_height + summit)
    points = {
        "nut": (nut, (0.0, 0.0, grip)),
        "left": (nut, (0.0, params.half, grip)),
        "right": (nut, (0.0, -params.half, grip)),
        "top": on_stud if params.crown == "stud" else (nut, (0.0, 0.0, summit)),
        "base": (base, (0.0, 0.0, 0.0)),
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
    return jointed_model("nut", name, (base, nut), turn, points)


CATALOGUE = {
    "hex_nut": NutParams(),
    "square_nut": NutParams(
        flats=0.0398, height=0.023, sides=4, crown_radius=0.0115, crown_height=0.016,
        base=0.048, base_height=0.060, material=HARD_STEEL.coloured(0.30, 0.29, 0.28),
    ),
    "flange_nut": NutParams(
        flats=0.0402, height=0.026, flange=0.032, flange_height=0.006, crown_height=0.008,
        base=0.050, base_height=0.045, base_corners=ROUND, base_material=CAST_IRON,
        material=HARD_STEEL.coloured(0.78, 0.72, 0.45),
    ),
    "coupling_nut": NutParams(
        height=0.044, crown_radius=0.011, crown_height=0.006, base=0.042, base_height=0.040,
        base_corners=OCTAGONAL, base_material=CAST_IRON.coloured(0.22, 0.33, 0.42),
    ),
    "cap_nut": NutParams(
        flats=0.0401, height=0.025, crown="dome", crown_radius=0.0120, crown_height=0.015,
        base=0.046, base_height=0.055, base_corners=ROUND, material=HARD_BRASS,
    ),
    "bolt_head": NutParams(
        flats=0.0399, height=0.022, chamfer=0.0025, crown="boss", crown_radius=0.0125,
        crown_height=0.003, base=0.049, base_height=0.065, base_material=CAST_IRON,
        material=HARD_STEEL.coloured(0.16, 0.17, 0.19),
    ),
}  # fmt: skip


def draw(rng: np.random.Generator) -> NutParams:
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
        material=(HARD_STEEL, HARD_BRASS)[rng.integers(2)],
        base_material=(PINE, CAST_IRON)[rng.integers(2)],
    )


def across_flats(geometry: ModelGeometry) -> Values:
    """Returns the width along right -> left through `nut`, m."""
    return {"": _width(geometry, geometry.axis("right", "left"))}


def corners(geometry: ModelGeometry) -> Values:
    """Returns the greatest width through `nut` by the least one."""
    widths = _widths(geometry, np.radians(range(180)))
    return {"": max(widths) / min(widths)}


def angle_of_flats(geometry: ModelGeometry) -> Values:
    """Returns the angle between right -> left and the normal of the flats, rad."""
    angles = np.radians(np.arange(-15, 15.01, 0.5))
    return {"": abs(float(angles[int(np.argmin(_widths(geometry, angles)))]))}


def _widths(geometry: ModelGeometry, angles: np.ndarray) -> list[float]:
    """Returns the widths at angles from right -> left about the nut's axis, m."""
    flats = geometry.axis("right", "left")
    other = np.cross(geometry.axis("base", "top"), flats)
    return [_width(geometry, math.cos(a) * flats + math.sin(a) * other) for a in angles]


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
    right_angles(
        ("base", "top"),
        ("right", "left"),
        reason="the expert aligns the wrench with both axes, within 0.3 degrees each",
        remedy="Place `left` and `right` at one height, `top` straight above `base`.",
    ),
)


FAMILY = Family(
    kind="object",
    keypoints={
        "nut": Meaning("the nut's axis, at half the height of its flats"),
        "left": Meaning("the middle of a flat"),
        "right": Meaning("the middle of the opposite flat", behind("left")),
        "top": Meaning("the highest point of the axis"),
        "base": Meaning("the middle of the underside of the base"),
    },
    catalogue=CATALOGUE,
    build=build,
    draw=draw,
    rules=RULES,
)
