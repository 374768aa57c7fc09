"""The measures of a wrench, and its parts as solids.

In the tool frame T the handle is the x axis, and the wrench turns nuts about z: the jaw opens along
x. At work z_T points down. The jaw's own frame J has its origin midway between the pads, its x axis
out of the mouth, and its y axis from the left pad to the right one, as seen from above at work.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ..materials import STEEL, Material
from ..model import Part
from ..solids import Section, Solid, circle, join, loft, rectangle, ring, stack
from .nut import FLATS

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
GRIP = 0.015
"""Half the opening of the fingers, which the handle fills where it is held."""
GRIP_END = 0.035
"""The handle is held, and as wide as `GRIP`, for |x| up to here."""
NUT_ROOM = 0.075
"""What is nearer to the jaw than this is above the base that the nut sits on, m."""
WRENCH_STEEL = replace(STEEL, modulus=1e9)
Z_TO_X = np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]])

_TIP, _ROOT, _BACK = 0.0, 0.6, 1.0  # where along the outline, from the tip to the handle
_LIP_ROOT = 0.18

TAILS = ("plain", "ring", "fork")
TAIL, TAIL_BORE = 0.019, 0.58
"""Radius of a ring or fork at the handle's other end, m, and that of its hole in proportion."""


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
        sliding: Half the width of a straight sliding jaw instead of the right half of the head; 0
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
        tip = self.outer_edge(np.array([_TIP]))[0]
        root = self.outer_edge(np.array([_ROOT]))[0]
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
        broken = [rule for rule, holds in rules.items() if not holds]
        if broken:
            raise ValueError(f"not a wrench; wanted: {'; '.join(broken)}; given: {self}")

    @property
    def back(self) -> float:
        """From the middle of the jaw to the plane where head and shank meet."""
        return self.shift + math.sqrt(self.outer**2 - (1.1 * self.neck_y) ** 2)

    def outer_edge(self, t: np.ndarray) -> np.ndarray:
        """(n, 2) points x, |y| of J around a half of the head, from the tip (0) to the back (1)."""
        if self.lips:
            tip = math.asin(1.1 * LIP[1] / self.outer)
        else:
            tip = math.acos((self.reach - 0.002 + self.shift) / self.outer)
        root = math.pi - math.asin((PAD + 0.004) / self.outer)
        back = math.pi - math.asin(1.1 * self.neck_y / self.outer)
        angle = np.interp(t, [_TIP, _ROOT, _BACK], [tip, root, back])
        return np.column_stack(
            [self.outer * np.cos(angle) - self.shift, self.outer * np.sin(angle)]
        )

    def inner_edge(self, t: np.ndarray) -> np.ndarray:
        """(n, 2) points x, |y| of J along a pad and the throat, in step with `outer_edge`."""
        corner = 0.003
        stations = [
            (_ROOT - 0.08, corner - THROAT, PAD),
            (_ROOT + 0.08, -THROAT, PAD - corner),
            (_BACK, -THROAT, 0.8 * self.neck_y),
        ]
        if self.lips:
            stations = [(_TIP, *LIP), (_LIP_ROOT, self.reach, PAD), *stations]
        else:
            stations = [(_TIP, self.reach, PAD), *stations]
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


def wrench_parts(params: WrenchParams) -> tuple[Part, ...]:
    """All parts, in T."""
    return (_grip(params), _shank(params), *_head(params), *_tail(params))


# --- The head -------------------------------------------------------------------------------


def _prism(outline: np.ndarray, half: float) -> Solid:
    """A prism over an outline (n, 2) of the x-y plane, |z| <= half."""
    outline = np.round(outline, 9)
    return loft([np.column_stack([outline, np.full(len(outline), z)]) for z in (-half, half)])


def _ribbon(inner: np.ndarray, outer: np.ndarray, half: float, bevel: float) -> Solid:
    """A solid between two edges (n, 2) in step, |z| <= half, bevelled along the outer one."""
    rings = []
    for a, b in zip(inner, outer, strict=True):
        inset = b + (a - b) * bevel / np.linalg.norm(a - b)
        corners = [(a, -half), (inset, -half), (b, bevel - half), (b, half - bevel),
                   (inset, half), (a, half)]  # fmt: skip
        rings.append(np.array([(*point, z) for point, z in corners]))
    return loft(rings)


def _head(p: WrenchParams) -> tuple[Part, ...]:
    """Two prongs and what joins them behind the throat."""
    half, mirror = p.thickness, np.array([1.0, -1.0])
    steps = _steps(p)
    left = p.inner_edge(steps) * mirror, p.outer_edge(steps) * mirror
    right = p.inner_edge(steps), p.outer_edge(steps)
    first = 0
    slide: tuple[Part, ...] = ()
    if p.sliding:  # the right half begins at the throat's corner
        first = int(np.argmax(steps >= _ROOT - 1e-12))
        slide = (_sliding_jaw(p),)
    inner, outer = (
        np.concatenate([one, other[: first - 1 if first else None : -1]])
        for one, other in zip(left, right, strict=True)
    )
    seen = _ribbon(inner, outer, half, min(0.0025, half / 2))
    felt = [*_prong(p, mirror), _bottom(p)]
    felt += [] if p.sliding else _prong(p, mirror * mirror)
    head = Part("head", p.to_tool(seen), p.body, tuple(p.to_tool(_prism(f, half)) for f in felt))
    return head, *slide


def _steps(p: WrenchParams) -> np.ndarray:
    """Where along its outline the head is cut: evenly, and at every bend of either edge."""
    bends = [_ROOT - 0.08, _ROOT, _ROOT + 0.08, *([_LIP_ROOT] if p.lips else [])]
    even = np.linspace(_TIP, _BACK, p.facets + 1)
    apart = even[np.min(np.abs(even[:, None] - bends), axis=1) > 0.02]
    return np.sort(np.concatenate([apart, bends]))


def _prong(p: WrenchParams, side: np.ndarray) -> list[np.ndarray]:
    """Convex outlines of one prong: as long as its pad, and of its lip."""
    start = _LIP_ROOT if p.lips else _TIP
    arc = [_ROOT, start] if p.lips else [_ROOT, (start + _ROOT) / 2, start]
    pad = np.array([(p.reach, PAD), (-THROAT, PAD)])
    outlines = [np.concatenate([pad, p.outer_edge(np.array(arc))])]
    if p.lips:
        ends = np.array([_LIP_ROOT, _TIP])
        outlines.append(np.concatenate([p.inner_edge(ends[::-1]), p.outer_edge(ends)]))
    return [outline * side for outline in outlines]


def _bottom(p: WrenchParams) -> np.ndarray:
    """The convex outline of what lies behind the throat."""
    half = np.concatenate([[(-THROAT, PAD)], p.outer_edge(np.array([_ROOT, _BACK]))])
    return np.concatenate([half, half[::-1] * [1.0, -1.0]])


def _sliding_jaw(p: WrenchParams) -> Part:
    """A straight jaw with a knurled roll on it, seen and felt alike but for the roll."""
    top, root = PAD + p.sliding, p.outer_edge(np.array([_ROOT]))[0]
    outline = np.array(
        [(p.reach, PAD), (-THROAT, PAD), root, (root[0], top), (p.reach - 0.006, top)]
    )
    solid = _prism(outline, p.thickness)
    z = [0.001 * k for k in range(9)]
    knurl = [(-0.012 + h, circle(0.0035 - 0.0006 * (k % 2))) for k, h in enumerate(z)]
    turned = stack(knurl, 3).transformed(Z_TO_X, (0.0, top + 0.0036, 0.0))
    seen = join(solid, turned)
    return Part("slide", p.to_tool(seen), p.grip, (p.to_tool(solid),))


# --- The handle -----------------------------------------------------------------------------


def _section(p: WrenchParams) -> Section:
    return Section(p.grip_z, GRIP, p.roundness * p.grip_z)


def _along_x(rings: list[np.ndarray]) -> Solid:
    return loft(rings).transformed(Z_TO_X, (0.0, 0.0, 0.0))


CORNERS = 4  # points to a corner of a handle's section


def _grip(p: WrenchParams) -> Part:
    """From the butt to the shank; its free end is rounded off."""
    full = _section(p)
    end = full.towards(Section(0.6 * p.grip_z, 0.7 * GRIP, 0.6 * p.roundness * p.grip_z), 1.0)
    profile = [(p.butt_x, end), (p.butt_x + 0.003, end.towards(full, 0.75))]
    profile += [(p.butt_x + 0.009, full), (p.shank_x, full)]
    felt = [ring(rectangle(p.grip_z, GRIP), x, 1) for x in (p.butt_x, p.shank_x)]
    return Part("grip", _along_x([ring(s, x, CORNERS) for x, s in profile]), p.grip,
                (_along_x(felt),))  # fmt: skip


def _shank(p: WrenchParams) -> Part:
    """From the grip to the plane where the head begins, swung aside and down to it."""
    full, neck = _section(p), Section(p.neck_z, p.neck_y, p.roundness * p.neck_z)
    end_T = p.p_TJ - p.R_TJ @ [p.back, 0.0, 0.0]
    length = end_T[0] - p.shank_x
    rings = []
    for t in np.linspace(0.0, 0.9, 9):
        s = t * t * (3 - 2 * t)
        # The section's x is -z_T; see Z_TO_X.
        axis = (-s * p.drop, s * end_T[1])
        rings.append(ring(full.towards(neck, s), p.shank_x + t * length, CORNERS, axis))
    flat = ring(neck, 0.0, CORNERS) @ Z_TO_X.T
    seen = loft([*(one @ Z_TO_X.T for one in rings), flat @ p.R_TJ.T + end_T])
    y = round(end_T[1], 9)
    felt = [
        ring(rectangle(p.grip_z, GRIP), p.shank_x, 1),
        ring(rectangle(p.neck_z, p.neck_y), round(end_T[0], 9), 1, (-p.drop, y)),
    ]
    return Part("shank", seen, p.body, (_along_x(felt),))


def _tail(p: WrenchParams) -> tuple[Part, ...]:
    """A ring or a smaller fork behind the butt, joined to it by a web."""
    if p.tail == "plain":
        return ()
    half = min(p.grip_z, p.thickness)
    start = math.asin(0.6 * GRIP / TAIL)  # where the outline meets the butt
    sweeps = {
        "ring": [(start, 2 * math.pi - start)],
        "fork": [(start, 0.72 * math.pi), (2 * math.pi - start, 1.28 * math.pi)],
    }[p.tail]
    arcs = []
    for first, last in sweeps:
        angles = np.linspace(first, last, 25)
        rim = TAIL * np.column_stack([np.cos(angles), np.sin(angles)])
        arcs.append(_ribbon(TAIL_BORE * rim, rim, half, min(0.0015, half / 2)))
    corner = TAIL * np.array([math.cos(start), math.sin(start)])
    flip = np.array([1.0, -1.0])
    web = np.array([TAIL_BORE * corner, corner, corner * flip, TAIL_BORE * corner * flip])
    seen = join(*arcs, _prism(web, 0.9 * half))
    square = 0.85 * TAIL * np.array([(1, 1), (-1, 1), (-1, -1), (1, -1)])
    centre = (round(p.butt_x - corner[0], 9), 0.0, 0.0)
    seen, felt = (s.transformed(np.eye(3), centre) for s in (seen, _prism(square, half)))
    return (Part("tail", seen, p.body, (felt,)),)
