"""Slabs: flat objects that are turned or served with a spatula, such as patties and pucks.

A slab lies on z = 0 of its model frame. The collision geometry is a prism with a slight draft, so
that the whole base rests on the table, and a thin edge meets the slab at its rim.
Contact has a point for each triangle of the base. They meet in its middle, because a slab would
rock on the triangles between its corners.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from fleet_tools.assets.families import Family, Meaning, behind
from fleet_tools.assets.model_description import (
    Material,
    ModelDescription,
    PartDescription,
    rigid_model,
)
from fleet_tools.assets.model_geometry import ModelGeometry
from fleet_tools.assets.rules import Rule, Values, angle, on_surface
from fleet_tools.assets.solids import OCTAGONAL, ROUND, SQUARE, Section, Station, section_loft

# As soft and as damped as food: at a hundred times the modulus, such light objects keep rocking.
BEEF = Material(1050.0, (0.36, 0.20, 0.13), modulus=5e4, friction=0.5, dissipation=200.0)
BATTER = replace(BEEF, density=750.0).coloured(0.85, 0.62, 0.30)
TOAST = replace(BEEF, density=480.0).coloured(0.72, 0.47, 0.22)
CHOCOLATE = replace(BEEF, density=900.0).coloured(0.25, 0.13, 0.08)
POTATO = replace(BEEF, density=850.0).coloured(0.80, 0.55, 0.18)
CORK = replace(BEEF, density=240.0).coloured(0.76, 0.58, 0.40)
VULCANIZED = replace(BEEF, density=1150.0, friction=0.6).coloured(0.09, 0.09, 0.10)
FELT = replace(BEEF, density=350.0).coloured(0.20, 0.36, 0.33)

DRAFT = 3e-6
"""Width by which each side of the collision geometry leans inwards, m. With upright sides, Drake's
contact solver would stop too early (`fleet_tools.sim.resting_faces`)."""

LEAST_RADIUS = 0.002
"""Least radius of the corners of the collision geometry, m: sides that meet are not upright beside
each other, either."""

MASS_BOUNDS = (0.025, 0.25)
"""Least and greatest mass, kg: heavy enough to rest, and not too heavy for a blade."""


@dataclass(frozen=True)
class SlabParams:
    """The parameters of a slab, lengths in m.

    Attributes:
        half_x, half_y: Half widths.
        height: Height of the top.
        roundness: 1 makes a disc or fully rounded ends, 0 sharp corners.
        dome: Height of the top above the rim as a fraction of the height, from 0 (flat) to 0.5.
        material: Material.
    """

    half_x: float = 0.045
    half_y: float = 0.045
    height: float = 0.018
    roundness: float = 1.0
    dome: float = 0.2
    material: Material = BEEF

    def section(self, inset: float = 0.0) -> Section:
        """Returns the slab's section, narrower on all sides by `inset`, m."""
        x, y = self.half_x - inset, self.half_y - inset
        return Section(x, y, self.roundness * min(x, y))


def build(params: SlabParams, name: str) -> ModelDescription:
    """Returns the slab as a model of one link, `slab`."""
    points = {"base": (0.0, 0.0, 0.0), "top": (0.0, 0.0, params.height)}
    return rigid_model("object", "slab", name, (_slab(params),), points)


def _slab(p: SlabParams) -> PartDescription:
    bevel = min(0.0015, 0.1 * p.height)
    rim = p.height * (1 - p.dome)
    visual: list[Station] = [(0.0, p.section(bevel)), (bevel, p.section())]
    visual += [(rim - bevel, p.section()), (rim, p.section(bevel))]
    if p.dome:
        visual.append((rim + 0.7 * (p.height - rim), p.section(0.25 * p.half_y)))
        visual.append((p.height, p.section(0.6 * p.half_y)))
    outline = p.section()
    base = replace(outline, radius=max(outline.radius, LEAST_RADIUS))
    # Sections with the same radius of corners have parallel sides.
    top = replace(base, half_x=base.half_x - DRAFT, half_y=base.half_y - DRAFT)
    ends: list[Station] = [(0.0, None), (0.0, base), (p.height, top)]
    solid = section_loft(visual, SQUARE if p.roundness == 0 else ROUND)
    collision = (section_loft(ends, OCTAGONAL),)
    return PartDescription("slab", solid, p.material, collision, core=(0.0, 0.0, p.height / 2))


CATALOGUE = {
    "patty": SlabParams(),
    "pancake": SlabParams(half_x=0.055, half_y=0.055, height=0.012, material=BATTER),
    "waffle": SlabParams(
        half_x=0.048, half_y=0.048, height=0.018, roundness=0.0, dome=0.0, material=TOAST
    ),
    "brownie": SlabParams(
        half_x=0.035, half_y=0.035, height=0.026, roundness=0.2, dome=0.1, material=CHOCOLATE
    ),
    "hash_brown": SlabParams(
        half_x=0.054, half_y=0.036, height=0.016, roundness=0.6, material=POTATO
    ),
    "coaster": SlabParams(half_x=0.048, half_y=0.048, height=0.016, dome=0.0, material=CORK),
    "puck": SlabParams(half_x=0.038, half_y=0.038, height=0.025, dome=0.0, material=VULCANIZED),
    "scone": SlabParams(half_x=0.036, half_y=0.036, height=0.030, dome=0.35, material=TOAST),
}


def draw(rng: np.random.Generator) -> SlabParams:
    """Returns the parameters of a random plausible slab."""
    half_x = rng.uniform(0.035, 0.054)
    roundness = (0.0, 1.0, rng.uniform(0.2, 0.8))[rng.integers(3)]
    materials = (BEEF, BATTER, TOAST, CHOCOLATE, POTATO, CORK, VULCANIZED, FELT)
    return SlabParams(
        half_x=half_x,
        half_y=half_x * (1.0 if roundness == 1.0 else rng.uniform(0.7, 1.0)),
        height=rng.uniform(0.012, 0.024),
        roundness=roundness,
        dome=(0.0, rng.uniform(0.1, 0.3))[rng.integers(2)],
        material=materials[rng.integers(len(materials))],
    )


def tilt(geometry: ModelGeometry) -> Values:
    """Returns the angle of base -> top from z, rad."""
    return {"base -> top": angle(geometry.axis("base", "top"), np.array([0.0, 0.0, 1.0]))}


def off_centre(geometry: ModelGeometry) -> Values:
    """Returns the horizontal distance of `base` from the centre of mass, m."""
    link = geometry.links[geometry.keypoint_links["base"]]
    return {"base": float(np.linalg.norm((geometry.p_M["base"] - link.p_MCom)[:2]))}


RULES = (
    on_surface(
        "base",
        "top",
        high=0.001,
        reason="the expert brings the sole under `base` within 0.5 mm",
        remedy="Move `base` to the middle of the underside, `top` straight above it.",
    ),
    Rule(
        "angle from the vertical",
        tilt,
        "deg",
        high=math.radians(1),
        reason="the expert holds the blade at a right angle to base -> top, within 0.2 degrees",
        remedy="Place `top` straight above `base`, for a model that lies on z = 0.",
    ),
    Rule(
        "distance from below the centre of mass",
        off_centre,
        "mm",
        high=0.01,
        reason="the middle of the blade goes under `base`, and the slab is to stay on it",
        remedy="Move `base` below the centre of mass.",
    ),
)


FAMILY = Family(
    kind="object",
    keypoints={
        "base": Meaning("the middle of the underside"),
        "top": Meaning("the middle of the upper side", behind("base")),
    },
    catalogue=CATALOGUE,
    build=build,
    draw=draw,
    mass_bounds=MASS_BOUNDS,
    rules=RULES,
)
