"""The parameters of a hammer.

In the tool frame T the handle is the x axis, and the head's axis is parallel to z. The striking
face points along +z, and the peen (a ball, a wedge, a claw or a second face) along -z.
"""

import math
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fleet_tools.assets.model_description import ASH, FORGED_STEEL, STEEL, Material, PartDescription
from fleet_tools.assets.parametric import GRIP, GRIP_END, along_x, check_parameters
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
from fleet_tools.errors import UnknownNameError

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

    def __post_init__(self) -> None:
        """Refuses impossible parameters with a ValueError."""
        if self.peen not in PEENS:
            raise UnknownNameError("peen", self.peen, PEENS)
        behind = self.peen_z - self.cheek_z  # room for the peen
        rules = {
            "butt_x <= -GRIP_END - SWELL": self.butt_x <= -GRIP_END - SWELL,
            "neck_y < cheek_y": self.neck_y < self.cheek_y,
            "neck_z <= cheek_z": self.neck_z <= self.cheek_z,
            "BEVEL < face_length": self.face_length > BEVEL,
            "cheek_z < face_z - face_length": self.cheek_z < self.face_z - self.face_length,
            "a ball wider than the waist": self.peen != "ball" or self.waist < self.peen_size,
            "peen_z behind the cheek": {
                "ball": behind > 2 * self.peen_size,
                "claw": behind > self.cheek_x,
                "cross": behind > 0,
                "face": True,
            }[self.peen],
        }
        check_parameters("hammer", self, rules)

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


def hammer_parts(params: HammerParams) -> tuple[tuple[PartDescription, ...], float]:
    """Makes the parts of a hammer.

    Returns:
        The parts, in T.
        The z at which the head's axis leaves the head opposite the face, m.
    """
    peen = _PEENS[params.peen](params)
    parts = (_handle(params), _body(params, peen.root), _striker(params), *peen.parts)
    return parts, peen.end_z


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
