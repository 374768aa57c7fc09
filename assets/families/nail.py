"""Nails and pins, half driven into a wooden block; pressure on the head drives them further.

The block stands on z = 0 of the model frame. The nail's frame has its origin at the block's top, on
the nail's axis; the position of the joint `slide` is the depth to which the nail has been driven
from there. The nail passes through the solid block: bodies that share a joint do not collide in
Drake.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fleet_tools.assets.families import Family, Meaning
from fleet_tools.assets.model_description import (
    BEECH,
    HARD_BRASS,
    HARD_STEEL,
    PINE,
    JointDescription,
    LinkDescription,
    Material,
    ModelDescription,
    PartDescription,
    jointed_model,
)
from fleet_tools.assets.model_geometry import ModelGeometry
from fleet_tools.assets.rules import Rule, Values, protrusion
from fleet_tools.assets.solids import (
    OCTAGONAL,
    ROUND,
    SQUARE,
    Section,
    Station,
    circle,
    frusta,
    section_loft,
)

CrownName = Literal["flat", "rose", "dome"]

CLEARANCE = 0.005
"""Least distance between the head and the block, and between the point and the table, m."""

ADDED_MASS = 0.1
"""Mass of the wood, clamped around the shaft, that moves along with it, kg."""


@dataclass(frozen=True)
class NailParams:
    """The parameters of a nail in its block, lengths in m.

    Attributes:
        block: Half the width of the square block.
        block_height: Height of the block.
        protrusion: Initial height of the top of the head above the block.
        travel: Depth to which the nail can be driven.
        resistance: Force at which the nail gives way, N.
        shaft: Half width of the shaft.
        point: Length of the shaft's tapered point.
        embedded: Initial length of the nail within the block.
        head: Half width of the head.
        head_height: Height of the head, including a dome.
        crown: Upper side of the head: `flat`, `dome` (struck at its apex), or `rose`, the four or
            more facets that forging leaves around a small flat.
        head_corners, shaft_corners: `ROUND`, `OCTAGONAL` or `SQUARE`.
        material: Material of the nail.
    """

    block: float = 0.045
    block_height: float = 0.06
    protrusion: float = 0.048
    travel: float = 0.032
    resistance: float = 40.0
    shaft: float = 0.005
    point: float = 0.008
    embedded: float = 0.015
    head: float = 0.015
    head_height: float = 0.006
    crown: CrownName = "flat"
    head_corners: int = ROUND
    shaft_corners: int = ROUND
    material: Material = HARD_STEEL

    @property
    def gap(self) -> float:
        """Distance between the head's underside and the block at full travel, m."""
        return self.protrusion - self.head_height - self.travel


def build(params: NailParams, name: str) -> ModelDescription:
    """Returns the nail as a model of two links, `block` and `nail`, and the joint `slide`."""
    top = params.block_height
    block = LinkDescription("block", (_block(params),))
    nail = LinkDescription("nail", (_shaft(params), _head(params)), origin=(0.0, 0.0, top))
    points = {"head": (nail, (0.0, 0.0, params.protrusion)), "base": (block, (0.0, 0.0, top))}
    slide = JointDescription(
        name="slide",
        kind="prismatic",
        parent="block",
        child="nail",
        axis=(0.0, 0.0, -1.0),
        limits=(0.0, params.travel),
        resistance=params.resistance,
        inertia=ADDED_MASS,
    )
    return jointed_model("nail", name, (block, nail), slide, points)


def _block(p: NailParams) -> PartDescription:
    def section(inset: float) -> Section:
        return Section(p.block - inset, p.block - inset, 0.003)

    height, bevel = p.block_height, 0.002
    stations = [(0.0, section(0)), (height - bevel, section(0)), (height, section(bevel))]
    collision = [(0.0, section(0)), (height, section(0))]
    return PartDescription("block", section_loft(stations, 2), PINE, frusta(collision, 1))


def _section(half: float, corners: int) -> Section:
    return circle(half) if corners > SQUARE else Section(half, half, 0.0)


def _shaft(p: NailParams) -> PartDescription:
    """Makes the shaft from the point in the wood to the head's underside."""
    full, blunt = _section(p.shaft, p.shaft_corners), _section(0.35 * p.shaft, p.shaft_corners)
    tip, under = -p.embedded, p.protrusion - p.head_height
    visual = [(tip, blunt), (tip + p.point, full), (under, full)]
    collision = frusta([(tip, full), (under, full)], min(p.shaft_corners, OCTAGONAL))
    return PartDescription("shaft", section_loft(visual, p.shaft_corners), p.material, collision)


def _head(p: NailParams) -> PartDescription:
    under = p.protrusion - p.head_height
    visual, collision = (
        [(under + z, section) for z, section in stations]
        for stations in _CROWNS[p.crown](p)  # the tops of both geometries coincide
    )
    pieces = frusta(collision, min(p.head_corners, OCTAGONAL))
    return PartDescription("head", section_loft(visual, p.head_corners), p.material, pieces)


_Crown = tuple[Sequence[Station], Sequence[Station]]
"""Stations of visual and collision geometry above the head's underside."""


def _flat(p: NailParams) -> _Crown:
    bevel = min(0.0015, p.head_height / 3)
    full, rim = (_section(p.head - inset, p.head_corners) for inset in (0.0, bevel))
    h = p.head_height
    return [(0, rim), (bevel, full), (h - bevel, full), (h, rim)], [(0, rim), (h, rim)]


def _rose(p: NailParams) -> _Crown:
    full, flat = _section(p.head, p.head_corners), _section(0.45 * p.head, p.head_corners)
    stations = [(0, full), (0.35 * p.head_height, full), (p.head_height, flat)]
    return stations, stations


def _dome(p: NailParams) -> _Crown:
    rim = 0.2 * p.head_height
    rise = p.head_height - rim

    def cap(steps: int) -> list[Station]:
        angles = [k / steps * math.pi / 2 for k in range(steps)]
        arc = [(rim + rise * math.sin(a), circle(p.head * math.cos(a))) for a in angles]
        return [*arc, (p.head_height, None)]

    # The collision geometry ends in a small flat at the height of the apex; see `frusta`.
    collision = [*cap(2)[:-1], (p.head_height, circle(0.3 * p.head))]
    return [(0, circle(0.92 * p.head)), *cap(8)], collision


_CROWNS: Mapping[CrownName, Callable[[NailParams], _Crown]] = {
    "flat": _flat,
    "rose": _rose,
    "dome": _dome,
}


CATALOGUE = {
    "round_nail": NailParams(),
    "square_spike": NailParams(
        block=0.042, block_height=0.065, protrusion=0.052, travel=0.035, resistance=45.0,
        shaft=0.0055, point=0.016, embedded=0.018, head=0.014, head_height=0.010,
        crown="rose", head_corners=SQUARE, shaft_corners=SQUARE,
        material=HARD_STEEL.coloured(0.24, 0.23, 0.23),
    ),
    "dowel_pin": NailParams(
        block=0.050, block_height=0.055, protrusion=0.055, travel=0.033, resistance=30.0,
        shaft=0.008, point=0.004, embedded=0.012, head=0.0125, head_height=0.014,
        material=BEECH,
    ),
    "mushroom_pin": NailParams(
        block=0.046, block_height=0.070, protrusion=0.051, travel=0.033, resistance=40.0,
        shaft=0.006, embedded=0.015, head=0.019, head_height=0.012,
        crown="dome", material=HARD_BRASS,
    ),
    "clout_nail": NailParams(
        block=0.048, block_height=0.058, protrusion=0.042, travel=0.031, resistance=35.0,
        shaft=0.004, embedded=0.014, head=0.020, head_height=0.0035,
        material=HARD_STEEL.coloured(0.50, 0.53, 0.56),
    ),
    "drift_pin": NailParams(
        block=0.044, block_height=0.068, protrusion=0.050, travel=0.034, resistance=50.0,
        shaft=0.007, point=0.018, embedded=0.020, head=0.013, head_height=0.010,
        crown="rose", head_corners=OCTAGONAL, shaft_corners=OCTAGONAL,
        material=HARD_STEEL.coloured(0.30, 0.36, 0.48),
    ),
}  # fmt: skip


def draw(rng: np.random.Generator) -> NailParams:
    """Returns the parameters of a random plausible nail or pin."""
    crown = sorted(_CROWNS)[rng.integers(len(_CROWNS))]
    corners = ROUND if crown == "dome" else (ROUND, OCTAGONAL, SQUARE)[rng.integers(3)]
    head_height = rng.uniform(0.005, 0.009)
    travel = rng.uniform(0.030, 0.033)
    return NailParams(
        block=rng.uniform(0.040, 0.050),
        block_height=rng.uniform(0.055, 0.070),
        protrusion=head_height + travel + rng.uniform(0.006, 0.009),
        travel=travel,
        resistance=rng.uniform(30.0, 50.0),
        shaft=rng.uniform(0.004, 0.008),
        embedded=rng.uniform(0.012, 0.016),
        head=rng.uniform(0.012, 0.020),
        head_height=head_height,
        crown=crown,
        head_corners=corners,
        shaft_corners=(ROUND, SQUARE)[rng.integers(2)],
        material=(HARD_STEEL, HARD_BRASS, BEECH)[rng.integers(3)],
    )


def head_offset(geometry: ModelGeometry) -> Values:
    """Returns the distance of `head` from the top along base -> head, m."""
    axis = geometry.axis("base", "head")
    return {"head": abs(protrusion(geometry, geometry.p_M["head"], axis))}


def height_above_block(geometry: ModelGeometry) -> Values:
    """Returns the height of `head` above the other links, m."""
    own = geometry.keypoint_links["head"]
    tops = [
        float(piece.vertices[:, 2].max())
        for name, link in geometry.links.items()
        if name != own
        for piece in link.pieces
    ]
    return {"head": float(geometry.p_M["head"][2]) - max(tops) if tops else math.nan}


RULES = (
    Rule(
        "distance from the top",
        head_offset,
        "mm",
        high=0.002,
        reason="the expert brings the hammer's face to `head` within 1 mm",
        remedy="Move the keypoint `head` to the top of the nail.",
    ),
    Rule(
        "height above the block",
        height_above_block,
        "mm",
        low=0.025,
        reason="the task drives the nail 20 mm deep, and the face must not meet the block",
        remedy="Let the nail stand out farther, on a link of its own, beside that of the block.",
    ),
)


FAMILY = Family(
    kind="object",
    keypoints={
        "head": Meaning("the middle of the nail's head"),
        "base": Meaning("where the nail goes into the top of its block"),
    },
    catalogue=CATALOGUE,
    build=build,
    draw=draw,
    rules=RULES,
)
