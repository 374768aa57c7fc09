"""Screwdrivers with a cross handle: the hand presses from above, and a bit turns slotted screws.

In the tool frame T the handle is the x axis, and the shank leaves it along z, away from the palm.
At work z_T points down, and the hand is above the screw and presses on it. The frame B of the bit
has its origin in the middle of the bit's end, its z axis is T's, and its x axis runs along
the width of the bit.
"""

import math
from dataclasses import dataclass

import numpy as np

from fleet_tools.assets.families import Family, HandAlignment, Meaning, behind, middle
from fleet_tools.assets.families.screw import FLOOR, ROOM, SLOPE
from fleet_tools.assets.model_description import (
    ASH,
    BEECH,
    BLACK_OXIDE,
    BLUE_PLASTIC,
    CHROME,
    HARD_BRASS,
    HARD_STEEL,
    NYLON,
    YELLOW_PLASTIC,
    Material,
    ModelDescription,
    PartDescription,
    rigid_model,
)
from fleet_tools.assets.model_geometry import ModelGeometry
from fleet_tools.assets.parametric import grip_part
from fleet_tools.assets.rules import Rule, Values, perpendicular, right_angles, thickness
from fleet_tools.assets.solids import (
    Section,
    Solid,
    circle,
    fillet,
    frusta,
    joined,
    rectangle,
    section_loft,
)

TIP = 0.002
"""Half the thickness of a bit at its end, m; more than the slot's floor, so that it sits between
the walls and not on the floor."""

SEAT = (TIP - FLOOR) / SLOPE
"""Height of the end of a bit above the floor of a slot in which it sits, m."""

BLADE = 0.009
"""Height of a bit, m."""

BACK = round(TIP + SLOPE * BLADE, 6)
"""Half the thickness of a bit at its other end, m."""

FLANK = 0.004
"""Height of the keypoint `flank` above the end of a bit, m."""

NECK = 0.010
"""Height of the transition from a bit to the shank, m."""


@dataclass(frozen=True)
class ScrewdriverParams:
    """The parameters of a screwdriver, lengths in m.

    Attributes:
        butt_x, nose_x: x of the ends of the handle.
        shank_x: x of the shank.
        length: z of the end of the bit.
        radius: Radius of the shank.
        width: Half the width of the bit.
        bit_deg: Angle of the bit about z; at zero its width is across the handle.
        grip_z: Half the height of the handle.
        roundness: Roundness of the handle's section: near 0 a bar, 1 an oval or a rod.
        collar: Radius of a collar below the handle, 0 for none.
        collar_z: z of the lower end of the collar.
        sleeve: Thickness of a sleeve around the shank, 0 for none.
        grip: Material of the handle and of a sleeve.
        body: Material of shank and bit.
    """

    butt_x: float = -0.060
    nose_x: float = 0.060
    shank_x: float = 0.0
    length: float = 0.115
    radius: float = 0.006
    width: float = 0.012
    bit_deg: float = 0.0
    grip_z: float = 0.013
    roundness: float = 1.0
    collar: float = 0.0
    collar_z: float = 0.0
    sleeve: float = 0.0
    grip: Material = HARD_STEEL
    body: Material = HARD_STEEL

    @property
    def p_TB(self) -> np.ndarray:
        """Position of the end of the bit in T, (3,), m."""
        return np.array([self.shank_x, 0.0, self.length])

    @property
    def R_TB(self) -> np.ndarray:
        """Rotation of the bit about z, (3, 3)."""
        angle = math.radians(self.bit_deg + 90.0)
        c, s = math.cos(angle), math.sin(angle)
        return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])


def _to_tool(p: ScrewdriverParams, solid: Solid) -> Solid:
    """Returns a solid that is given in B, in T."""
    return solid.transformed(p.R_TB, p.p_TB)


def _bit(p: ScrewdriverParams) -> PartDescription:
    """Makes the bit, a wedge with a plane end, and its neck."""
    end, back = rectangle(p.width, TIP), rectangle(p.width, BACK)
    (wedge,) = frusta([(-BLADE, back), (0.0, end)], 1)
    side = round(0.7 * p.radius, 6)
    (neck,) = frusta([(-BLADE - NECK, rectangle(side, side)), (-BLADE, back)], 1)
    # A section with sharp corners has one point at each, and rounded ones have four.
    start = -BLADE, Section(p.width, BACK, 0.001)
    transition = section_loft([start, *fillet(start, (-BLADE - NECK, circle(p.radius)))], 4)
    visual = joined(wedge, transition)
    collision = (_to_tool(p, wedge), _to_tool(p, neck))
    # A bit at an angle has no coordinates in whole nanometres; rounding would bend its flanks.
    return PartDescription("bit", _to_tool(p, visual), p.body, collision, collision_digits=15)


def _shank(p: ScrewdriverParams) -> PartDescription:
    """Makes the shank from the handle's middle to the neck of the bit."""
    stations = [(0.0, circle(p.radius)), (p.length - BLADE - NECK, circle(p.radius))]
    axis = (p.shank_x, 0.0)
    return PartDescription(
        "shank", section_loft(stations, 5, axis), p.body, frusta(stations, 2, axis)
    )


def _sleeve(p: ScrewdriverParams) -> tuple[PartDescription, ...]:
    """Makes the sleeve around the shank, if any."""
    if not p.sleeve:
        return ()
    outer = p.radius + p.sleeve
    low, high = p.grip_z + 0.001, p.length - BLADE - NECK - 0.006
    shape = circle(outer)
    profile = [(low, shape), (high - 0.003, shape), (high, circle(p.radius + 0.0005))]
    axis = (p.shank_x, 0.0)
    collision = frusta([(low, shape), (high, shape)], 2, axis)
    return (PartDescription("sleeve", section_loft(profile, 5, axis), p.grip, collision),)


def _collar(p: ScrewdriverParams) -> tuple[PartDescription, ...]:
    """Makes the collar below the handle, if any."""
    if not p.collar:
        return ()
    shape, axis = circle(p.collar), (p.shank_x, 0.0)
    low = p.collar_z - 0.002
    profile = [(0.0, shape), (low, shape), (p.collar_z, circle(p.collar - 0.002))]
    collision = frusta([(0.0, shape), (p.collar_z, shape)], 2, axis)
    return (PartDescription("collar", section_loft(profile, 5, axis), p.body, collision),)


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
    grip = grip_part(params.butt_x, params.nose_x, params.grip_z, params.roundness, params.grip)
    parts = grip, *_collar(params), _shank(params), *_sleeve(params), _bit(params)
    return rigid_model("tool", "screwdriver", name, parts, placed)


CATALOGUE = {
    "t_handle": ScrewdriverParams(grip=BEECH, body=CHROME),
    "stubby": ScrewdriverParams(
        butt_x=-0.040, nose_x=0.040, length=0.090, radius=0.0055, grip_z=0.016,
        grip=NYLON, body=CHROME,
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
        grip=ASH, body=HARD_BRASS,
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


def draw(rng: np.random.Generator) -> ScrewdriverParams:
    """Returns the parameters of a random plausible screwdriver."""
    body = (CHROME, BLACK_OXIDE, HARD_BRASS)[rng.integers(3)]
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
        grip=(NYLON, BLUE_PLASTIC, BEECH, ASH)[rng.integers(4)],
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
    right_angles(
        ("bit", "back"),
        ("left", "right"),
        reason="the expert aligns both axes with those of the screw, within 0.5 degrees each",
        remedy="Place `left` and `right` at one height, `back` straight above `bit`.",
    ),
)


FAMILY = Family(
    kind="tool",
    keypoints={
        "left": Meaning("one end of the bit's edge"),
        "right": Meaning("the other end of the bit's edge"),
        "bit": Meaning("the middle of the end of the bit", middle("left", "right")),
        "back": Meaning("the top of the handle, above the bit", behind("bit")),
        "flank": Meaning("within the bit, 4 mm above its end"),
        "nose": Meaning("the end of the handle that is ahead of the hand"),
    },
    catalogue=CATALOGUE,
    build=build,
    draw=draw,
    mass_bounds=MASS_BOUNDS,
    rules=RULES,
    alignment=HandAlignment("nose", ("back", "bit"), ("bit", "flank"), tilt_deg=80, turn_deg=135),
    working_parts=("bit",),
)
