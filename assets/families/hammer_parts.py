"""The measures of a hammer, and its parts as solids.

In the tool frame T the handle is the x axis and the head's axis is parallel to z: the striking
face looks along +z, and the peen (a ball, a wedge, a claw or a second face) along -z.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from ..materials import ASH, FORGED_STEEL, STEEL, Material
from ..model import Part
from ..solids import (
    Section,
    Solid,
    Station,
    circle,
    fillet,
    frusta,
    join,
    loft,
    rectangle,
    ring,
    stack,
)
from .grip import GRIP, GRIP_END, along_x
from .rules import require

ROUND, OCTAGONAL = 6, 2
BEVEL = 0.0025
SWELL = 0.006
"""From the butt's end to where it is thickest."""
CLAW_SWEEP = math.radians(62)


@dataclass(frozen=True)
class HammerParams:
    """A hammer's measures in metres; half widths are from an axis to the surface.

    Attributes:
        butt_x: x of the handle's free end; negative.
        butt: Half width of the swelling at that end.
        neck_y, neck_z: Half widths of the handle where it enters the head.
        handle: Material of the handle.
        head_x: x of the head's axis.
        face_z: Height of the striking face above the handle's axis.
        face: Half width of the head where the face is; the face itself is a bevel narrower.
        face_length: Length of the cylinder or prism behind the face.
        waist: Half width between that and the cheek.
        cheek_x, cheek_y, cheek_z: Half widths of the block around the handle's end.
        corner_points: `ROUND` or `OCTAGONAL`.
        roundness: Of the face: 1 gives a circle or regular octagon, less a rounded square.
        peen: What is opposite the face, `ball`, `cross`, `claw` or `face`.
        peen_z: How far it reaches behind the handle's axis; a `face` mirrors the first instead.
        peen_size: Radius of a ball, half thickness of an edge, or half the width of a claw.
        body, striker: Materials of the head and of its faces.
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
    peen: str
    peen_z: float = 0.0
    peen_size: float = 0.0
    corner_points: int = ROUND
    roundness: float = 1.0
    handle: Material = ASH
    body: Material = FORGED_STEEL
    striker: Material = STEEL

    def __post_init__(self) -> None:
        if self.peen not in _PEENS:
            raise ValueError(f"there is no peen {self.peen!r}; known: {', '.join(_PEENS)}")
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
        require("hammer", self, rules)

    def square(self, half: float) -> Section:
        """A section of the head in the shape of its face."""
        return Section(half, half, self.roundness * half)

    @property
    def rim(self) -> Section:
        """The outline of the striking face."""
        return self.square(self.face - BEVEL)

    @property
    def cheek(self) -> Section:
        """The block around the handle's end, whose sides are flat as far as the handle is wide."""
        return Section(self.cheek_x, self.cheek_y, min(self.cheek_y - self.neck_y, self.cheek_x))


def hammer_parts(params: HammerParams) -> tuple[tuple[Part, ...], float]:
    """All parts, in T; and the z at which the head's axis leaves the head opposite the face."""
    root, peen, side_z = _PEENS[params.peen](params)
    return (_handle(params), _body(params, root), _striker(params), *peen), side_z


def _handle(p: HammerParams) -> Part:
    """From the butt to the cheek, plus the wedged end that shows on the far side of the eye."""
    x_eye, x_far = p.head_x - p.cheek_x, p.head_x + p.cheek_x
    grip, neck = circle(GRIP), Section(p.neck_z, p.neck_y, 0.8 * min(p.neck_y, p.neck_z))
    swell, hold = (p.butt_x + SWELL, circle(p.butt)), (GRIP_END, grip)
    throat = (hold[0] + 0.6 * (x_eye - hold[0]), neck.towards(grip, -0.2))
    profile = [(p.butt_x, circle(0.8 * p.butt)), (p.butt_x + 0.002, circle(0.93 * p.butt)), swell]
    profile += [*fillet(swell, (-GRIP_END, grip)), hold, *fillet(hold, throat)]
    profile += fillet(throat, (x_eye, neck))
    stub = [(x_far, neck), (x_far + 0.002, neck.towards(throat[1], 0.5))]
    seen = [along_x(stack(stations, 5)) for stations in (profile, stub)]
    (rod,) = frusta([(p.butt_x, grip), (x_eye, neck)], OCTAGONAL)
    felt = along_x(rod)
    return Part("handle", join(*seen), p.handle, (felt,))


def _head(p: HammerParams, stations: Iterable[Station], corner_points: int = 0) -> Solid:
    return stack(stations, corner_points or p.corner_points, (p.head_x, 0.0))


def _felt(p: HammerParams, stations: Iterable[Station], corner_points: int) -> tuple[Solid, ...]:
    return frusta(stations, corner_points, (p.head_x, 0.0))


def _above_cheek(p: HammerParams) -> list[Station]:
    """The head from the cheek up to the striking part, waisted; without the cheek itself."""
    top = p.face_z - p.face_length
    waist = ((p.cheek_z + top) / 2, p.square(p.waist))
    return [*fillet((p.cheek_z, p.cheek), waist), *fillet(waist, (top, p.square(p.face)))]


def _body(p: HammerParams, root: list[Station]) -> Part:
    """The forged middle of the head: the peen's root, the cheek, and the waist."""
    block = [(-p.cheek_z, p.cheek), (p.cheek_z, p.cheek)]
    cheek, waist = rectangle(p.cheek_x, p.cheek_y), rectangle(p.waist, p.waist)
    felt = _felt(p, [(-p.cheek_z, cheek), (p.face_z - p.face_length, waist)], 1)
    # With two faces the striker's prism is felt from face to face.
    return Part(
        "body",
        _head(p, [*root, *block, *_above_cheek(p)]),
        p.body,
        () if p.peen == "face" else felt,
    )


def _striker(p: HammerParams) -> Part:
    """The part that ends in the striking face; where there are two faces, both."""
    start, face, rim = p.face_z - p.face_length, p.square(p.face), p.rim
    stations = [(start, face), (p.face_z - BEVEL, face), (p.face_z, rim)]
    seen = [_head(p, stations)]
    if p.peen == "face":
        seen.append(_head(p, _mirrored(stations)))
        start = -p.face_z
    # The flat of the face, carried back unchanged: what is felt there is what is seen.
    felt = _felt(p, [(start, rim), (p.face_z, rim)], min(p.corner_points, OCTAGONAL))
    return Part("striker", join(*seen), p.striker, felt)


def _mirrored(stations: list[Station]) -> list[Station]:
    return [(-z, section) for z, section in reversed(stations)]


# Each kind of peen: the stations that it adds to the body, from the bottom up; its own part, if it
# has one; and the z at which the head's axis leaves the metal.
_Peen = tuple[list[Station], tuple[Part, ...], float]


def _second_face(p: HammerParams) -> _Peen:
    return _mirrored(_above_cheek(p)), (), -p.face_z


def _ball(p: HammerParams) -> _Peen:
    centre, waist = p.peen_size - p.peen_z, circle(p.waist)
    widest = math.pi - math.asin(p.waist / p.peen_size)
    angles = np.linspace(0, widest, 10)[1:]
    ball: list[Station] = [(-p.peen_z, None)]
    for angle in angles:
        height, radius = -math.cos(angle) * p.peen_size, math.sin(angle) * p.peen_size
        ball.append((centre + height, circle(radius)))
    root = [(ball[-1][0], waist), *fillet((ball[-1][0], waist), (-p.cheek_z, p.cheek))[:-1]]
    felt = [(-p.peen_z, circle(0.4 * p.peen_size)), (centre, circle(p.peen_size))]
    part = Part("peen", _head(p, ball, ROUND), p.striker, _felt(p, felt, OCTAGONAL))
    return root, (part,), -p.peen_z


def _cross(p: HammerParams) -> _Peen:
    edge = Section(p.peen_size, p.cheek_y, 0.9 * p.peen_size)
    seen = [(-p.peen_z, edge), *fillet((-p.peen_z, edge), (-p.cheek_z, p.cheek))]
    ends = [(-p.peen_z, rectangle(p.peen_size, p.cheek_y))]
    ends.append((-p.cheek_z, rectangle(p.cheek_x, p.cheek_y)))
    return [], (Part("peen", _head(p, seen), p.striker, _felt(p, ends, 1)),), -p.peen_z


def _claw(p: HammerParams) -> _Peen:
    """Two prongs that curve back over the handle and thin out; the axis leaves at their crotch."""
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
    felt = loft([ring(tip, -p.peen_z, 1, (tip_x, 0)), ring(root, -p.cheek_z, 1, (x, 0))])
    return [], (Part("peen", join(*prongs), p.body, (felt,)),), -p.cheek_z


_PEENS: dict[str, Callable[[HammerParams], _Peen]] = {
    "ball": _ball,
    "cross": _cross,
    "claw": _claw,
    "face": _second_face,
}

PEENS = tuple(_PEENS)
