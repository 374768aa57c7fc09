"""The parameters of a nut on its base; for the frames see `nut`."""

import math
import typing
from dataclasses import dataclass, replace
from typing import Literal

from fleet_tools.assets.families.rules import check_rules
from fleet_tools.assets.materials import BRASS, PINE, STEEL, Material

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
        check_rules("nut", self, rules)

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
