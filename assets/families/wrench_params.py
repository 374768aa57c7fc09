"""The measures of a wrench.

In the tool frame T the handle is the x axis, and the wrench turns nuts about z: the jaw opens along
x. At work z_T points down. The jaw's own frame J has its origin midway between the pads, its x axis
out of the mouth, and its y axis from the left pad to the right one, as seen from above at work.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ..materials import STEEL, Material
from ..solids import Solid
from .grip import GRIP_END
from .nut import FLATS
from .rules import require

CLEARANCE = 0.0012
"""Between a jaw and a nominal nut, both sides together, m."""
PAD = (FLATS + CLEARANCE) / 2
"""From the middle of the jaw to either pad, m."""
THROAT = 0.0245
"""From the middle of the jaw to its bottom: room for the corners of a hexagon, m."""
LIP = (0.0255, 0.012)
"""x and half the gap at the end of lips that all but close the jaw, m."""
LIP_ROOT = 0.0215
"""x where lips begin: beyond the corners of a square, m."""
NUT_ROOM = 0.075
"""What is nearer to the jaw than this is above the base that the nut sits on, m."""
WRENCH_STEEL = replace(STEEL, modulus=1e9)

AT_TIP, AT_ROOT, AT_BACK = 0.0, 0.6, 1.0
"""Where along the outline of a half of the head: the tip, the throat's corner, and the shank."""
AT_CORNER = (AT_ROOT - 0.08, AT_ROOT + 0.08)
"""Where the cut-off corner of the throat is seen."""
AT_LIP = 0.18
"""Where a lip begins."""

TAILS = ("plain", "ring", "fork")


@dataclass(frozen=True)
class WrenchParams:
    """A wrench's measures in metres.

    Attributes:
        butt_x: x of the handle's free end; negative.
        jaw_x: x of the middle of the jaw.
        jaw_deg: How far the jaw's mouth is turned away from the handle's direction, about z.
        drop: How far the jaw lies below the handle, at work.
        thickness: Half the height of the head.
        reach: How far the pads go beyond the middle of the jaw.
        lips: Whether lips all but close the jaw, like a ring with a gap.
        outer: Radius of the head.
        shift: How far its centre lies behind the middle of the jaw.
        facets: Into how many pieces the outline of each half of the head is cut.
        sliding: Width of a straight sliding jaw instead of the right half of the head; 0
            for none.
        grip_z: Half the height of the handle where it is held.
        roundness: Of its section: near 0 a bar, 1 an oval or, if as high as wide, a rod.
        shank_x: Where the grip ends and the shank of the head begins.
        neck_y, neck_z: Half widths of the shank where it enters the head.
        tail: What ends the handle, `plain`, `ring` or `fork`.
        grip, body: Materials of the handle as far as the shank, and of the rest.
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
    tail: str = "plain"
    grip: Material = WRENCH_STEEL
    body: Material = WRENCH_STEEL

    def __post_init__(self) -> None:
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
        require("wrench", self, rules)

    @property
    def back(self) -> float:
        """From the middle of the jaw to the plane where head and shank meet."""
        return self.shift + math.sqrt(self.outer**2 - (1.1 * self.neck_y) ** 2)

    def outer_edge(self, t: np.ndarray) -> np.ndarray:
        """(n, 2) points x, |y| of J around a half of the head, from the tip (0) to the back (1)."""
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
        """(n, 2) points x, |y| of J along a pad and the throat, in step with `outer_edge`."""
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
        at, x, y = np.transpose(stations)
        return np.column_stack([np.interp(t, at, x), np.interp(t, at, y)])

    def to_tool(self, solid: Solid) -> Solid:
        """A solid of frame J, in T."""
        return solid.transformed(self.R_TJ, self.p_TJ)

    @property
    def p_TJ(self) -> np.ndarray:
        """(3,), the middle of the jaw in T."""
        return np.array([self.jaw_x, 0.0, self.drop])

    @property
    def R_TJ(self) -> np.ndarray:
        """(3, 3), the jaw's turn about z."""
        c, s = math.cos(math.radians(self.jaw_deg)), math.sin(math.radians(self.jaw_deg))
        return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
