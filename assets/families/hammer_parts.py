"""The parts of a hammer as solids; for their frame see `hammer_params`."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fleet_tools.assets.families.grip import GRIP, GRIP_END, along_x
from fleet_tools.assets.families.hammer_params import (
    BEVEL,
    OCTAGONAL,
    ROUND,
    SWELL,
    HammerParams,
    PeenName,
)
from fleet_tools.assets.model_description import PartDescription
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
