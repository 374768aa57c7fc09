"""Pairs of blocks that stand side by side and touch; a blade separates them.

The model frame has its origin on the table in the middle of the seam, x along the seam and y from
the right block to the left one. Both blocks are free. As their sides lean inwards, they touch at
their lower edges.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from fleet_tools.assets.families import Family, Meaning, behind
from fleet_tools.assets.model_description import (
    BEECH,
    KeypointDescription,
    LinkDescription,
    Material,
    ModelDescription,
    PartDescription,
)
from fleet_tools.assets.model_geometry import ModelGeometry
from fleet_tools.assets.rules import Rule, Values, on_surface
from fleet_tools.assets.solids import Section, Station, section_loft

OCTAGONAL, SQUARE = 2, 1
"""Corner points of a block in top view. Drake's contact has one point for each triangle of the
base. They meet in its middle, because a block would rock on the triangles between its corners."""

SHARP = 0.002
"""Chamfers up to which contact geometry has sharp edges, m, so that its base has four triangles."""

CORES = {"left": 0.5, "right": 0.505}
"""Height of the core of a block's collision geometry, as a fraction of the block's. With the same
height, the pressures of the blocks' bases would be equal everywhere, and Drake would make contact
polygons of rounding errors between them."""

GOUDA = Material(1080.0, (0.93, 0.73, 0.26), modulus=1e6, friction=0.4, dissipation=50.0)
RYE_BREAD = Material(620.0, (0.50, 0.31, 0.16), modulus=1e6, friction=0.5, dissipation=50.0)
TOFU = Material(1030.0, (0.93, 0.90, 0.82), modulus=1e6, friction=0.3, dissipation=50.0)
SOAP = Material(1020.0, (0.62, 0.76, 0.64), modulus=1e6, friction=0.3, dissipation=50.0)
CLAY = Material(1850.0, (0.66, 0.32, 0.22), modulus=1e7, friction=0.5, dissipation=50.0)
WOOD = replace(BEECH, modulus=1e7, dissipation=50.0)


@dataclass(frozen=True)
class PairParams:
    """The parameters of a pair of blocks, lengths in m, at the base.

    Attributes:
        length: Length of both blocks along the seam.
        left, right: Widths of the blocks across the seam.
        height: Height of both blocks.
        draft_deg: Draft angle by which all sides lean inwards, as on moulded objects.
        chamfer: Width of the chamfers of the upright edges.
        bevel: Width of the bevels of the upper edges, in the visual geometry alone.
        material: Material of both blocks.
    """

    length: float
    left: float
    right: float
    height: float
    draft_deg: float = 1.0
    chamfer: float = 0.002
    bevel: float = 0.001
    material: Material = WOOD


def build(params: PairParams, name: str) -> ModelDescription:
    """Returns the pair as a model of two free links, `left` and `right`, with bases at z = 0."""
    links, points = [], {}
    for link, width, side in (("left", params.left, 1), ("right", params.right, -1)):
        origin = (0.0, side * width / 2, 0.0)
        core = CORES[link] * params.height
        links.append(LinkDescription(link, (_block(params, link, width, core),), origin))
        points[link] = KeypointDescription(link, (0.0, 0.0, params.height))
        points[f"{link}_foot"] = KeypointDescription(link, (0.0, 0.0, 0.0))
        points[f"{link}_seam"] = KeypointDescription(link, (0.0, -side * width / 2, 0.0))
    end_x = params.length / 2 - params.chamfer
    points["seam_end"] = KeypointDescription("left", (end_x, -params.left / 2, 0.0))
    return ModelDescription("object", "pair", name, tuple(links), points)


def _block(p: PairParams, name: str, width: float, core: float) -> PartDescription:
    lean = math.tan(math.radians(p.draft_deg))

    def section(z: float, inset: float = 0.0) -> Section:
        inset += lean * z
        # Sections with the same chamfer have parallel sides. The polygon that circumscribes a
        # corner's arc cuts off (2 - sqrt 2) of the radius.
        radius = p.chamfer / (2 - math.sqrt(2))
        return Section(p.length / 2 - inset, width / 2 - inset, radius)

    top, shoulder = p.height, p.height - p.bevel
    visual = [(0.0, section(0.0)), (shoulder, section(shoulder)), (top, section(top, p.bevel))]
    ends: list[Station] = [(0.0, None), (0.0, section(0.0)), (top, section(top))]
    corner_points = SQUARE if p.chamfer <= SHARP else OCTAGONAL
    collision = (section_loft(ends, corner_points),)
    solid = section_loft(visual, OCTAGONAL)
    return PartDescription(name, solid, p.material, collision, core=(0.0, 0.0, core))


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


def draw(rng: np.random.Generator) -> PairParams:
    """Returns the parameters of a random plausible pair."""
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


def seam_distance(geometry: ModelGeometry) -> Values:
    """Returns the distance between the blocks' seams, m."""
    gap = geometry.p_M["left_seam"] - geometry.p_M["right_seam"]
    return {"left_seam and right_seam": float(np.linalg.norm(gap))}


RULES = (
    Rule(
        "distance between the seams",
        seam_distance,
        "mm",
        high=0.002,
        reason="the blocks touch where the blade goes in",
        remedy="Place both blocks so that `left_seam` and `right_seam` meet in the model frame.",
    ),
    on_surface(
        "left_foot",
        "right_foot",
        "left_seam",
        "right_seam",
        "seam_end",
        high=0.002,
        reason="the expert brings the edge to the seam within 0.3 mm",
        remedy="Move these keypoints onto the blocks: feet below, seams where the blocks meet.",
    ),
)


FAMILY = Family(
    kind="object",
    keypoints={
        "left": Meaning("the middle of the left block's upper side"),
        "right": Meaning("the middle of the right block's upper side"),
        "left_foot": Meaning("the middle of its underside", behind("left")),
        "right_foot": Meaning("the middle of its underside", behind("right")),
        "left_seam": Meaning("the foot of the seam, in the middle, on the left block"),
        "right_seam": Meaning("the same point on the right block"),
        "seam_end": Meaning("the end of the seam, at its foot"),
    },
    catalogue=CATALOGUE,
    build=build,
    draw=draw,
    rules=RULES,
)
