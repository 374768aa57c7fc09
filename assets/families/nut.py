"""Nuts and bolt heads on a fixed base; a wrench on the flats turns them against a brake.

The base stands on z = 0 of the model frame, and the axis of rotation is its z axis. The nut's frame
has its origin where the axis leaves the base, below a washer; the joint `turn` says how far the nut
has been tightened, clockwise as seen from above. At zero two of its flats look along +y and -y.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ..materials import BRASS, PINE, STEEL, Material
from ..model import Joint, Keypoint, Link, Model, Part
from ..solids import Section, Station, circle, frusta, join, loft, rectangle, stack
from .rules import require

FLATS = 0.040
"""Nominal width across flats, to which the family of wrenches is made, m."""
DEVIATION = 0.0002
"""Of the width across flats, at most, m."""
WASHER = 0.004
"""Height of the washer between base and nut, m."""
INERTIA = 1e-3
"""Of what turns along with the nut, kg m^2; see `model.Joint`."""
RANGE = math.pi
"""The nut turns so far from zero, either way, rad."""
SLOPE = 0.577
"""tan(30 deg), so short that corners of a half width in micrometres are whole nanometres: sides of
a chamfered nut then stay plane when they are written, which contact depends on (`solids.frusta`).
"""
INSET = 0.8
"""How far a chamfer reaches inwards, as a fraction of its height."""
ROUND, OCTAGONAL, SQUARE = 8, 2, 1

NUT_STEEL, NUT_BRASS = (replace(metal, modulus=1e9) for metal in (STEEL, BRASS))
CAST_IRON = replace(STEEL.coloured(0.33, 0.34, 0.36), density=7200.0, modulus=math.inf)


@dataclass(frozen=True)
class NutParams:
    """Measures in metres.

    Attributes:
        flats: Width across flats.
        height: Of the flats, chamfer included.
        sides: 6 or 4.
        chamfer: Height of the bevel around the top, which guides the jaw.
        crown: What is on top: `stud` (the fixed thread comes out of the nut), `dome` (a cap nut) or
            `boss` (a bolt's head).
        crown_radius, crown_height: Of that.
        flange: Radius of a collar below the flats, and 0 for none.
        flange_height: Its height.
        base: Half the base's width.
        base_height: Its height.
        base_corners: `ROUND`, `OCTAGONAL` or `SQUARE`.
        resistance: Torque at which the nut gives way, N m.
        material, base_material: Of nut and base.
    """

    flats: float = FLATS
    height: float = 0.024
    sides: int = 6
    chamfer: float = 0.003
    crown: str = "stud"
    crown_radius: float = 0.012
    crown_height: float = 0.012
    flange: float = 0.0
    flange_height: float = 0.0
    base: float = 0.045
    base_height: float = 0.050
    base_corners: int = SQUARE
    resistance: float = 2.0
    material: Material = NUT_STEEL
    base_material: Material = PINE

    def __post_init__(self) -> None:
        rules = {
            f"crown one of {', '.join(CROWNS)}": self.crown in CROWNS,
            "6 or 4 sides": self.sides in (6, 4),
            "flats within DEVIATION of FLATS": abs(self.flats - FLATS) <= DEVIATION + 1e-12,
            "room for a jaw on the flats": self.height - self.chamfer >= 0.019,
            "crown within the top": math.sqrt(2) * self.crown_radius < self.top,
            "flange 0, or wider than the corners": self.flange == 0 or self.flange > self.reach,
            "flange with a height": (self.flange > 0) == (self.flange_height > 0),
            "nut on its base": max(self.flange, self.reach) + 0.004 < self.base,
        }
        require("nut", self, rules)

    @property
    def half(self) -> float:
        """Half the width across flats, in whole micrometres."""
        return round(self.flats / 2, 6)

    @property
    def top(self) -> float:
        """The same at the chamfer's upper end."""
        return round(self.half - INSET * self.chamfer, 6)

    @property
    def reach(self) -> float:
        """From the axis to the corners."""
        return self.half * (2 * SLOPE if self.sides == 6 else math.sqrt(2))

    @property
    def levels(self) -> tuple[float, float, float, float]:
        """Heights in the nut's frame: its underside, where flats begin and end, and its top."""
        foot = WASHER + self.flange_height
        top = foot + self.height
        return WASHER, foot, top - self.chamfer, top


def build(params: NutParams, name: str) -> Model:
    """The nut as a model of two links, `base` and `nut`, and the joint `turn`."""
    _, foot, edge, top = params.levels
    crown, rises_from_base = _crown(params)
    base = (_base(params), *((crown,) if rises_from_base else ()))
    nut = (_body(params), *(() if rises_from_base else (crown,)))
    origin = (0.0, 0.0, params.base_height)
    grip = (foot + edge) / 2
    summit = top + params.crown_height
    points = {
        "nut": Keypoint("nut", (0.0, 0.0, grip)),
        "left": Keypoint("nut", (0.0, params.half, grip)),
        "right": Keypoint("nut", (0.0, -params.half, grip)),
        "top": (
            Keypoint("base", (0.0, 0.0, params.base_height + summit))
            if rises_from_base
            else Keypoint("nut", (0.0, 0.0, summit))
        ),
        "base": Keypoint("base", (0.0, 0.0, 0.0)),
    }
    turn = Joint(
        name="turn",
        kind="revolute",
        parent="base",
        child="nut",
        axis=(0.0, 0.0, -1.0),
        limits=(-RANGE, RANGE),
        resistance=params.resistance,
        inertia=INERTIA,
    )
    return Model(
        kind="object",
        family="nut",
        name=name,
        links=(Link("base", base), Link("nut", nut, origin)),
        joints=(turn,),
        keypoints=points,
    )


def _base(p: NutParams) -> Part:
    """The base and the washer on it."""
    height, bevel = p.base_height, 0.002

    def section(inset: float) -> Section:
        half = p.base - inset
        return Section(half, half, 0.003) if p.base_corners == SQUARE else circle(half)

    corners = 5 if p.base_corners == SQUARE else p.base_corners
    seen = [(0.0, section(0)), (height - bevel, section(0)), (height, section(bevel))]
    washer = circle(max(p.flange, p.reach) + 0.002)
    seen += [(height, washer), (height + WASHER, washer)]
    felt = frusta([(0.0, section(0)), (height, section(0))], min(p.base_corners, OCTAGONAL))
    return Part("base", stack(seen, corners), p.base_material, felt)


def _outline(half: float, sides: int, z: float) -> np.ndarray:
    """(sides, 3) corners of a nut whose flats are so far from the axis."""
    side = half * SLOPE
    corners = {
        6: [(2 * side, 0), (side, half), (-side, half), (-2 * side, 0), (-side, -half),
            (side, -half)],
        4: [(half, half), (-half, half), (-half, -half), (half, -half)],
    }[sides]  # fmt: skip
    return np.round([(x, y, z) for x, y in corners], 9)


def _body(p: NutParams) -> Part:
    """Flats, chamfer, and the flange where there is one."""
    seat, foot, edge, top = p.levels
    prism = [_outline(p.half, p.sides, z) for z in (foot, edge)]
    bevel = _outline(p.top, p.sides, top)
    seen, felt = loft([*prism, bevel]), [loft(prism), loft([prism[1], bevel])]
    if p.flange:
        rim = circle(p.flange)
        lip = (seat + 0.4 * p.flange_height, rim)
        collar = stack([(seat, rim), lip, (foot, circle(p.reach))], ROUND)
        seen = join(collar, seen)
        half = round(0.93 * p.flange, 6)  # as large as the circle
        felt.append(loft([_outline(half, 6, z) for z in (seat, lip[0])]))
    return Part("nut", seen, p.material, tuple(felt))


def _crown(p: NutParams) -> tuple[Part, bool]:
    """What is on top, and whether it belongs to the base."""
    r, h, top = p.crown_radius, p.crown_height, p.levels[-1]
    if p.crown == "stud":
        foot = p.base_height + WASHER
        summit = p.base_height + top + h
        turns = [(summit - 0.002 - 0.003 * k, circle(r - 0.0012 * (k % 2))) for k in range(4)]
        turns = [turn for turn in turns if turn[0] > p.base_height + top - 0.002]
        stations = [(foot, circle(r)), *reversed(turns), (summit, circle(0.85 * r))]
        felt = frusta([(foot, rectangle(r, r)), (summit, rectangle(0.8 * r, 0.8 * r))], 1)
        return Part("stud", stack(stations, 3), STEEL_STUD, felt), True
    if p.crown == "dome":
        angles = [k / 6 * math.pi / 2 for k in range(6)]
        arc: list[Station] = [(top + h * math.sin(a), circle(r * math.cos(a))) for a in angles]
        stations = [*arc, (top + h, None)]
        tip = rectangle(0.4 * r, 0.4 * r)
    else:
        stations = [(top, circle(r)), (top + 0.6 * h, circle(r)), (top + h, circle(0.8 * r))]
        tip = rectangle(0.8 * r, 0.8 * r)
    felt = frusta([(top, rectangle(0.9 * r, 0.9 * r)), (top + h, tip)], 1)
    return Part(p.crown, stack(stations, 5), p.material, felt), False


CROWNS = ("stud", "dome", "boss")
STEEL_STUD = NUT_STEEL.coloured(0.45, 0.46, 0.48)

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
    """A random believable nut or bolt head."""
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
