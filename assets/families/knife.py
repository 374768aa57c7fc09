"""Knives: a blade in front of the handle, its edge on the side away from the palm.

In the tool frame T the handle is the x axis, and the edge is parallel to it at z = depth. The blade
is a wedge: thick at the spine, and as thin at the edge as a butter knife, which separates objects
without cutting them.
"""

from dataclasses import dataclass

import numpy as np

from fleet_tools.assets.families import Family, HandAlignment, Meaning, behind, middle
from fleet_tools.assets.model_description import (
    ASH,
    BEECH,
    BRASS,
    FORGED_STEEL,
    HICKORY,
    NYLON,
    STEEL,
    Material,
    ModelDescription,
    PartDescription,
    rigid_model,
)
from fleet_tools.assets.model_geometry import ModelGeometry
from fleet_tools.assets.parametric import GRIP, GRIP_END, along_x
from fleet_tools.assets.rules import (
    Rule,
    Values,
    most,
    on_surface,
    perpendicular,
    right_angles,
    thickness,
)
from fleet_tools.assets.solids import (
    Section,
    Solid,
    circle,
    fillet,
    frusta,
    loft,
    rectangle,
    section_loft,
    section_ring,
)

BOLSTER = 0.008
"""Length of the metal between handle and blade, m."""

MASS_BOUNDS = (0.12, 0.5)
"""Least and greatest plausible mass, kg."""

EBONY = HICKORY.coloured(0.20, 0.15, 0.12)
BLACK_NYLON = NYLON.coloured(0.13, 0.13, 0.14)
BLUE_NYLON = NYLON.coloured(0.12, 0.28, 0.55)
OLIVE_WOOD = BEECH.coloured(0.66, 0.52, 0.30)


@dataclass(frozen=True)
class KnifeParams:
    """The parameters of a knife, lengths in m; the blade is a trapezoid in side view.

    Attributes:
        butt_x: x of the handle's free end; negative.
        neck_y, neck_z: Half widths of the handle where it meets the bolster.
        heel_x: x at which the blade begins.
        edge_x: x at which the edge ends.
        nose_x: x at which the spine ends: beyond `edge_x` for a nose that slants upwards, as on a
            chef's knife, before it for one that slants downwards, like a santoku's.
        spine_z: z of the spine; negative is behind the handle's axis.
        depth: z of the edge.
        spine, edge: Half thicknesses of the blade at its spine and at its edge.
        handle: Material of the handle.
        blade: Material of bolster and blade.
    """

    butt_x: float
    neck_y: float
    neck_z: float
    heel_x: float
    edge_x: float
    nose_x: float
    spine_z: float
    depth: float
    spine: float = 0.0015
    edge: float = 0.0003
    handle: Material = EBONY
    blade: Material = STEEL

    @property
    def middle_x(self) -> float:
        """X of the middle of the edge."""
        return (self.heel_x + self.edge_x) / 2


def build(params: KnifeParams, name: str) -> ModelDescription:
    """Returns the knife as a model of one link, `knife`, in the frame T."""
    p = params
    points = {
        "edge": (p.middle_x, 0.0, p.depth),
        "spine": (p.middle_x, 0.0, p.spine_z),
        "heel": (p.heel_x, 0.0, p.depth),
        "tip": (p.edge_x, 0.0, p.depth),
    }
    return rigid_model("tool", "knife", name, (_handle(p), _bolster(p), _blade(p)), points)


def _neck(p: KnifeParams) -> Section:
    return Section(p.neck_z, p.neck_y, 0.7 * min(p.neck_y, p.neck_z))


def _handle(p: KnifeParams) -> PartDescription:
    end = p.heel_x - BOLSTER
    grip, neck = circle(GRIP), _neck(p)
    back, front = (-GRIP_END, grip), (GRIP_END, grip)
    profile = [(p.butt_x, circle(0.75 * GRIP)), (p.butt_x + 0.003, circle(0.97 * GRIP))]
    profile += [back, front, *fillet(front, (end, neck))]
    (rod,) = frusta([(p.butt_x, grip), (end, neck)], 2)
    visual, collision = map(along_x, (section_loft(profile, 5), rod))
    return PartDescription("handle", visual, p.handle, (collision,))


def _bolster(p: KnifeParams) -> PartDescription:
    """Makes the bolster; the handle's end beside it is wider, so that it needs no collision."""
    neck = _neck(p)
    thin = Section(neck.half_x, max(p.spine, 0.4 * p.neck_y), 0.4 * min(p.neck_z, p.neck_y))
    stations = [(p.heel_x - BOLSTER, neck), (p.heel_x, thin)]
    return PartDescription("bolster", along_x(section_loft(stations, 5)), p.blade)


def _blade(p: KnifeParams) -> PartDescription:
    wedge = _wedge(p)
    return PartDescription("blade", wedge, p.blade, (wedge,))


def _wedge(p: KnifeParams) -> Solid:
    """Makes a solid of six plane sides: each has two edges that are parallel to x or y."""

    def level(z: float, end_x: float, half: float) -> np.ndarray:
        length, middle = (round(v, 9) for v in ((end_x - p.heel_x) / 2, (end_x + p.heel_x) / 2))
        return section_ring(rectangle(length, half), z, 1, (middle, 0.0))

    return loft([level(p.spine_z, p.nose_x, p.spine), level(p.depth, p.edge_x, p.edge)])


CATALOGUE = {
    "chef": KnifeParams(
        butt_x=-0.075, neck_y=0.0125, neck_z=0.0135,
        heel_x=0.060, edge_x=0.180, nose_x=0.215, spine_z=-0.010, depth=0.042,
    ),
    "santoku": KnifeParams(
        butt_x=-0.070, neck_y=0.0125, neck_z=0.0125,
        heel_x=0.058, edge_x=0.190, nose_x=0.160, spine_z=-0.008, depth=0.043,
        spine=0.0013, handle=OLIVE_WOOD,
    ),
    "cleaver": KnifeParams(
        butt_x=-0.070, neck_y=0.0130, neck_z=0.0140,
        heel_x=0.056, edge_x=0.180, nose_x=0.180, spine_z=-0.012, depth=0.056,
        spine=0.0018, edge=0.0004, handle=HICKORY, blade=FORGED_STEEL,
    ),
    "bread": KnifeParams(
        butt_x=-0.080, neck_y=0.0120, neck_z=0.0135,
        heel_x=0.057, edge_x=0.225, nose_x=0.222, spine_z=0.002, depth=0.040,
        spine=0.0012, handle=BLACK_NYLON,
    ),
    "cheese": KnifeParams(
        butt_x=-0.065, neck_y=0.0120, neck_z=0.0120,
        heel_x=0.060, edge_x=0.170, nose_x=0.185, spine_z=-0.004, depth=0.044,
        spine=0.0020, edge=0.0004, handle=BEECH, blade=BRASS,
    ),
    "butter": KnifeParams(
        butt_x=-0.060, neck_y=0.0110, neck_z=0.0120,
        heel_x=0.055, edge_x=0.165, nose_x=0.150, spine_z=-0.002, depth=0.040,
        spine=0.0016, edge=0.0005, handle=NYLON.coloured(0.90, 0.88, 0.82),
    ),
    "herb": KnifeParams(
        butt_x=-0.060, neck_y=0.0125, neck_z=0.0140,
        heel_x=0.055, edge_x=0.185, nose_x=0.130, spine_z=-0.012, depth=0.050,
        spine=0.0014, handle=BLUE_NYLON,
    ),
    "paring": KnifeParams(
        butt_x=-0.065, neck_y=0.0120, neck_z=0.0125,
        heel_x=0.065, edge_x=0.160, nose_x=0.195, spine_z=-0.003, depth=0.041,
        spine=0.0012, handle=ASH,
    ),
}  # fmt: skip


def draw(rng: np.random.Generator) -> KnifeParams:
    """Returns the parameters of a random plausible knife."""
    heel_x, neck_z = rng.uniform(0.055, 0.065), rng.uniform(0.0115, 0.014)
    edge_x = heel_x + rng.uniform(0.10, 0.16)
    return KnifeParams(
        butt_x=rng.uniform(-0.080, -0.055),
        neck_y=rng.uniform(0.0115, 0.013),
        neck_z=neck_z,
        heel_x=heel_x,
        edge_x=edge_x,
        nose_x=edge_x + rng.uniform(-0.04, 0.04),
        spine_z=rng.uniform(-0.9 * neck_z, 0.002),
        depth=rng.uniform(0.040, 0.055),
        spine=rng.uniform(0.0012, 0.0020),
        edge=rng.uniform(0.0003, 0.0005),
        handle=(ASH, BEECH, HICKORY, EBONY, OLIVE_WOOD, BLACK_NYLON)[rng.integers(6)],
        blade=(STEEL, FORGED_STEEL, BRASS)[rng.integers(3)],
    )


ABOVE_EDGE = 0.0005
"""Distance from the edge at which the blade's thickness is measured, m."""


def edge_thickness(geometry: ModelGeometry) -> Values:
    """Returns the thickness of the blade at its edge, by keypoint, m."""
    along = geometry.axis("heel", "tip")
    down = perpendicular(geometry.axis("spine", "edge"), along)
    sideways, edge = np.cross(along, down), geometry.p_M["edge"]
    half = float(np.linalg.norm(geometry.p_M["tip"] - geometry.p_M["heel"])) / 2
    points = [edge + s * half * along - ABOVE_EDGE * down for s in (-0.8, 0.0, 0.8)]
    return {"": most(thickness(geometry, point, sideways) for point in points)}


RULES = (
    Rule(
        "thickness of the edge",
        edge_thickness,
        "mm",
        high=0.004,
        reason="the edge goes in between blocks that touch; a thicker one comes down on them",
        remedy="Grind the blade to a wedge, or import it with finer convex pieces.",
    ),
    on_surface(
        "edge",
        "heel",
        "tip",
        high=0.002,
        reason="the expert brings `edge` to 4 mm above the table, and the line from `heel` to "
        "`tip` along the seam",
        remedy="Move these keypoints onto the edge: its rear end, middle and front end.",
    ),
    right_angles(
        ("spine", "edge"),
        ("heel", "tip"),
        deg=1,
        reason="the expert levels the edge and holds the blade upright, within 0.5 degrees each",
        remedy="Place `spine` straight above `edge`, at a right angle to the edge.",
    ),
)


FAMILY = Family(
    kind="tool",
    keypoints={
        "heel": Meaning("the end of the edge near the handle"),
        "tip": Meaning("the front end of the edge"),
        "edge": Meaning("the middle of the edge", middle("heel", "tip")),
        "spine": Meaning("on the back of the blade, above the edge", behind("edge")),
    },
    catalogue=CATALOGUE,
    build=build,
    draw=draw,
    mass_bounds=MASS_BOUNDS,
    rules=RULES,
    alignment=HandAlignment("tip", ("spine", "edge"), ("heel", "edge", "tip"), tilt_deg=80),
    working_parts=("blade",),
)
