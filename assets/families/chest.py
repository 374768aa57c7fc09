"""Chests whose hinged lids are held shut; a lever on the sill before the lid opens them.

The case stands on z = 0 of the model frame, the hinge's axis lies at its far end, along y, and the
sill before the lid at the near end, at negative x. The slot between sill and lid is too low for
fingers. The frame of the lid has its origin on the hinge; the position of the joint `open` is the
angle by which it is open.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from fleet_tools.assets.families import Family, Meaning, middle
from fleet_tools.assets.model_description import (
    ASH,
    BEECH,
    BRASS,
    HICKORY,
    PINE,
    STEEL,
    JointDescription,
    LinkDescription,
    Material,
    ModelDescription,
    PartDescription,
    jointed_model,
)
from fleet_tools.assets.model_geometry import ModelGeometry
from fleet_tools.assets.rules import Rule, Values, gap
from fleet_tools.assets.solids import box, joined, rectangle, section_loft

SILL = 0.033
"""Distance of the lid's edge behind the sill's, m."""

SLOT = 0.007
"""Height of the slot between the sill and the lid, m."""

INSERTION = 0.012
"""Depth of a lever's tip under the lid, m."""

DEPTH = 0.024
"""Depth of the slot behind the lid's edge, m."""

UNDER = 0.008
"""Distance of the keypoints on the lid behind its front edge, m."""

INSET = 0.0015
"""Distance of the lid's edge from the case's on each side, m."""

INERTIA = 0.01
"""Added inertia about the hinge, kg m^2; see `JointDescription`."""

RANGE = 1.4
"""Greatest angle of the lid, rad."""

OAK, WALNUT, BIRCH = (
    replace(wood, modulus=PINE.modulus)
    for wood in (
        ASH.coloured(0.62, 0.45, 0.28),
        HICKORY.coloured(0.35, 0.22, 0.14),
        BEECH.coloured(0.90, 0.82, 0.66),
    )
)
SHEET_STEEL, SHEET_BRASS = (  # mean density of sheet metal over wood
    replace(metal, modulus=PINE.modulus, density=1500.0)
    for metal in (STEEL.coloured(0.36, 0.40, 0.33), BRASS)
)


@dataclass(frozen=True)
class ChestParams:
    """The parameters of a chest, lengths in m.

    Attributes:
        reach: Distance of the lid's edge from the hinge.
        width: Half the width of the case.
        height: Height of the sill.
        lid: Thickness of the lid.
        bevel: Width of the bevel around the lid's top.
        straps: Number of metal straps over the lid.
        resistance: Torque at which the lid gives way, N m.
        material: Material of the case.
        lid_material: Material of the lid.
    """

    reach: float = 0.085
    width: float = 0.060
    height: float = 0.064
    lid: float = 0.014
    bevel: float = 0.003
    straps: int = 0
    resistance: float = 7.5
    material: Material = PINE
    lid_material: Material = PINE

    @property
    def hinge(self) -> float:
        """Position x of the hinge, m; the middle of the case is at 0."""
        return round((SILL + self.reach) / 2 - INSET, 9)

    @property
    def edge(self) -> float:
        """Position x of the sill's edge, m."""
        return round(self.hinge - self.reach - SILL, 9)


def build(params: ChestParams, name: str) -> ModelDescription:
    """Returns the chest as a model of two links, `case` and `lid`, and the joint `open`."""
    p = params
    level = round(p.height + SLOT, 9)
    case = LinkDescription("case", _case(p))
    lid = LinkDescription("lid", _lid(p), (p.hinge, 0.0, level))
    points = {
        "sill": (case, (p.edge, 0.0, p.height)),
        "left": (case, (p.edge, p.width, p.height)),
        "right": (case, (p.edge, -p.width, p.height)),
        "lid_left": (lid, (UNDER - p.reach, p.width - INSET, 0.0)),
        "lid_right": (lid, (UNDER - p.reach, INSET - p.width, 0.0)),
        "base": (case, (0.0, 0.0, 0.0)),
    }
    hinge = JointDescription(
        name="open",
        kind="revolute",
        parent="case",
        child="lid",
        axis=(0.0, 1.0, 0.0),
        limits=(0.0, RANGE),
        resistance=p.resistance,
        inertia=INERTIA,
    )
    return jointed_model("chest", name, (case, lid), hinge, points)


def _case(p: ChestParams) -> tuple[PartDescription, ...]:
    """Makes the case, and the frame on it that keeps lid and sill apart."""
    back = round(p.hinge + INSET, 9)
    case = box((p.edge, -p.width, 0.0), (back, p.width, p.height))
    inner, front = p.width - 2 * INSET, round(p.hinge - p.reach + DEPTH, 9)
    frame = box((front, -inner, p.height), (p.hinge - INSET, inner, p.height + SLOT))
    return (
        PartDescription("case", case, p.material, (case,)),
        PartDescription("frame", frame, p.material, (frame,)),
    )


def _lid(p: ChestParams) -> tuple[PartDescription, ...]:
    """Makes the lid, and straps over it that touch nothing."""
    half_x, half_y, middle_x = p.reach / 2, p.width - INSET, -p.reach / 2
    full, top = rectangle(half_x, half_y), rectangle(half_x - p.bevel, half_y - p.bevel)
    stations = [(0.0, full), (p.lid - p.bevel, full), (p.lid, top)]
    plate = section_loft(stations, 1, (middle_x, 0.0))
    collision = box((-p.reach, -half_y, 0.0), (0.0, half_y, p.lid))
    parts = [PartDescription("lid", plate, p.lid_material, (collision,))]
    if p.straps:
        low, high = -p.reach + p.bevel + 0.001, -p.bevel - 0.001
        places = np.linspace(-1, 1, p.straps + 2)[1:-1] * half_y
        straps = [box((low, y - 0.005, p.lid), (high, y + 0.005, p.lid + 0.001)) for y in places]
        parts.append(PartDescription("straps", joined(*straps), BRASS))
    return tuple(parts)


CATALOGUE = {
    "crate": ChestParams(),
    "ammunition_box": ChestParams(
        reach=0.092, width=0.052, height=0.075, lid=0.012, bevel=0.002, straps=2,
        material=SHEET_STEEL, lid_material=SHEET_STEEL,
    ),
    "jewel_case": ChestParams(
        reach=0.078, width=0.050, height=0.062, lid=0.016, bevel=0.006, straps=1,
        material=WALNUT, lid_material=WALNUT,
    ),
    "hatch": ChestParams(
        reach=0.088, width=0.070, height=0.068, lid=0.010, bevel=0.0015, material=OAK,
        lid_material=SHEET_STEEL.coloured(0.45, 0.47, 0.50),
    ),
    "sea_chest": ChestParams(
        reach=0.090, width=0.075, height=0.072, lid=0.020, bevel=0.007, straps=3, material=OAK,
        lid_material=OAK,
    ),
    "tea_box": ChestParams(
        reach=0.082, width=0.056, height=0.066, lid=0.013, bevel=0.004, material=BIRCH,
        lid_material=SHEET_BRASS.coloured(0.70, 0.50, 0.28),
    ),
}  # fmt: skip


def draw(rng: np.random.Generator) -> ChestParams:
    """Returns the parameters of a random plausible chest."""
    materials = PINE, OAK, WALNUT, BIRCH, SHEET_STEEL, SHEET_BRASS
    return ChestParams(
        reach=rng.uniform(0.077, 0.093),
        width=rng.uniform(0.050, 0.075),
        height=rng.uniform(0.062, 0.076),
        lid=rng.uniform(0.010, 0.020),
        bevel=rng.uniform(0.0015, 0.007),
        straps=int(rng.integers(4)),
        resistance=rng.uniform(6.0, 9.0),
        material=materials[rng.integers(len(materials))],
        lid_material=materials[rng.integers(len(materials))],
    )


UP = np.array([0.0, 0.0, 1.0])


def _inwards(geometry: ModelGeometry) -> np.ndarray:
    """Returns the vector from `sill` to below the middle of the keypoints on the lid, (3,), m."""
    p = geometry.p_M
    return ((p["lid_left"] + p["lid_right"]) / 2 - p["sill"]) * [1.0, 1.0, 0.0]


def slot(geometry: ModelGeometry) -> Values:
    """Returns the height of the slot where the tip of a lever is, m."""
    into = _inwards(geometry)
    into *= 1 + (INSERTION - UNDER) / np.linalg.norm(into)
    return {"": sum(gap(geometry, geometry.p_M["sill"] + into + SLOT / 2 * UP, UP))}


RULES = (
    Rule(
        "height of the slot",
        slot,
        "mm",
        low=SLOT - 0.0005,
        high=SLOT + 0.001,
        reason="the expert slides the blade in 1 mm above the sill; a blade is 3 to 5 mm thick "
        "there, and a larger gap shortens its stroke",
        remedy="Else place `sill` at the edge before the slot.",
        scales=True,
    ),
    Rule(
        "distance of the lid behind the sill",
        lambda geometry: {"": float(np.linalg.norm(_inwards(geometry))) - UNDER},
        "mm",
        low=SILL - 0.002,
        high=SILL + 0.002,
        reason="the tip of a blade of 45 mm is then 12 mm under the lid",
        remedy="Move `sill` to the edge over which a lever bears, 33 mm before the lid, and "
        "`lid_left` and `lid_right` to 8 mm behind the lid's front.",
    ),
    Rule(
        "deviation from a right angle",
        lambda geometry: {
            "": abs(float(geometry.axis("left", "right") @ _inwards(geometry)))
            / float(np.linalg.norm(_inwards(geometry)))
        },
        "deg",
        high=math.radians(0.6),
        reason="the expert turns the lever about the sill's edge",
        remedy="Place `left` and `right` on the sill's edge, `sill` in their middle.",
    ),
)


FAMILY = Family(
    kind="object",
    keypoints={
        "left": Meaning("the left end of the sill's edge, seen towards the lid"),
        "right": Meaning("the right end of the sill's edge"),
        "sill": Meaning("the middle of the sill's edge", middle("left", "right")),
        "lid_left": Meaning("the lower edge of the lid's left side, 8 mm behind its front"),
        "lid_right": Meaning("the lower edge of its right side, likewise"),
        "base": Meaning("the middle of the underside"),
    },
    catalogue=CATALOGUE,
    build=build,
    draw=draw,
    rules=RULES,
)
