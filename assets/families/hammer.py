"""Hammers: a head with a striking face, across the end of a handle.

In the tool frame T the handle is the x axis, and the head's axis is parallel to z. The striking
face points along +z, and the peen (a ball, a wedge, a claw or a second face) along -z.
"""

import math
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fleet_tools.assets.families import Family, HandAlignment, Meaning, behind
from fleet_tools.assets.model_description import (
    ASH,
    BEECH,
    BRASS,
    FIBREGLASS,
    FORGED_STEEL,
    HICKORY,
    NYLON,
    RUBBER,
    STEEL,
    Material,
    ModelDescription,
    PartDescription,
    rigid_model,
)
from fleet_tools.assets.model_geometry import ModelGeometry
from fleet_tools.assets.parametric import GRIP, GRIP_END, along_x
from fleet_tools.assets.rules import Rule, Values, protrusion, ring
from fleet_tools.assets.solids import (
    Section,
    SectionStation,
    Solid,
    Station,
    circle,
    fillet,
    frusta,
    joined,
    loft,
    rectangle,
    section_loft,
    section_ring,
)

PeenName = Literal["ball", "cross", "claw", "face"]
PEENS: tuple[PeenName, ...] = typing.get_args(PeenName)

ROUND, OCTAGONAL = 6, 2
"""Corner points of the head's sections."""

BEVEL = 0.0025
"""Width of the bevel around the striking face, m."""

SWELL = 0.006
"""Distance from the butt's end to its thickest section, m."""


@dataclass(frozen=True)
class HammerParams:
    """The parameters of a hammer: lengths in m, half widths from an axis to the surface.

    Attributes:
        butt_x: x of the handle's free end; negative.
        butt: Half width of the swelling at the free end.
        neck_y, neck_z: Half widths of the handle where it enters the head.
        handle: Material of the handle.
        head_x: x of the head's axis.
        face_z: Height of the striking face above the handle's axis.
        face: Half width of the striking cylinder or prism; the face itself is narrower by a bevel.
        face_length: Length of the striking cylinder or prism.
        waist: Half width of the head between the striking part and the cheek.
        cheek_x, cheek_y, cheek_z: Half widths of the cheek, the block around the handle's end.
        corner_points: `ROUND` or `OCTAGONAL`.
        roundness: Roundness of the face: 1 gives a circle or a regular octagon, less a rounded
            square.
        peen: Shape of the head opposite the face.
        peen_z: Distance by which the peen reaches beyond the handle's axis; not used by a `face`,
            which mirrors the first one.
        peen_size: Radius of a ball, half the thickness of a cross peen's edge, or half the width of
            a claw.
        body: Material of the head.
        striker: Material of its faces, and of a ball or cross peen.
    """

    butt_x: float
    butt: float
    neck_y: float
    neck_z: float
    head_x: float
    face_z: float
    face: float
    face_length: float
    waist: float
    cheek_x: float
    cheek_y: float
    cheek_z: float
    peen: PeenName
    peen_z: float = 0.0
    peen_size: float = 0.0
    corner_points: int = ROUND
    roundness: float = 1.0
    handle: Material = ASH
    body: Material = FORGED_STEEL
    striker: Material = STEEL

    def square(self, half: float) -> Section:
        """Returns a section of the head in the shape of its face, with a given half width."""
        return Section(half, half, self.roundness * half)

    @property
    def rim(self) -> Section:
        """The striking face."""
        return self.square(self.face - BEVEL)

    @property
    def cheek(self) -> Section:
        """The section of the cheek, whose sides are flat over the width of the handle."""
        return Section(self.cheek_x, self.cheek_y, min(self.cheek_y - self.neck_y, self.cheek_x))


CLAW_SWEEP = math.radians(62)
"""Angle of the arc along which the claw's prongs curve, rad."""


def _handle(p: HammerParams) -> PartDescription:
    """Makes the handle from the butt to the cheek, and its end on the far side of the eye."""
    x_eye, x_far = p.head_x - p.cheek_x, p.head_x + p.cheek_x
    grip, neck = circle(GRIP), Section(p.neck_z, p.neck_y, 0.8 * min(p.neck_y, p.neck_z))
    swell, hold = (p.butt_x + SWELL, circle(p.butt)), (GRIP_END, grip)
    throat = (hold[0] + 0.6 * (x_eye - hold[0]), neck.interpolated(grip, -0.2))
    profile = [(p.butt_x, circle(0.8 * p.butt)), (p.butt_x + 0.002, circle(0.93 * p.butt)), swell]
    profile += [*fillet(swell, (-GRIP_END, grip)), hold, *fillet(hold, throat)]
    profile += fillet(throat, (x_eye, neck))
    stub = [(x_far, neck), (x_far + 0.002, neck.interpolated(throat[1], 0.5))]
    visual = [along_x(section_loft(stations, 5)) for stations in (profile, stub)]
    (rod,) = frusta([(p.butt_x, grip), (x_eye, neck)], OCTAGONAL)
    collision = along_x(rod)
    return PartDescription("handle", joined(*visual), p.handle, (collision,))


def _head(p: HammerParams, stations: Iterable[Station], corner_points: int = 0) -> Solid:
    return section_loft(stations, corner_points or p.corner_points, (p.head_x, 0.0))


def _collision(
    p: HammerParams, stations: Iterable[Station], corner_points: int
) -> tuple[Solid, ...]:
    return frusta(stations, corner_points, (p.head_x, 0.0))


def _above_cheek(p: HammerParams) -> list[SectionStation]:
    """Returns the waisted head between the cheek and the striking part."""
    top = p.face_z - p.face_length
    waist = ((p.cheek_z + top) / 2, p.square(p.waist))
    return [*fillet((p.cheek_z, p.cheek), waist), *fillet(waist, (top, p.square(p.face)))]


def _body(p: HammerParams, root: Sequence[Station]) -> PartDescription:
    """Makes the forged middle of the head: the peen's root, the cheek, and the waist."""
    block = [(-p.cheek_z, p.cheek), (p.cheek_z, p.cheek)]
    cheek, waist = rectangle(p.cheek_x, p.cheek_y), rectangle(p.waist, p.waist)
    collision = _collision(p, [(-p.cheek_z, cheek), (p.face_z - p.face_length, waist)], 1)
    # With two faces, the collision prism of the striker extends from face to face.
    return PartDescription(
        "body",
        _head(p, [*root, *block, *_above_cheek(p)]),
        p.body,
        () if p.peen == "face" else collision,
    )


def _striker(p: HammerParams) -> PartDescription:
    """Makes the part that ends in the striking face, or both parts where there are two faces."""
    start, face, rim = p.face_z - p.face_length, p.square(p.face), p.rim
    stations = [(start, face), (p.face_z - BEVEL, face), (p.face_z, rim)]
    visual = [_head(p, stations)]
    if p.peen == "face":
        visual.append(_head(p, _mirrored(stations)))
        start = -p.face_z
    # A prism over the flat of the face: there, collision and visual geometry coincide.
    collision = _collision(p, [(start, rim), (p.face_z, rim)], min(p.corner_points, OCTAGONAL))
    return PartDescription("striker", joined(*visual), p.striker, collision)


def _mirrored(stations: Sequence[SectionStation]) -> list[SectionStation]:
    return [(-z, section) for z, section in reversed(stations)]


@dataclass(frozen=True)
class _Peen:
    """The side of the head opposite the face.

    Attributes:
        root: Stations that it adds to the body, from the bottom up.
        parts: Its own part, if it has one.
        end_z: z at which the head's axis leaves the head, m.
    """

    root: Sequence[Station]
    parts: tuple[PartDescription, ...]
    end_z: float


def _second_face(p: HammerParams) -> _Peen:
    return _Peen(_mirrored(_above_cheek(p)), (), -p.face_z)


def _ball(p: HammerParams) -> _Peen:
    centre, waist = p.peen_size - p.peen_z, circle(p.waist)
    widest = math.pi - math.asin(p.waist / p.peen_size)
    angles = np.linspace(0, widest, 10)[1:]
    ball: list[Station] = [(-p.peen_z, None)]
    for angle in angles:
        height, radius = -math.cos(angle) * p.peen_size, math.sin(angle) * p.peen_size
        ball.append((centre + height, circle(radius)))
    root = [(ball[-1][0], waist), *fillet((ball[-1][0], waist), (-p.cheek_z, p.cheek))[:-1]]
    collision = [(-p.peen_z, circle(0.4 * p.peen_size)), (centre, circle(p.peen_size))]
    part = PartDescription(
        "peen", _head(p, ball, ROUND), p.striker, _collision(p, collision, OCTAGONAL)
    )
    return _Peen(root, (part,), -p.peen_z)


def _cross(p: HammerParams) -> _Peen:
    edge = Section(p.peen_size, p.cheek_y, 0.9 * p.peen_size)
    visual = [(-p.peen_z, edge), *fillet((-p.peen_z, edge), (-p.cheek_z, p.cheek))]
    ends = [(-p.peen_z, rectangle(p.peen_size, p.cheek_y))]
    ends.append((-p.cheek_z, rectangle(p.cheek_x, p.cheek_y)))
    part = PartDescription("peen", _head(p, visual), p.striker, _collision(p, ends, 1))
    return _Peen([], (part,), -p.peen_z)


def _claw(p: HammerParams) -> _Peen:
    """Makes two prongs that curve back over the handle and become thinner.

    The head's axis leaves the head between their roots.
    """
    bend = (p.peen_z - p.cheek_z) / math.sin(CLAW_SWEEP)  # radius of the prongs' middle line
    prongs = []
    for side in (-1, 1):
        rings = []
        for t in np.linspace(0, 1, 9):
            angle = t * CLAW_SWEEP
            radial = np.array([math.cos(angle), 0, -math.sin(angle)])
            middle = np.array([p.head_x - bend, 0, -p.cheek_z]) + bend * radial
            outer, gap = p.cheek_y + t * (p.peen_size - p.cheek_y), 0.0003 + 0.35 * t * p.peen_size
            thickness = p.cheek_x + t**0.7 * (0.0015 - p.cheek_x)
            section = Section(thickness, (outer - gap) / 2, 0.001).outline(2)
            across = section[:, 1:] + side * (outer + gap) / 2
            rings.append(middle + section[:, :1] * radial + across * [0.0, 1.0, 0.0])
        prongs.append(loft(rings))
    root, tip = rectangle(p.cheek_x, p.cheek_y), rectangle(0.003, p.peen_size)
    x, tip_x = (round(x, 9) for x in (p.head_x, p.head_x - bend * (1 - math.cos(CLAW_SWEEP))))
    collision = loft(
        [section_ring(tip, -p.peen_z, 1, (tip_x, 0)), section_ring(root, -p.cheek_z, 1, (x, 0))]
    )
    part = PartDescription("peen", joined(*prongs), p.body, (collision,))
    return _Peen([], (part,), -p.cheek_z)


_PEENS: Mapping[PeenName, Callable[[HammerParams], _Peen]] = {
    "ball": _ball,
    "cross": _cross,
    "claw": _claw,
    "face": _second_face,
}


MASS_BOUNDS = (0.25, 0.9)
"""Least and greatest mass, kg: enough to drive a nail, and not too much for the arm to swing."""


def build(params: HammerParams, name: str) -> ModelDescription:
    """Returns the hammer as a model of one link, `hammer`, in the frame T."""
    peen = _PEENS[params.peen](params)
    parts = (_handle(params), _body(params, peen.root), _striker(params), *peen.parts)
    points = {
        "head": (params.head_x, 0.0, params.face_z),
        "tail": (params.butt_x, 0.0, 0.0),
        "side": (params.head_x, 0.0, peen.end_z),
    }
    return rigid_model("tool", "hammer", name, parts, points)


CATALOGUE = {
    "claw": HammerParams(
        butt_x=-0.095, butt=0.0175, neck_y=0.009, neck_z=0.012,
        head_x=0.165, face_z=0.052, face=0.0145, face_length=0.012, waist=0.0105,
        cheek_x=0.013, cheek_y=0.0125, cheek_z=0.015,
        peen="claw", peen_z=0.062, peen_size=0.016, handle=HICKORY,
    ),
    "ball_peen": HammerParams(
        butt_x=-0.085, butt=0.017, neck_y=0.0085, neck_z=0.0115,
        head_x=0.170, face_z=0.045, face=0.015, face_length=0.012, waist=0.011,
        cheek_x=0.0135, cheek_y=0.013, cheek_z=0.014,
        peen="ball", peen_z=0.054, peen_size=0.0145,
    ),
    "cross_peen": HammerParams(
        butt_x=-0.080, butt=0.0165, neck_y=0.0085, neck_z=0.0115,
        head_x=0.155, face_z=0.042, face=0.0140, face_length=0.015, waist=0.0125,
        cheek_x=0.0130, cheek_y=0.0135, cheek_z=0.014,
        peen="cross", peen_z=0.055, peen_size=0.002,
        corner_points=OCTAGONAL, roundness=0.6,
    ),
    "club": HammerParams(
        butt_x=-0.060, butt=0.0165, neck_y=0.0105, neck_z=0.0125,
        head_x=0.130, face_z=0.036, face=0.0180, face_length=0.014, waist=0.0165,
        cheek_x=0.0160, cheek_y=0.0170, cheek_z=0.013,
        peen="face", corner_points=OCTAGONAL, roundness=0.5, handle=FIBREGLASS,
    ),
    "mallet": HammerParams(
        butt_x=-0.090, butt=0.0175, neck_y=0.0110, neck_z=0.0130,
        head_x=0.185, face_z=0.050, face=0.0290, face_length=0.030, waist=0.0280,
        cheek_x=0.0250, cheek_y=0.0285, cheek_z=0.015,
        peen="face", handle=BEECH, body=RUBBER, striker=RUBBER,
    ),
    "joiner": HammerParams(
        butt_x=-0.085, butt=0.0160, neck_y=0.0125, neck_z=0.0140,
        head_x=0.175, face_z=0.055, face=0.0300, face_length=0.020, waist=0.0300,
        cheek_x=0.0300, cheek_y=0.0300, cheek_z=0.020,
        peen="face", corner_points=OCTAGONAL, roundness=0.12,
        handle=BEECH, body=BEECH.coloured(0.70, 0.46, 0.28), striker=BEECH,
    ),
    "brass": HammerParams(
        butt_x=-0.070, butt=0.0160, neck_y=0.0085, neck_z=0.0105,
        head_x=0.145, face_z=0.034, face=0.0150, face_length=0.014, waist=0.0135,
        cheek_x=0.0140, cheek_y=0.0145, cheek_z=0.012,
        peen="face", handle=HICKORY, body=BRASS, striker=BRASS,
    ),
    "soft_face": HammerParams(
        butt_x=-0.080, butt=0.0170, neck_y=0.0090, neck_z=0.0115,
        head_x=0.160, face_z=0.048, face=0.0190, face_length=0.020, waist=0.0140,
        cheek_x=0.0150, cheek_y=0.0145, cheek_z=0.014,
        peen="face", body=STEEL, striker=NYLON,
    ),
}  # fmt: skip


def draw(rng: np.random.Generator) -> HammerParams:
    """Returns the parameters of a random plausible hammer."""
    face = rng.uniform(0.013, 0.019)
    cheek_x, cheek_y = face * rng.uniform(0.85, 0.95), face * rng.uniform(0.88, 0.98)
    cheek_z = rng.uniform(0.012, 0.016)
    face_length = rng.uniform(0.009, 0.015)
    peen = PEENS[rng.integers(len(PEENS))]
    sizes = {
        "ball": face * rng.uniform(0.9, 1.0),
        "cross": rng.uniform(0.0015, 0.003),
        "claw": face * rng.uniform(1.0, 1.2),
        "face": 0.0,
    }
    corner_points = (ROUND, OCTAGONAL)[rng.integers(2)]
    return HammerParams(
        butt_x=rng.uniform(-0.095, -0.06),
        butt=rng.uniform(0.016, 0.018),
        neck_y=cheek_y * rng.uniform(0.6, 0.7),
        neck_z=cheek_z * rng.uniform(0.75, 0.85),
        head_x=rng.uniform(0.135, 0.20),
        face_z=cheek_z + face_length + rng.uniform(0.010, 0.018),
        face=face,
        face_length=face_length,
        waist=face * rng.uniform(0.7, 0.8),
        cheek_x=cheek_x,
        cheek_y=cheek_y,
        cheek_z=cheek_z,
        peen=peen,
        peen_z=rng.uniform(0.054, 0.065),
        peen_size=sizes[peen],
        corner_points=corner_points,
        roundness=1.0 if corner_points == ROUND else rng.uniform(0.4, 1.0),
        handle=(ASH, HICKORY, BEECH, FIBREGLASS)[rng.integers(4)],
    )


FACE_RADIUS = 0.005
"""Radius about `head` within which the face is measured, m."""


def face_offset(geometry: ModelGeometry) -> Values:
    """Returns the distance of `head` from the face along the blow, m."""
    axis = geometry.axis("side", "head")
    return {"head": abs(protrusion(geometry, geometry.p_M["head"], axis, reach=0.05))}


def face_relief(geometry: ModelGeometry) -> Values:
    """Returns by how much the face rises or falls around `head`, m."""
    axis, head = geometry.axis("side", "head"), geometry.p_M["head"]
    points = [head, *(head + FACE_RADIUS * direction for direction in ring(axis, 8))]
    heights = np.array([protrusion(geometry, point, axis, reach=0.05) for point in points])
    return {"": math.nan if np.isnan(heights).any() else float(np.ptp(heights))}


RULES = (
    Rule(
        "distance from the face along the blow",
        face_offset,
        "mm",
        high=0.010,
        reason="success needs `head` within 20 mm of the nail's head at the end of the blow; the "
        "expert failed in every scene with 20 mm, in none with 10 mm",
        remedy="Move the keypoint `head` onto the face that strikes.",
    ),
    Rule(
        "relief of the face within 5 mm of head",
        face_relief,
        "mm",
        high=0.002,
        reason="the nail is to meet a flat face, wherever the grasp's tolerance leaves it",
        remedy="Move `head` to the middle of the face, and `side` straight behind it, so that the "
        "axis from `side` to `head` is the direction of the blow; or make the face flatter.",
    ),
)


FAMILY = Family(
    kind="tool",
    keypoints={
        "head": Meaning("the middle of the face that strikes"),
        "side": Meaning("the other side of the head: side to head is the blow", behind("head")),
        "tail": Meaning("the end of the handle"),
    },
    catalogue=CATALOGUE,
    build=build,
    draw=draw,
    mass_bounds=MASS_BOUNDS,
    rules=RULES,
    alignment=HandAlignment("head", ("side", "head"), ("head", "side"), tilt_deg=110),
    working_parts=("striker",),
)
