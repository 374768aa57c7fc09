"""Open-ended wrenches of one size: a jaw at the end of a handle turns nuts by their flats.

In the tool frame T the handle is the x axis, and the wrench turns nuts about z: the jaw opens along
x. At work z_T points down. The jaw's frame J has its origin midway between the pads, its x axis out
of the mouth, and its y axis from the left pad to the right one. Left and right are as seen from
above at work.
"""

import math
import typing
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fleet_tools.assets.families import Family, HandAlignment, Meaning, across, behind, middle
from fleet_tools.assets.families.nut import DEVIATION, FLATS
from fleet_tools.assets.model_description import (
    BLACK_OXIDE,
    BLUE_PLASTIC,
    CHROME,
    HARD_BRASS,
    HARD_STEEL,
    NYLON,
    Material,
    ModelDescription,
    PartDescription,
    rigid_model,
)
from fleet_tools.assets.model_geometry import ModelGeometry
from fleet_tools.assets.parametric import GRIP, Z_TO_X, along_x
from fleet_tools.assets.rules import Rule, Values, gap, perpendicular, right_angles
from fleet_tools.assets.solids import (
    Section,
    Solid,
    circle,
    joined,
    loft,
    rectangle,
    section_loft,
    section_ring,
)

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
    grip: Material = HARD_STEEL
    body: Material = HARD_STEEL

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
        """Returns points on a pad and the throat, opposite the points of `outer_edge`."""
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


CORNERS = 4
"""Corner points of a handle's section."""

TAIL, TAIL_BORE = 0.019, 0.58
"""Radius of a ring or fork at the handle's free end, m, and its hole's as a fraction."""


def _prism(outline: np.ndarray, half: float) -> Solid:
    """Makes a prism over a convex outline (n, 2) of the x-y plane, |z| <= half."""
    outline = np.round(outline, 9)
    return loft([np.column_stack([outline, np.full(len(outline), z)]) for z in (-half, half)])


def _ribbon(inner: np.ndarray, outer: np.ndarray, half: float, bevel: float) -> Solid:
    """Makes a solid between two curves (n, 2) in the x-y plane, bevelled along the outer one."""
    rings = []
    for a, b in zip(inner, outer, strict=True):
        inset = b + (a - b) * bevel / np.linalg.norm(a - b)
        corners = [(a, -half), (inset, -half), (b, bevel - half), (b, half - bevel),
                   (inset, half), (a, half)]  # fmt: skip
        rings.append(np.array([(*point, z) for point, z in corners]))
    return loft(rings)


def _head(p: WrenchParams) -> tuple[PartDescription, ...]:
    """Makes the two prongs and the bridge behind the throat, and the sliding jaw, if any."""
    half, mirror = p.thickness, np.array([1.0, -1.0])
    t = _outline_parameters(p)
    left = p.inner_edge(t) * mirror, p.outer_edge(t) * mirror
    right = p.inner_edge(t), p.outer_edge(t)
    first = 0
    slide: tuple[PartDescription, ...] = ()
    if p.sliding:  # the right half begins at the throat's corner
        first = int(np.argmax(t >= AT_ROOT))
        slide = (_sliding_jaw(p),)
    inner, outer = (
        np.concatenate([one, other[: first - 1 if first else None : -1]])
        for one, other in zip(left, right, strict=True)
    )
    visual = _ribbon(inner, outer, half, min(0.0025, half / 2))
    outlines = [*_prong(p, mirror), _bridge(p)]
    outlines += [] if p.sliding else _prong(p, np.ones(2))
    collision = tuple(p.to_tool(_prism(outline, half)) for outline in outlines)
    return PartDescription("head", p.to_tool(visual), p.body, collision), *slide


def _outline_parameters(p: WrenchParams) -> np.ndarray:
    """Returns parameters of the outline's points: even steps, and every bend of either edge."""
    bends = [AT_ROOT, *AT_CORNER, *([AT_LIP] if p.lips else [])]
    even = np.linspace(AT_TIP, AT_BACK, p.facets + 1)
    apart = even[np.min(np.abs(even[:, None] - bends), axis=1) > 0.02]
    return np.sort(np.concatenate([apart, bends]))


def _prong(p: WrenchParams, side: np.ndarray) -> list[np.ndarray]:
    """Returns convex outlines of a prong over the length of its pad, and of its lip, if any."""
    start = AT_LIP if p.lips else AT_TIP
    arc = [AT_ROOT, start] if p.lips else [AT_ROOT, (start + AT_ROOT) / 2, start]
    pad = np.array([(p.reach, PAD), (-THROAT, PAD)])
    outlines = [np.concatenate([pad, p.outer_edge(np.array(arc))])]
    if p.lips:
        ends = np.array([AT_LIP, AT_TIP])
        outlines.append(np.concatenate([p.inner_edge(ends[::-1]), p.outer_edge(ends)]))
    return [outline * side for outline in outlines]


def _bridge(p: WrenchParams) -> np.ndarray:
    """Returns the convex outline of the head behind the throat."""
    half = np.concatenate([[(-THROAT, PAD)], p.outer_edge(np.array([AT_ROOT, AT_BACK]))])
    return np.concatenate([half, half[::-1] * [1.0, -1.0]])


def _sliding_jaw(p: WrenchParams) -> PartDescription:
    """Makes a straight jaw with a knurled roll, which is not in the collision geometry."""
    top, root = PAD + p.sliding, p.outer_edge(np.array([AT_ROOT]))[0]
    outline = np.array(
        [(p.reach, PAD), (-THROAT, PAD), root, (root[0], top), (p.reach - 0.006, top)]
    )
    solid = _prism(outline, p.thickness)
    z = [0.001 * k for k in range(9)]
    knurl = [(-0.012 + h, circle(0.0035 - 0.0006 * (k % 2))) for k, h in enumerate(z)]
    turned = section_loft(knurl, 3).transformed(Z_TO_X, (0.0, top + 0.0036, 0.0))
    visual = joined(solid, turned)
    return PartDescription("slide", p.to_tool(visual), p.grip, (p.to_tool(solid),))


def _section(p: WrenchParams) -> Section:
    return Section(p.grip_z, GRIP, p.roundness * p.grip_z)


def _grip(p: WrenchParams) -> PartDescription:
    """Makes the handle from the butt, which is rounded, to the shank."""
    full = _section(p)
    end = full.interpolated(Section(0.6 * p.grip_z, 0.7 * GRIP, 0.6 * p.roundness * p.grip_z), 1.0)
    profile = [(p.butt_x, end), (p.butt_x + 0.003, end.interpolated(full, 0.75))]
    profile += [(p.butt_x + 0.009, full), (p.shank_x, full)]
    collision = [section_ring(rectangle(p.grip_z, GRIP), x, 1) for x in (p.butt_x, p.shank_x)]
    visual = loft([section_ring(section, x, CORNERS) for x, section in profile])
    return PartDescription("grip", along_x(visual), p.grip, (along_x(loft(collision)),))


def _shank(p: WrenchParams) -> PartDescription:
    """Makes the shank, which curves sideways and down to the plane where the head begins."""
    full, neck = _section(p), Section(p.neck_z, p.neck_y, p.roundness * p.neck_z)
    end_T = p.p_TJ - p.R_TJ @ [p.back, 0.0, 0.0]
    length = end_T[0] - p.shank_x
    rings = []
    for t in np.linspace(0.0, 0.9, 9):
        s = t * t * (3 - 2 * t)
        # The section's x is -z_T; see `along_x`.
        axis = (-s * p.drop, s * end_T[1])
        rings.append(
            section_ring(full.interpolated(neck, s), p.shank_x + t * length, CORNERS, axis)
        )
    flat = section_ring(neck, 0.0, CORNERS) @ Z_TO_X.T
    visual = loft([*(ring @ Z_TO_X.T for ring in rings), flat @ p.R_TJ.T + end_T])
    y = round(end_T[1], 9)
    collision = [
        section_ring(rectangle(p.grip_z, GRIP), p.shank_x, 1),
        section_ring(rectangle(p.neck_z, p.neck_y), round(end_T[0], 9), 1, (-p.drop, y)),
    ]
    return PartDescription("shank", visual, p.body, (along_x(loft(collision)),))


def _tail(p: WrenchParams) -> tuple[PartDescription, ...]:
    """Makes the ring or the smaller fork behind the butt, and the web between them, if any."""
    if p.tail == "plain":
        return ()
    half = min(p.grip_z, p.thickness)
    start = math.asin(0.6 * GRIP / TAIL)  # angle at which the outline meets the butt
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
    mirror = np.array([1.0, -1.0])
    web = np.array([TAIL_BORE * corner, corner, corner * mirror, TAIL_BORE * corner * mirror])
    visual = joined(*arcs, _prism(web, 0.9 * half))
    square = 0.85 * TAIL * np.array([(1, 1), (-1, 1), (-1, -1), (1, -1)])
    centre = (round(p.butt_x - corner[0], 9), 0.0, 0.0)
    visual, collision = (s.transformed(np.eye(3), centre) for s in (visual, _prism(square, half)))
    return (PartDescription("tail", visual, p.body, (collision,)),)


MASS_BOUNDS = (0.2, 1.2)
"""Least and greatest mass, kg, that the arm can move without effort."""


def build(params: WrenchParams, name: str) -> ModelDescription:
    """Returns the wrench as a model of one link, `wrench`, in the frame T."""
    behind = -(params.back + THROAT) / 2  # on the faces of the head, behind the throat
    half = params.thickness
    points = {
        "jaw": (0.0, 0.0, 0.0),
        "left": (0.0, -PAD, 0.0),
        "right": (0.0, PAD, 0.0),
        "upper": (behind, 0.0, -half),
        "lower": (behind, 0.0, half),
    }
    placed = {key: params.R_TJ @ point + params.p_TJ for key, point in points.items()}
    parts = _grip(params), _shank(params), *_head(params), *_tail(params)
    return rigid_model("tool", "wrench", name, parts, placed)


CATALOGUE = {
    "open_end": WrenchParams(grip=CHROME, body=CHROME),
    "angled": WrenchParams(
        butt_x=-0.115, jaw_x=0.185, jaw_deg=15, outer=0.038, shift=0.002, tail="fork",
        grip=CHROME, body=CHROME,
    ),
    "combination": WrenchParams(
        butt_x=-0.085, jaw_x=0.160, jaw_deg=-15, grip_z=0.0055, roundness=1.0, tail="ring",
        grip=BLACK_OXIDE, body=BLACK_OXIDE,
    ),
    "cranked": WrenchParams(
        jaw_x=0.190, drop=0.022, grip_z=0.0075, neck_y=0.0125, thickness=0.0075,
        grip=BLACK_OXIDE, body=BLACK_OXIDE,
    ),
    "flare": WrenchParams(
        butt_x=-0.090, jaw_x=0.165, lips=True, reach=LIP_ROOT, outer=0.037, shift=0.0,
        neck_y=0.010, grip=CHROME, body=CHROME,
    ),
    "adjustable": WrenchParams(
        butt_x=-0.105, jaw_x=0.180, sliding=0.014, reach=0.019, thickness=0.008, outer=0.039,
        shift=0.004, grip_z=0.007, neck_y=0.013, neck_z=0.006,
        grip=HARD_STEEL.coloured(0.42, 0.43, 0.46), body=CHROME,
    ),
    "brass": WrenchParams(
        butt_x=-0.080, jaw_x=0.150, facets=3, outer=0.040, shift=0.003, roundness=0.2,
        thickness=0.008, grip_z=0.0065, grip=HARD_BRASS, body=HARD_BRASS,
    ),
    "sleeved": WrenchParams(
        butt_x=-0.110, jaw_x=0.200, grip_z=0.012, roundness=1.0, shank_x=0.065, neck_y=0.010,
        neck_z=0.0055, grip=NYLON, body=CHROME,
    ),
    "rod": WrenchParams(
        butt_x=-0.095, jaw_x=0.175, jaw_deg=10, drop=0.012, grip_z=0.015, roundness=1.0,
        shank_x=0.060, neck_y=0.009, neck_z=0.006, facets=6, grip=BLUE_PLASTIC, body=BLACK_OXIDE,
    ),
}  # fmt: skip


def draw(rng: np.random.Generator) -> WrenchParams:
    """Returns the parameters of a random plausible wrench."""
    body = (CHROME, BLACK_OXIDE, HARD_BRASS)[rng.integers(3)]
    sleeved = rng.random() < 0.4
    style = ("open", "lips", "sliding")[rng.integers(3)]
    thickness = rng.uniform(0.0065, 0.008)
    return WrenchParams(
        butt_x=rng.uniform(-0.12, -0.075),
        jaw_x=rng.uniform(0.150, 0.200),
        jaw_deg=rng.uniform(-15, 15),
        drop=(0.0, rng.uniform(0.010, 0.025))[rng.integers(2)],
        thickness=thickness,
        reach=LIP_ROOT if style == "lips" else rng.uniform(0.014, 0.019),
        lips=style == "lips",
        outer=rng.uniform(0.037, 0.040),
        shift=0.0 if style == "lips" else rng.uniform(0.001, 0.004),
        facets=rng.integers(3, 13).item(),
        sliding=rng.uniform(0.011, 0.015) if style == "sliding" else 0.0,
        grip_z=rng.uniform(0.010, 0.014) if sleeved else rng.uniform(0.0055, 0.008),
        roundness=rng.uniform(0.2, 1.0),
        shank_x=rng.uniform(0.045, 0.065),
        neck_y=rng.uniform(0.009, 0.0125),
        neck_z=thickness * rng.uniform(0.65, 0.85),
        tail="plain" if style == "lips" else TAILS[rng.integers(len(TAILS))],
        grip=(NYLON, BLUE_PLASTIC)[rng.integers(2)] if sleeved else body,
        body=body,
    )


ALONG_PADS = (-0.008, -0.004, 0.0, 0.004, 0.008)
"""Distances from `jaw` along the pads at which the opening is measured, m."""


def opening(geometry: ModelGeometry) -> Values:
    """Returns the least width between the pads near `jaw`, m."""
    return {"": min(sum(sides) for sides in _gaps(geometry))}


def off_centre(geometry: ModelGeometry) -> Values:
    """Returns the distance of `jaw` from the middle between the pads, m."""
    back, ahead = _gaps(geometry)[ALONG_PADS.index(0.0)]
    return {"jaw": abs(back - ahead) / 2}


def _gaps(geometry: ModelGeometry) -> list[tuple[float, float]]:
    across_pads = geometry.axis("right", "left")
    along = np.cross(across_pads, perpendicular(geometry.axis("lower", "upper"), across_pads))
    jaw = geometry.p_M["jaw"]
    return [gap(geometry, jaw + x * along, across_pads) for x in ALONG_PADS]


RULES = (
    Rule(
        "opening between the pads",
        opening,
        "mm",
        low=FLATS + DEVIATION,
        high=0.044,
        reason="the widest nut of the package has to fit in; a hexagon slips through a wider jaw",
        remedy="Else import its mesh with more or finer convex pieces (--pieces, --concavity), so "
        "that none of them fills the jaw.",
        scales=True,
    ),
    Rule(
        "distance from the middle between the pads",
        off_centre,
        "mm",
        high=1e-3,
        reason="the nut is to touch neither pad as the jaw goes over it",
        remedy="Move the keypoint `jaw` to the middle between the pads.",
    ),
    right_angles(
        ("lower", "upper"),
        ("right", "left"),
        reason="the expert aligns both axes with those of the nut, within 0.3 degrees each",
        remedy="Place `left` and `right` on the pads opposite each other, `upper` straight above "
        "`lower`.",
    ),
)


FAMILY = Family(
    kind="tool",
    keypoints={
        "left": Meaning("the middle of the left pad, seen from the palm"),
        "right": Meaning("the pad opposite to it", across("left")),
        "jaw": Meaning("the middle of the mouth, where the nut is", middle("left", "right")),
        "upper": Meaning("on the flat of the head that faces the palm"),
        "lower": Meaning("on the flat that faces the nut's base", behind("upper")),
    },
    catalogue=CATALOGUE,
    build=build,
    draw=draw,
    mass_bounds=MASS_BOUNDS,
    rules=RULES,
    alignment=HandAlignment(
        "jaw", ("upper", "lower"), ("jaw", "left", "right"), tilt_deg=80, turn_deg=150
    ),
    working_parts=("head", "slide"),
)
