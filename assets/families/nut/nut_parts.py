"""The parameters of a nut on its base; for the frames see `nut`."""

import math
import typing
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fleet_tools.assets.model_description import BRASS, PINE, STEEL, Material, PartDescription
from fleet_tools.assets.parametric import check_parameters
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

ROUND, OCTAGONAL, SQUARE = 8, 2, 1
"""Corner points of sections."""

CrownName = Literal["stud", "dome", "boss"]
CROWNS: tuple[CrownName, ...] = typing.get_args(CrownName)

NUT_STEEL, NUT_BRASS = (replace(metal, modulus=1e9) for metal in (STEEL, BRASS))
STUD_STEEL = NUT_STEEL.coloured(0.45, 0.46, 0.48)
CAST_IRON = replace(STEEL.coloured(0.33, 0.34, 0.36), density=7200.0, modulus=math.inf)


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
    material: Material = NUT_STEEL
    base_material: Material = PINE

    def __post_init__(self) -> None:
        """Refuses impossible parameters with a ValueError."""
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
        check_parameters("nut", self, rules)

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


def nut_parts(
    params: NutParams,
) -> tuple[tuple[PartDescription, ...], tuple[PartDescription, ...]]:
    """Makes the parts of a nut on its base, each in the frame of its link.

    Returns:
        The parts of the base, to which a stud belongs, and the nut's.
    """
    if params.crown == "stud":
        return (_base(params), _stud(params)), (_body(params),)
    return (_base(params),), (_body(params), _crown(params))


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
