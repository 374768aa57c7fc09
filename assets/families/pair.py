"""Pairs of blocks that stand side by side and touch; a blade parts them.

The model frame has its origin on the table in the middle of the seam, x along the seam and y from
the right block to the left one. Both are free. As their sides lean, they touch at their feet.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ..materials import BEECH, Material
from ..model import Keypoint, Link, Model, Part
from ..solids import Section, frusta, stack
from .rules import require

OCTAGONAL = 2
"""Corner points of a block seen from above. Drake feels the foot in triangles, one contact point
each: a rectangle's two would leave the block to rock about their line for ever."""

GOUDA = Material(1080.0, (0.93, 0.73, 0.26), modulus=1e6, friction=0.4, dissipation=50.0)
RYE_BREAD = Material(620.0, (0.50, 0.31, 0.16), modulus=1e6, friction=0.5, dissipation=50.0)
TOFU = Material(1030.0, (0.93, 0.90, 0.82), modulus=1e6, friction=0.3, dissipation=50.0)
SOAP = Material(1020.0, (0.62, 0.76, 0.64), modulus=1e6, friction=0.3, dissipation=50.0)
CLAY = Material(1850.0, (0.66, 0.32, 0.22), modulus=1e7, friction=0.5, dissipation=50.0)
WOOD = replace(BEECH, modulus=1e7, dissipation=50.0)


@dataclass(frozen=True)
class PairParams:
    """Measures in metres, at the blocks' feet.

    Attributes:
        length: Of both blocks along the seam.
        left, right: Widths of the blocks across it.
        height: Of both blocks.
        draft_deg: By how much all sides lean inwards, as those of what comes from a mould.
        chamfer: How much is cut off the upright edges.
        bevel: How much the upper edges are rounded, for the eye alone.
        material: Of both blocks.
    """

    length: float
    left: float
    right: float
    height: float
    draft_deg: float = 1.0
    chamfer: float = 0.002
    bevel: float = 0.001
    material: Material = WOOD

    def __post_init__(self) -> None:
        narrow, lean = min(self.left, self.right), math.tan(math.radians(self.draft_deg))
        rules = {
            "no block higher than it is wide": self.height <= narrow,
            "0 < draft_deg <= 5": 0 < self.draft_deg <= 5,
            "0 < bevel < height / 3": 0 < self.bevel < self.height / 3,
            "chamfer >= 0.001": self.chamfer >= 0.001,
            "some of each side left at the top": (
                2 * (self.chamfer + self.bevel + lean * self.height) < min(narrow, self.length)
            ),
        }
        require("pair", self, rules)


def build(params: PairParams, name: str) -> Model:
    """The pair as a model of two free links, `left` and `right`, each with its foot at z = 0."""
    links, points = [], {}
    for link, width, side in (("left", params.left, 1), ("right", params.right, -1)):
        origin = (0.0, side * width / 2, 0.0)
        links.append(Link(link, (_block(params, link, width),), origin))
        points[link] = Keypoint(link, (0.0, 0.0, params.height))
        points[f"{link}_foot"] = Keypoint(link, (0.0, 0.0, 0.0))
        points[f"{link}_seam"] = Keypoint(link, (0.0, -side * width / 2, 0.0))
    end_x = params.length / 2 - params.chamfer
    points["seam_end"] = Keypoint("left", (end_x, -params.left / 2, 0.0))
    return Model("object", "pair", name, tuple(links), points)


def _block(p: PairParams, name: str, width: float) -> Part:
    lean = math.tan(math.radians(p.draft_deg))

    def section(z: float, inset: float = 0.0) -> Section:
        inset += lean * z
        # Sections of one chamfer have parallel sides. The polygon about a corner's arc cuts
        # (2 - sqrt 2) of the radius off.
        radius = p.chamfer / (2 - math.sqrt(2))
        return Section(p.length / 2 - inset, width / 2 - inset, radius)

    top, shoulder = p.height, p.height - p.bevel
    seen = [(0.0, section(0.0)), (shoulder, section(shoulder)), (top, section(top, p.bevel))]
    felt = [(0.0, section(0.0)), (top, section(top))]
    return Part(name, stack(seen, OCTAGONAL), p.material, frusta(felt, OCTAGONAL))


CATALOGUE = {
    "gouda": PairParams(
        length=0.080, left=0.056, right=0.056, height=0.038, draft_deg=1.5,
        chamfer=0.014, bevel=0.003, material=GOUDA,
    ),
    "rye_bread": PairParams(
        length=0.086, left=0.060, right=0.050, height=0.042, draft_deg=3.0,
        chamfer=0.010, bevel=0.004, material=RYE_BREAD,
    ),
    "tofu": PairParams(
        length=0.066, left=0.052, right=0.052, height=0.036, draft_deg=0.5,
        bevel=0.0012, material=TOFU,
    ),
    "wooden_blocks": PairParams(
        length=0.060, left=0.045, right=0.060, height=0.040, draft_deg=0.5,
        bevel=0.0015, material=WOOD,
    ),
    "bricks": PairParams(
        length=0.090, left=0.046, right=0.046, height=0.030, draft_deg=2.0,
        bevel=0.001, material=CLAY,
    ),
    "soap": PairParams(
        length=0.074, left=0.050, right=0.050, height=0.030, draft_deg=2.5,
        chamfer=0.008, bevel=0.004, material=SOAP,
    ),
    "fudge": PairParams(
        length=0.058, left=0.044, right=0.056, height=0.034, draft_deg=1.0,
        chamfer=0.004, bevel=0.002, material=GOUDA.coloured(0.34, 0.20, 0.13),
    ),
}  # fmt: skip


def sample(rng: np.random.Generator) -> PairParams:
    """A random believable pair."""
    height = rng.uniform(0.028, 0.042)
    widest = min(0.065, 2 * height)
    return PairParams(
        length=rng.uniform(0.055, 0.090),
        left=rng.uniform(1.1 * height, widest),
        right=rng.uniform(1.1 * height, widest),
        height=height,
        draft_deg=rng.uniform(0.5, 3.0),
        chamfer=rng.uniform(0.002, 0.010),
        bevel=rng.uniform(0.001, 0.002),
        material=(GOUDA, RYE_BREAD, TOFU, SOAP, CLAY, WOOD)[rng.integers(6)],
    )
