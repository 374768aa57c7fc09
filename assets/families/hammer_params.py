"""The parameters of a hammer.

In the tool frame T the handle is the x axis, and the head's axis is parallel to z: the striking
face points along +z, and the peen (a ball, a wedge, a claw or a second face) along -z.
"""

import typing
from dataclasses import dataclass
from typing import Literal

from fleet_tools.assets.families.grip import GRIP_END
from fleet_tools.assets.families.rules import check_rules
from fleet_tools.assets.materials import ASH, FORGED_STEEL, STEEL, Material
from fleet_tools.assets.solids import Section
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
        check_rules("hammer", self, rules)

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
