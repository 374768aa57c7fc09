"""The parameters of a wrench.

In the tool frame T the handle is the x axis, and the wrench turns nuts about z: the jaw opens along
x. At work z_T points down. The jaw's frame J has its origin midway between the pads, its x axis out
of the mouth, and its y axis from the left pad to the right one, as seen from above at work.
"""

import math
import typing
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fleet_tools.assets.families.grip import GRIP_END
from fleet_tools.assets.families.nut_params import FLATS
from fleet_tools.assets.families.rules import check_rules
from fleet_tools.assets.materials import STEEL, Material
from fleet_tools.assets.solids import Solid

CLEARANCE = 0.0012
"""Clearance between a jaw and a nominal nut, both sides together, m."""

PAD = (FLATS + CLEARANCE) / 2
"""Distance from the middle of the jaw to either pad, m."""

THROAT = 0.0245
"""Distance from the middle of the jaw to its bottom, m; it leaves room for a hexagon's corners."""

LIP = (0.0255, 0.012)
"""x of J and half the gap at the end of lips that almost close the jaw, m."""

LIP_ROOT = 0.0215
"""x of J where lips begin, beyond the corners of a square, m."""

NUT_ROOM = 0.075
"""Distance from the jaw within which the wrench is above the base of the nut, m."""

WRENCH_STEEL = replace(STEEL, modulus=1e9)

AT_TIP, AT_ROOT, AT_BACK = 0.0, 0.6, 1.0
"""Outline parameter t of half a head at the tip, the throat's corner, and the shank."""

AT_CORNER = (AT_ROOT - 0.08, AT_ROOT + 0.08)
"""Outline parameters of the ends of the throat's chamfered corner, in the visual geometry."""

AT_LIP = 0.18
"""Outline parameter where a lip begins."""

TailName = Literal["plain", "ring", "fork"]
TAILS: tuple[TailName, ...] = typing.get_args(TailName)


@dataclass(frozen=True)
class WrenchParams:
    """The parameters of a wrench, lengths in m.

    Attributes:
        butt_x: x of the handle's free end; negative.
        jaw_x: x of the middle of the jaw.
        jaw_deg: Angle of the jaw's mouth about z from the handle's direction.
        drop: Distance of the jaw below the handle, at work.
        thickness: Half the height of the head.
        reach: Length of the pads beyond the middle of the jaw.
        lips: Whether lips almost close the jaw, like a ring with a gap.
        outer: Radius of the head.
        shift: Distance of the head's centre behind the middle of the jaw.
        facets: Number of segments of the outline of each half of the head.
        sliding: Width of a straight sliding jaw instead of the right half of the head; 0 for none.
        grip_z: Half the height of the handle where it is held.
        roundness: Roundness of the handle's section: near 0 a bar, 1 an oval or, if it is as high
            as it is wide, a rod.
        shank_x: x at which the grip ends and the shank of the head begins.
        neck_y, neck_z: Half widths of the shank where it enters the head.
        tail: Shape of the handle's free end.
        grip: Material of the handle up to the shank, and of a sliding jaw.
        body: Material of the rest.
    """

    butt_x: float = -0.10
    jaw_x: float = 0.170
    jaw_deg: float = 0.0
    drop: float = 0.0
    thickness: float = 0.007
    reach: float = 0.017
    lips: bool = False
    outer: float = 0.037
    shift: float = 0.003
    facets: int = 12
    sliding: float = 0.0
    grip_z: float = 0.006
    roundness: float = 0.6
    shank_x: float = 0.05
    neck_y: float = 0.011
    neck_z: float = 0.005
    tail: TailName = "plain"
    grip: Material = WRENCH_STEEL
    body: Material = WRENCH_STEEL

    def __post_init__(self) -> None:
        """Refuses impossible parameters with a ValueError."""
        tip = self.outer_edge(np.array([AT_TIP]))[0]
        root = self.outer_edge(np.array([AT_ROOT]))[0]
        rules = {
            f"tail one of {', '.join(TAILS)}": self.tail in TAILS,
            "butt_x behind the grip": self.butt_x <= -GRIP_END - 0.02,
            "shank_x between grip and head": GRIP_END < self.shank_x < self.jaw_x - NUT_ROOM,
            "fingers clear of the base": self.jaw_x - GRIP_END >= NUT_ROOM + 0.015,
            "0 < roundness <= 1": 0 < self.roundness <= 1,
            "grip_z <= 0.018": self.grip_z <= 0.018,
            "neck within the head": self.neck_z <= self.thickness and self.neck_y <= 0.9 * PAD,
            "pads as long as a hexagon's flats": 0.0115 <= self.reach <= LIP_ROOT,
            "outer wide enough for the tips": tip[1] >= (LIP[1] if self.lips else PAD + 0.003),
            "throat within the head": -root[0] >= THROAT and root[1] > PAD,
            "lips without a sliding jaw or a tail": not self.lips
            or (not self.sliding and self.tail == "plain" and self.reach == LIP_ROOT),
        }
        check_rules("wrench", self, rules)

    @property
    def back(self) -> float:
        """Distance from the middle of the jaw to the plane where head and shank meet, m."""
        return self.shift + math.sqrt(self.outer**2 - (1.1 * self.neck_y) ** 2)

    def outer_edge(self, t: np.ndarray) -> np.ndarray:
        """Returns points on the outer outline of half a head.

        Args:
            t: Outline parameters from the tip (0) to the back (1), (n,).

        Returns:
            x and |y| of J, (n, 2), m.
        """
        if self.lips:
            tip = math.asin(1.1 * LIP[1] / self.outer)
        else:
            tip = math.acos(min((self.reach - 0.002 + self.shift) / self.outer, 1.0))
        root = math.pi - math.asin(min((PAD + 0.004) / self.outer, 1.0))
        back = math.pi - math.asin(1.1 * self.neck_y / self.outer)
        angle = np.interp(t, [AT_TIP, AT_ROOT, AT_BACK], [tip, root, back])
        return np.column_stack(
            [self.outer * np.cos(angle) - self.shift, self.outer * np.sin(angle)]
        )

    def inner_edge(self, t: np.ndarray) -> np.ndarray:
        """Returns points on a pad and the throat, opposite those of `outer_edge`.

        Args:
            t: Outline parameters from the tip (0) to the back (1), (n,).

        Returns:
            x and |y| of J, (n, 2), m.
        """
        corner = 0.003
        stations = [
            (AT_CORNER[0], corner - THROAT, PAD),
            (AT_CORNER[1], -THROAT, PAD - corner),
            (AT_BACK, -THROAT, 0.8 * self.neck_y),
        ]
        if self.lips:
            stations = [(AT_TIP, *LIP), (AT_LIP, self.reach, PAD), *stations]
        else:
            stations = [(AT_TIP, self.reach, PAD), *stations]
        known_t, x, y = np.transpose(stations)
        return np.column_stack([np.interp(t, known_t, x), np.interp(t, known_t, y)])

    def to_tool(self, solid: Solid) -> Solid:
        """Returns a solid that is given in J, in T."""
        return solid.transformed(self.R_TJ, self.p_TJ)

    @property
    def p_TJ(self) -> np.ndarray:
        """Position of the middle of the jaw in T, (3,), m."""
        return np.array([self.jaw_x, 0.0, self.drop])

    @property
    def R_TJ(self) -> np.ndarray:
        """Rotation of the jaw about z, (3, 3)."""
        c, s = math.cos(math.radians(self.jaw_deg)), math.sin(math.radians(self.jaw_deg))
        return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
