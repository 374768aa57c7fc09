"""Open-ended wrenches of one size: a jaw at the end of a handle turns nuts by their flats."""

import math
from dataclasses import replace

import numpy as np

from fleet_tools.assets.families import Family, HandAlignment, Meaning, across, behind, middle
from fleet_tools.assets.families.nut.nut_parts import DEVIATION, FLATS
from fleet_tools.assets.families.wrench.wrench_parts import (
    LIP_ROOT,
    PAD,
    TAILS,
    THROAT,
    WRENCH_STEEL,
    WrenchParams,
    wrench_parts,
)
from fleet_tools.assets.model_description import (
    BRASS,
    NYLON,
    KeypointDescription,
    LinkDescription,
    ModelDescription,
    as_position,
)
from fleet_tools.assets.model_geometry import ModelGeometry
from fleet_tools.assets.parametric import sample_within_mass
from fleet_tools.assets.rules import Rule, Values, axis_angle, gap, perpendicular

MASS_BOUNDS = (0.2, 1.2)
"""Least and greatest mass, kg, that the arm can move without effort."""


def build(params: WrenchParams, name: str) -> ModelDescription:
    """Returns the wrench as a model of one link, `wrench`, in the frame T."""
    behind = -(params.back + THROAT) / 2  # on the faces of the head, behind the throat
    half = params.thickness
    points = {
        "jaw": (0.0, 0.0, 0.0),
        "left": (0.0, -PAD, 0.0),
        "right": (0.0, PAD, 0.0),
        "upper": (behind, 0.0, -half),
        "lower": (behind, 0.0, half),
    }
    return ModelDescription(
        kind="tool",
        family="wrench",
        name=name,
        links=(LinkDescription("wrench", wrench_parts(params)),),
        keypoints={
            key: KeypointDescription("wrench", as_position(params.R_TJ @ point + params.p_TJ))
            for key, point in points.items()
        },
    )


CHROME = WRENCH_STEEL.coloured(0.78, 0.79, 0.81)
BLACK_OXIDE = WRENCH_STEEL.coloured(0.15, 0.15, 0.17)
SPARKLESS = replace(BRASS, modulus=1e9)
RED_PLASTIC, BLUE_PLASTIC = NYLON, NYLON.coloured(0.12, 0.25, 0.62)

CATALOGUE = {
    "open_end": WrenchParams(grip=CHROME, body=CHROME),
    "angled": WrenchParams(
        butt_x=-0.115, jaw_x=0.185, jaw_deg=15, outer=0.038, shift=0.002, tail="fork",
        grip=CHROME, body=CHROME,
    ),
    "combination": WrenchParams(
        butt_x=-0.085, jaw_x=0.160, jaw_deg=-15, grip_z=0.0055, roundness=1.0, tail="ring",
        grip=BLACK_OXIDE, body=BLACK_OXIDE,
    ),
    "cranked": WrenchParams(
        jaw_x=0.190, drop=0.022, grip_z=0.0075, neck_y=0.0125, thickness=0.0075,
        grip=BLACK_OXIDE, body=BLACK_OXIDE,
    ),
    "flare": WrenchParams(
        butt_x=-0.090, jaw_x=0.165, lips=True, reach=LIP_ROOT, outer=0.037, shift=0.0,
        neck_y=0.010, grip=CHROME, body=CHROME,
    ),
    "adjustable": WrenchParams(
        butt_x=-0.105, jaw_x=0.180, sliding=0.014, reach=0.019, thickness=0.008, outer=0.039,
        shift=0.004, grip_z=0.007, neck_y=0.013, neck_z=0.006,
        grip=WRENCH_STEEL.coloured(0.42, 0.43, 0.46), body=CHROME,
    ),
    "brass": WrenchParams(
        butt_x=-0.080, jaw_x=0.150, facets=3, outer=0.040, shift=0.003, roundness=0.2,
        thickness=0.008, grip_z=0.0065, grip=SPARKLESS, body=SPARKLESS,
    ),
    "sleeved": WrenchParams(
        butt_x=-0.110, jaw_x=0.200, grip_z=0.012, roundness=1.0, shank_x=0.065, neck_y=0.010,
        neck_z=0.0055, grip=RED_PLASTIC, body=CHROME,
    ),
    "rod": WrenchParams(
        butt_x=-0.095, jaw_x=0.175, jaw_deg=10, drop=0.012, grip_z=0.015, roundness=1.0,
        shank_x=0.060, neck_y=0.009, neck_z=0.006, facets=6, grip=BLUE_PLASTIC, body=BLACK_OXIDE,
    ),
}  # fmt: skip


def sample(rng: np.random.Generator) -> WrenchParams:
    """Returns the parameters of a random plausible wrench within `MASS_BOUNDS`."""
    return sample_within_mass(MASS_BOUNDS, _draw, build, rng)


def _draw(rng: np.random.Generator) -> WrenchParams:
    body = (CHROME, BLACK_OXIDE, SPARKLESS)[rng.integers(3)]
    sleeved = rng.random() < 0.4
    style = ("open", "lips", "sliding")[rng.integers(3)]
    thickness = rng.uniform(0.0065, 0.008)
    return WrenchParams(
        butt_x=rng.uniform(-0.12, -0.075),
        jaw_x=rng.uniform(0.150, 0.200),
        jaw_deg=rng.uniform(-15, 15),
        drop=(0.0, rng.uniform(0.010, 0.025))[rng.integers(2)],
        thickness=thickness,
        reach=LIP_ROOT if style == "lips" else rng.uniform(0.014, 0.019),
        lips=style == "lips",
        outer=rng.uniform(0.037, 0.040),
        shift=0.0 if style == "lips" else rng.uniform(0.001, 0.004),
        facets=rng.integers(3, 13).item(),
        sliding=rng.uniform(0.011, 0.015) if style == "sliding" else 0.0,
        grip_z=rng.uniform(0.010, 0.014) if sleeved else rng.uniform(0.0055, 0.008),
        roundness=rng.uniform(0.2, 1.0),
        shank_x=rng.uniform(0.045, 0.065),
        neck_y=rng.uniform(0.009, 0.0125),
        neck_z=thickness * rng.uniform(0.65, 0.85),
        tail="plain" if style == "lips" else TAILS[rng.integers(len(TAILS))],
        grip=(RED_PLASTIC, BLUE_PLASTIC)[rng.integers(2)] if sleeved else body,
        body=body,
    )


ALONG_PADS = (-0.008, -0.004, 0.0, 0.004, 0.008)
"""Distances from `jaw` along the pads at which the opening is measured, m."""


def opening(geometry: ModelGeometry) -> Values:
    """Returns the least width between the pads near `jaw`, m."""
    return {"": min(sum(sides) for sides in _gaps(geometry))}


def off_centre(geometry: ModelGeometry) -> Values:
    """Returns the distance of `jaw` from the middle between the pads, m."""
    back, ahead = _gaps(geometry)[ALONG_PADS.index(0.0)]
    return {"jaw": abs(back - ahead) / 2}


def _gaps(geometry: ModelGeometry) -> list[tuple[float, float]]:
    across_pads = geometry.axis("right", "left")
    along = np.cross(across_pads, perpendicular(geometry.axis("lower", "upper"), across_pads))
    jaw = geometry.p_M["jaw"]
    return [gap(geometry, jaw + x * along, across_pads) for x in ALONG_PADS]


RULES = (
    Rule(
        "opening between the pads",
        opening,
        "mm",
        low=FLATS + DEVIATION,
        high=0.044,
        reason="the widest nut of the package has to fit in; a hexagon slips through a wider jaw",
        remedy="Else import its mesh with more or finer convex pieces (--pieces, --concavity), so "
        "that none of them fills the jaw.",
        scales=True,
    ),
    Rule(
        "distance from the middle between the pads",
        off_centre,
        "mm",
        high=1e-3,
        reason="the nut is to touch neither pad as the jaw goes over it",
        remedy="Move the keypoint `jaw` to the middle between the pads.",
    ),
    Rule(
        "deviation from a right angle",
        axis_angle(("right", "left"), ("lower", "upper")),
        "deg",
        high=math.radians(0.6),
        reason="the expert aligns both axes with those of the nut, within 0.3 degrees each",
        remedy="Place `left` and `right` on the pads opposite each other, `upper` straight above "
        "`lower`.",
    ),
)


FAMILY = Family(
    kind="tool",
    keypoints={
        "left": Meaning("the middle of the left pad, seen from the palm", partner="right"),
        "right": Meaning("the pad opposite to it", across("left"), partner="left"),
        "jaw": Meaning("the middle of the mouth, where the nut is", middle("left", "right")),
        "upper": Meaning("on the flat of the head that faces the palm", partner="lower"),
        "lower": Meaning("on the flat that faces the nut's base", behind("upper"), "upper"),
    },
    catalogue=CATALOGUE,
    build=build,
    sample=sample,
    rules=RULES,
    alignment=HandAlignment(
        "jaw", ("upper", "lower"), ("jaw", "left", "right"), tilt_deg=80, turn_deg=150
    ),
    working_parts=("head", "slide"),
)
