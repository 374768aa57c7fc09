"""Pry bars: a flat blade below and ahead of the handle, which turns about an edge under its sole.

In the tool frame T the handle is the x axis. The blade's frame B has its origin at `heel`, on the
sole, where the bar bears on an edge at work; x_B runs along the sole to the tip, z_B away from the
bar. It is pitched against T, so that the handle rises from a level blade.
"""

import math
from dataclasses import dataclass

import numpy as np

from fleet_tools.assets.families import Family, HandAlignment, Meaning, behind, middle
from fleet_tools.assets.families.chest import INSERTION, SILL, SLOT
from fleet_tools.assets.model_description import (
    ASH,
    CHROME,
    FIBREGLASS,
    HARD_BRASS,
    HARD_STEEL,
    HICKORY,
    YELLOW_PLASTIC,
    Material,
    ModelDescription,
    PartDescription,
    rigid_model,
)
from fleet_tools.assets.model_geometry import ModelGeometry
from fleet_tools.assets.parametric import grip_part
from fleet_tools.assets.rules import Rule, Values, perpendicular, right_angles, thickness
from fleet_tools.assets.solids import Section, loft, rectangle, section_ring

MASS_BOUNDS = (0.15, 0.9)
"""Least and greatest mass, kg, that the arm can move without effort."""

REACH = SILL + INSERTION
"""Length of the blade from the heel to the tip, m: over the sill, and under the lid."""

ROOT = 0.020
"""Length of the blade behind the heel, m."""


@dataclass(frozen=True)
class PryBarParams:
    """The parameters of a pry bar, lengths in m.

    Attributes:
        butt_x, nose_x: x of the ends of the handle.
        grip_z: Half the height of the handle.
        roundness: Roundness of the handle's section, in (0, 1].
        heel_x, drop: x and z of the heel.
        pitch_deg: Angle by which the handle rises from the blade.
        shank: Half the width of the shank.
        width: Half the width of the blade at its tip.
        tip: Thickness of the blade at its tip.
        thickness: Thickness of the blade at its other end, and of the shank.
        grip: Material of the handle.
        body: Material of shank and blade.
    """

    butt_x: float = -0.080
    nose_x: float = 0.060
    grip_z: float = 0.011
    roundness: float = 0.8
    heel_x: float = 0.155
    drop: float = 0.032
    pitch_deg: float = 15.0
    shank: float = 0.010
    width: float = 0.013
    tip: float = 0.0035
    thickness: float = 0.009
    grip: Material = HARD_STEEL
    body: Material = HARD_STEEL

    @property
    def R_TB(self) -> np.ndarray:
        """Rotation of the blade, (3, 3)."""
        c, s = math.cos(math.radians(self.pitch_deg)), math.sin(math.radians(self.pitch_deg))
        return np.array([[c, 0.0, s], [0.0, 1.0, 0.0], [-s, 0.0, c]])

    def to_tool(self, x: float, y: float, up: float) -> np.ndarray:
        """Returns a point in T, (3,), from its x and y in B and its height above the sole, m."""
        return self.R_TB @ [x, y, -up] + [self.heel_x, 0.0, self.drop]

    @property
    def root(self) -> np.ndarray:
        """Position in T of the middle of the blade's rear end, (3,), m."""
        return self.to_tool(-ROOT, 0.0, self.thickness / 2)

    @property
    def rise(self) -> float:
        """Height of the origin of T above a level sole, m."""
        return float(self.R_TB[:, 2] @ [self.heel_x, 0.0, self.drop])

    def thickness_at(self, x: float) -> float:
        """Returns the thickness of the blade at an x of B, m."""
        return self.thickness + (self.tip - self.thickness) * (x + ROOT) / (REACH + ROOT)


def build(params: PryBarParams, name: str) -> ModelDescription:
    """Returns the pry bar as a model of one link, `pry_bar`, in the frame T."""
    p = params
    points = {
        "left": p.to_tool(REACH, -p.width, 0.0),
        "right": p.to_tool(REACH, p.width, 0.0),
        "tip": p.to_tool(REACH, 0.0, 0.0),
        "heel": p.to_tool(0.0, 0.0, 0.0),
        "back": p.to_tool(0.0, 0.0, p.thickness_at(0.0)),
    }
    grip = grip_part(p.butt_x, p.nose_x, p.grip_z, p.roundness, p.grip)
    return rigid_model("tool", "pry_bar", name, (grip, _shank(p), _blade(p)), points)


def _blade(p: PryBarParams) -> PartDescription:
    """Makes the blade, a wedge with a plane sole."""

    def ring(x: float, half: float) -> np.ndarray:
        corners = [(-half, 0.0), (half, 0.0), (half, p.thickness_at(x)), (-half, p.thickness_at(x))]
        return np.array([p.to_tool(x, *corner) for corner in corners])

    wedge = loft([ring(-ROOT, p.shank), ring(REACH, p.width)])
    # A pitched blade has no coordinates in whole nanometres; rounding would bend its planes.
    return PartDescription("blade", wedge, p.body, (wedge,), collision_digits=15)


def _shank(p: PryBarParams) -> PartDescription:
    """Makes the shank, which curves from the handle down to the blade."""
    half = min(p.thickness, 2 * p.grip_z) / 2
    start, end = np.array([p.nose_x, 0.0, 0.0]), p.root
    first, last = 0.5 * np.linalg.norm(end - start) * np.stack([[1.0, 0.0, 0.0], p.R_TB[:, 0]])
    knots = np.stack([start, start + first, end - last, end])

    def ring(t: float, section: Section, points: int) -> np.ndarray:
        """A section across the Bezier curve of the knots."""
        weights = [(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3]
        rates = [-((1 - t) ** 2), (1 - t) * (1 - 3 * t), t * (2 - 3 * t), t**2]
        x, _, z = np.array(rates) @ knots
        across = np.array([[-z, 0.0], [0.0, math.hypot(x, z)], [x, 0.0]]) / math.hypot(x, z)
        outline = section_ring(section, 0.0, points)[:, :2]
        return np.array(weights) @ knots + outline @ across.T

    visual = loft([ring(t, Section(half, p.shank, 0.4 * half), 3) for t in np.linspace(0, 1, 11)])
    straight = loft([ring(t, rectangle(half, p.shank), 1) for t in (0.0, 1.0)])
    return PartDescription("shank", visual, p.body, (straight,), collision_digits=15)


BLUED = HARD_STEEL.coloured(0.15, 0.17, 0.22)
RED_PAINT, BLUE_PAINT = HARD_STEEL.coloured(0.70, 0.12, 0.10), HARD_STEEL.coloured(0.10, 0.25, 0.55)

CATALOGUE = {
    "flat_bar": PryBarParams(grip_z=0.008, grip=BLUE_PAINT, body=BLUE_PAINT),
    "crowbar": PryBarParams(
        butt_x=-0.100, nose_x=0.080, grip_z=0.009, roundness=1.0, heel_x=0.165, drop=0.030,
        thickness=0.010, shank=0.009, width=0.012, grip=RED_PAINT, body=RED_PAINT,
    ),
    "tyre_lever": PryBarParams(
        butt_x=-0.075, grip_z=0.008, roundness=0.6, heel_x=0.145, drop=0.038, pitch_deg=12,
        shank=0.008, tip=0.003, thickness=0.008, grip=CHROME, body=CHROME,
    ),
    "wrecking_bar": PryBarParams(
        butt_x=-0.110, nose_x=0.070, grip_z=0.006, roundness=0.3, heel_x=0.160, drop=0.026,
        pitch_deg=18, shank=0.012, width=0.015, tip=0.004, thickness=0.010, grip=BLUED, body=BLUED,
    ),
    "case_opener": PryBarParams(
        nose_x=0.070, grip_z=0.013, roundness=1.0, heel_x=0.150, drop=0.042, pitch_deg=8,
        shank=0.009, width=0.016, tip=0.0025, thickness=0.007, grip=ASH, body=CHROME,
    ),
    "sparkless_bar": PryBarParams(
        heel_x=0.150, drop=0.030, pitch_deg=16, width=0.014, grip=HICKORY, body=HARD_BRASS,
    ),
    "trim_lever": PryBarParams(
        butt_x=-0.070, nose_x=0.065, grip_z=0.012, roundness=0.9, heel_x=0.142, drop=0.045,
        pitch_deg=10, shank=0.007, width=0.017, tip=0.003, thickness=0.008, grip=YELLOW_PLASTIC,
        body=BLUED,
    ),
    "mine_bar": PryBarParams(
        butt_x=-0.090, nose_x=0.055, grip_z=0.014, roundness=1.0, heel_x=0.158, drop=0.035,
        pitch_deg=14, shank=0.011, width=0.012, thickness=0.011, grip=FIBREGLASS, body=BLUED,
    ),
}  # fmt: skip


def draw(rng: np.random.Generator) -> PryBarParams:
    """Returns the parameters of a random plausible pry bar."""
    pitch_deg, rise = rng.uniform(8.0, 18.0), rng.uniform(0.064, 0.076)
    pitch, heel_x = math.radians(pitch_deg), rng.uniform(0.142, 0.165)
    body = (HARD_STEEL, CHROME, BLUED, RED_PAINT, BLUE_PAINT, HARD_BRASS)[rng.integers(6)]
    return PryBarParams(
        butt_x=rng.uniform(-0.110, -0.070),
        nose_x=rng.uniform(0.055, 0.070),
        grip_z=rng.uniform(0.008, 0.014),
        roundness=rng.uniform(0.3, 1.0),
        heel_x=heel_x,
        drop=(rise - heel_x * math.sin(pitch)) / math.cos(pitch),
        pitch_deg=pitch_deg,
        shank=rng.uniform(0.007, 0.012),
        width=rng.uniform(0.012, 0.017),
        tip=rng.uniform(0.0025, 0.004),
        thickness=rng.uniform(0.007, 0.011),
        grip=(body, ASH, HICKORY, FIBREGLASS, YELLOW_PLASTIC)[rng.integers(5)],
        body=body,
    )


def tip_thickness(geometry: ModelGeometry) -> Values:
    """Returns the thickness of the blade as far behind its tip as it goes under a lid, m."""
    along, up = geometry.axis("heel", "tip"), geometry.axis("heel", "back")
    point = geometry.p_M["tip"] - INSERTION * along
    return {"": thickness(geometry, point, perpendicular(up, along))}


RULES = (
    Rule(
        "thickness of the blade 12 mm behind its tip",
        tip_thickness,
        "mm",
        low=0.002,
        high=SLOT - 0.0015,
        reason="it goes into a slot of 7 mm, 1 mm above the sill",
        remedy="Else import its mesh with finer convex pieces.",
        scales=True,
    ),
    Rule(
        "distance of heel from tip",
        lambda geometry: {"": float(np.linalg.norm(geometry.p_M["tip"] - geometry.p_M["heel"]))},
        "mm",
        low=REACH - 0.004,
        high=REACH + 0.004,
        reason="the expert brings `heel` to the sill's edge, and the tip is then 12 mm under the "
        "lid; behind the lid there is no room",
        remedy="Move `heel` along the sole to 45 mm behind `tip`.",
    ),
    right_angles(
        ("heel", "back"),
        ("left", "right"),
        ("heel", "tip"),
        reason="the expert levels the sole, within 0.5 degrees",
        remedy="Place `back` straight above `heel`, `left` and `right` at one height.",
    ),
)


FAMILY = Family(
    kind="tool",
    keypoints={
        "left": Meaning("one end of the tip's edge, on the underside"),
        "right": Meaning("the other end of the tip's edge"),
        "tip": Meaning("the middle of the tip's edge", middle("left", "right")),
        "heel": Meaning("on the underside, 45 mm behind the tip, where the bar bears on an edge"),
        "back": Meaning("on the upper side of the blade, above `heel`", behind("heel")),
    },
    catalogue=CATALOGUE,
    build=build,
    draw=draw,
    mass_bounds=MASS_BOUNDS,
    rules=RULES,
    alignment=HandAlignment("tip", ("back", "heel"), ("heel", "tip"), tilt_deg=80),
    working_parts=("blade",),
)
