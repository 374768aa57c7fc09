"""Screwdrivers with a cross handle: the hand presses from above, and a bit turns slotted screws."""

import math
from dataclasses import replace

import numpy as np

from fleet_tools.assets.families import Family, HandAlignment, Meaning, behind, middle
from fleet_tools.assets.families.screw.screw_parts import ROOM
from fleet_tools.assets.families.screwdriver.screwdriver_parts import (
    BIT_STEEL,
    FLANK,
    ScrewdriverParams,
    screwdriver_parts,
)
from fleet_tools.assets.model_description import (
    ASH,
    BEECH,
    BRASS,
    NYLON,
    KeypointDescription,
    LinkDescription,
    ModelDescription,
    as_position,
)
from fleet_tools.assets.model_geometry import ModelGeometry
from fleet_tools.assets.parametric import sample_within_mass
from fleet_tools.assets.rules import Rule, Values, axis_angle, perpendicular, thickness

MASS_BOUNDS = (0.1, 1.0)
"""Least and greatest mass, kg, that the arm can move without effort."""


def build(params: ScrewdriverParams, name: str) -> ModelDescription:
    """Returns the screwdriver as a model of one link, `screwdriver`, in the frame T."""
    points = {
        "bit": (0.0, 0.0, 0.0),
        "left": (-params.width, 0.0, 0.0),
        "right": (params.width, 0.0, 0.0),
        "flank": (0.0, 0.0, -FLANK),
        "back": (0.0, 0.0, -params.length - params.grip_z),
    }
    placed = {key: params.R_TB @ point + params.p_TB for key, point in points.items()}
    placed["nose"] = np.array([params.nose_x, 0.0, 0.0])
    return ModelDescription(
        kind="tool",
        family="screwdriver",
        name=name,
        links=(LinkDescription("screwdriver", screwdriver_parts(params)),),
        keypoints={
            key: KeypointDescription("screwdriver", as_position(point))
            for key, point in placed.items()
        },
    )


CHROME = BIT_STEEL.coloured(0.78, 0.79, 0.81)
BLACK_OXIDE = BIT_STEEL.coloured(0.15, 0.15, 0.17)
SPARKLESS = replace(BRASS, modulus=1e9)
RED_PLASTIC, BLUE_PLASTIC = NYLON, NYLON.coloured(0.12, 0.25, 0.62)
YELLOW_PLASTIC = NYLON.coloured(0.93, 0.72, 0.10)

CATALOGUE = {
    "t_handle": ScrewdriverParams(grip=BEECH, body=CHROME),
    "stubby": ScrewdriverParams(
        butt_x=-0.040, nose_x=0.040, length=0.090, radius=0.0055, grip_z=0.016,
        grip=RED_PLASTIC, body=CHROME,
    ),
    "ratchet": ScrewdriverParams(
        butt_x=-0.065, nose_x=0.065, length=0.120, bit_deg=15, collar=0.0135, collar_z=0.042,
        grip_z=0.011, roundness=0.6, grip=BLUE_PLASTIC, body=CHROME,
    ),
    "insulated": ScrewdriverParams(
        butt_x=-0.055, nose_x=0.055, length=0.130, radius=0.005, sleeve=0.003, grip_z=0.014,
        grip=YELLOW_PLASTIC, body=BLACK_OXIDE,
    ),
    "all_steel": ScrewdriverParams(
        butt_x=-0.075, nose_x=0.075, length=0.110, radius=0.0065, bit_deg=-15, grip_z=0.008,
        roundness=0.5, grip=BLACK_OXIDE, body=BLACK_OXIDE,
    ),
    "sparkless": ScrewdriverParams(
        length=0.105, radius=0.007, width=0.0115, grip_z=0.012, roundness=0.8,
        grip=ASH, body=SPARKLESS,
    ),
    "offset": ScrewdriverParams(
        butt_x=-0.090, nose_x=0.062, shank_x=0.052, length=0.095, grip_z=0.009, roundness=0.7,
        grip=CHROME, body=CHROME,
    ),
    "narrow": ScrewdriverParams(
        butt_x=-0.050, nose_x=0.070, shank_x=0.010, length=0.125, radius=0.0045, width=0.010,
        bit_deg=8, collar=0.010, collar_z=0.030, grip_z=0.012, grip=BEECH, body=BLACK_OXIDE,
    ),
}  # fmt: skip


def sample(rng: np.random.Generator) -> ScrewdriverParams:
    """Returns the parameters of a random plausible screwdriver within `MASS_BOUNDS`."""
    return sample_within_mass(MASS_BOUNDS, _draw, build, rng)


def _draw(rng: np.random.Generator) -> ScrewdriverParams:
    body = (CHROME, BLACK_OXIDE, SPARKLESS)[rng.integers(3)]
    style = ("plain", "collar", "sleeve")[rng.integers(3)]
    radius = rng.uniform(0.0045, 0.007)
    return ScrewdriverParams(
        butt_x=rng.uniform(-0.085, -0.040),
        nose_x=rng.uniform(0.060, 0.075),
        shank_x=(0.0, rng.uniform(0.0, 0.05))[rng.integers(2)],
        length=rng.uniform(0.090, 0.130),
        radius=radius,
        width=rng.uniform(0.010, ROOM - 0.0012),
        bit_deg=rng.uniform(-15, 15),
        grip_z=rng.uniform(0.008, 0.016),
        roundness=rng.uniform(0.4, 1.0),
        collar=rng.uniform(0.010, 0.0145) if style == "collar" else 0.0,
        collar_z=rng.uniform(0.028, 0.045) if style == "collar" else 0.0,
        sleeve=rng.uniform(0.0015, 0.003) if style == "sleeve" else 0.0,
        grip=(RED_PLASTIC, BLUE_PLASTIC, BEECH, ASH)[rng.integers(4)],
        body=body,
    )


def bit_width(geometry: ModelGeometry) -> Values:
    """Returns the width of the bit at `flank`, m."""
    along = geometry.axis("left", "right")
    return {"": thickness(geometry, geometry.p_M["flank"], along, reach=0.01)}


def bit_thickness(geometry: ModelGeometry) -> Values:
    """Returns the thickness of the bit at `flank`, m."""
    axis, along = geometry.axis("bit", "back"), geometry.axis("left", "right")
    across = np.cross(axis, perpendicular(along, axis))
    return {"": thickness(geometry, geometry.p_M["flank"], across, reach=0.01)}


RULES = (
    Rule(
        "width of the bit",
        bit_width,
        "mm",
        low=0.018,
        high=2 * ROOM - 0.001,
        reason="slots of the package are 26.4 mm long where they are closed, and a narrow bit "
        "has no arm to turn by",
        remedy="Else place `left` and `right` at the ends of the bit's edge, and `flank` between "
        "them; the bits of this family are flat blades for wide slots.",
        scales=True,
    ),
    Rule(
        "thickness of the bit at its flank",
        bit_thickness,
        "mm",
        low=0.0080,
        high=0.0092,
        reason="the package's bits have 8.6 mm 4 mm above their end; a thinner one stands on the "
        "floor of the slot, and a thicker one hardly enters",
        remedy="Else place `flank` 4 mm above `bit`.",
        scales=True,
    ),
    Rule(
        "deviation from a right angle",
        axis_angle(("left", "right"), ("bit", "back")),
        "deg",
        high=math.radians(0.6),
        reason="the expert aligns both axes with those of the screw, within 0.5 degrees each",
        remedy="Place `left` and `right` at one height, `back` straight above `bit`.",
    ),
)


FAMILY = Family(
    kind="tool",
    keypoints={
        "left": Meaning("one end of the bit's edge", partner="right"),
        "right": Meaning("the other end of the bit's edge", partner="left"),
        "bit": Meaning("the middle of the end of the bit", middle("left", "right")),
        "back": Meaning("the top of the handle, above the bit", behind("bit")),
        "flank": Meaning("within the bit, 4 mm above its end"),
        "nose": Meaning("the end of the handle that is ahead of the hand"),
    },
    catalogue=CATALOGUE,
    build=build,
    sample=sample,
    rules=RULES,
    alignment=HandAlignment("nose", ("back", "bit"), ("bit", "flank"), tilt_deg=80, turn_deg=135),
    working_parts=("bit",),
)
