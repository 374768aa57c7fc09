"""Spatulas: a blade, whose plane sole lies on the table, in front of and below a handle.

In the tool frame T the handle is the x axis. The blade's sole extends from the heel, at the neck,
to the edge; where the blade is inclined to the handle, the blade is level at work.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fleet_tools.assets.families import Family, HandAlignment, Meaning, behind, middle
from fleet_tools.assets.model_description import (
    BEECH,
    FIBREGLASS,
    HICKORY,
    NYLON,
    RUBBER,
    STEEL,
    Material,
    ModelDescription,
    PartDescription,
    rigid_model,
)
from fleet_tools.assets.model_geometry import ModelGeometry
from fleet_tools.assets.parametric import GRIP, GRIP_END, along_x
from fleet_tools.assets.rules import Rule, Values, most, perpendicular, thickness
from fleet_tools.assets.solids import SQUARE, Section, Solid, joined, loft, section_ring

EDGE = 0.0003
"""Thickness of the blade's edge, m: thin enough to slide under an object that lies flat."""

CLEARANCE = 0.045
"""Least height of the grip above a table on which the sole lies, m; the fingers need it."""

SPRING_STEEL = replace(STEEL, modulus=1e7, friction=0.2, dissipation=50.0)
HOLLOW_STEEL = replace(SPRING_STEEL, density=1500.0)  # mean density of a hollow handle
BLACK_NYLON = replace(NYLON, modulus=1e7, friction=0.2, dissipation=50.0).coloured(0.13, 0.13, 0.14)
MAPLE = replace(BEECH, modulus=1e7, friction=0.25, dissipation=50.0).coloured(0.85, 0.68, 0.47)

BARS = 0.62
"""Fraction of a slotted blade's width that the bars between the slots take."""


@dataclass(frozen=True)
class SpatulaParams:
    """The parameters of a spatula: lengths in m, half widths from an axis to the surface.

    Attributes:
        butt_x: x of the handle's free end; negative.
        handle_x: x of the handle's other end, where the neck begins.
        handle_z: Half the height of the handle, which is as wide as the opening of the fingers.
        neck: Half the width of the neck at the handle.
        heel_x: x of the blade's heel.
        drop: Distance of the sole's heel below the handle's axis.
        incline: Slope of the sole towards the handle's axis, per length along it.
        length: Length of the blade along x.
        heel: Half the width of the blade at the heel.
        edge: Half the width of the blade at the edge.
        thickness: Thickness of the blade at the heel, from which it tapers to `EDGE`.
        corner: Length along x of the rounding of the edge's corners; may be 0.
        slots: Number of slots; even, so that there is a bar in the middle.
        handle: Material of the handle.
        blade: Material of neck and blade.
    """

    butt_x: float = -0.095
    handle_x: float = 0.050
    handle_z: float = 0.010
    neck: float = 0.008
    heel_x: float = 0.120
    drop: float = 0.050
    incline: float = 0.0
    length: float = 0.100
    heel: float = 0.035
    edge: float = 0.040
    thickness: float = 0.0045
    corner: float = 0.0
    slots: int = 0
    handle: Material = HICKORY
    blade: Material = SPRING_STEEL

    @property
    def clearance(self) -> float:
        """Distance of the origin of T from the sole's plane, m."""
        return (self.drop + self.incline * self.heel_x) / math.hypot(1, self.incline)

    def sole_z(self, s: float) -> float:
        """Returns z of the sole at a fraction of the way from heel to edge, m."""
        return self.drop - self.incline * s * self.length

    def taper(self, s: float) -> float:
        """Returns the thickness along z at a fraction of the way from heel to edge, m."""
        return self.thickness + s * (EDGE - self.thickness)

    def width(self, s: float) -> float:
        """Returns half the width at a fraction of the way from heel to edge, without rounding."""
        return self.heel + s * (self.edge - self.heel)


Station = tuple[float, float, float, Section]
"""x, y and z of a section's centre, m, and the section, whose x and y axes are -z and y of T."""


def _lofted(stations: Iterable[Station], corner_points: int) -> Solid:
    rings = [
        section_ring(section, round(x, 9), corner_points, (round(-z, 9), round(y, 9)))
        for x, y, z, section in stations
    ]
    return along_x(loft(rings))


def _handle(p: SpatulaParams) -> PartDescription:
    """Makes the handle: as wide as the fingers are open where it is held, and waisted behind."""

    def station(x: float, scale: float) -> Station:
        half_z, half_y = scale * p.handle_z, scale * GRIP
        return x, 0.0, 0.0, Section(half_z, half_y, 0.9 * half_z)

    waist_x = (p.butt_x - GRIP_END) / 2
    scales = [(p.butt_x, 0.6), (p.butt_x + 0.004, 0.92), (p.butt_x + 0.010, 1.0), (waist_x, 0.93)]
    scales += [(-GRIP_END, 1.0), (GRIP_END, 1.0), (p.handle_x - 0.004, 0.9), (p.handle_x, 0.7)]
    visual = _lofted((station(x, scale) for x, scale in scales), 4)
    block = Section(p.handle_z, GRIP, 0.0)
    collision = _lofted([(p.butt_x, 0.0, 0.0, block), (p.handle_x, 0.0, 0.0, block)], SQUARE)
    return PartDescription("handle", visual, p.handle, (collision,))


def _neck(p: SpatulaParams) -> PartDescription:
    """Makes the neck, a strap that curves down from the handle to the heel and widens there."""
    root_z, end_z = 0.0, p.sole_z(0) - p.thickness / 2
    high, low = min(p.neck, 0.6 * p.handle_z), p.thickness / 2
    wide = max(p.neck, 0.55 * p.heel)
    visual = []
    for t in np.linspace(0, 1, 9).tolist():
        bend, flare = t * t * (3 - 2 * t), t**3
        half_z, half_y = high + (low - high) * min(1, 2 * t), p.neck + (wide - p.neck) * flare
        section = Section(half_z, half_y, 0.5 * half_z)
        x = p.handle_x + t * (p.heel_x - p.handle_x)
        visual.append((x, 0.0, root_z + bend * (end_z - root_z), section))
    ends = [(p.handle_x, 0.0, root_z, Section(high, p.neck, 0.0))]
    ends.append((p.heel_x, 0.0, end_z, Section(low, wide, 0.0)))
    return PartDescription("neck", _lofted(visual, 3), p.blade, (_lofted(ends, SQUARE),))


def _blade(p: SpatulaParams) -> PartDescription:
    """Makes the blade, a wedge with a plane sole; its collision geometry has no slots."""
    start = 1 - p.corner / p.length
    rim, curve = [(1.0, p.edge)], []
    if p.corner:
        rim = [(start, p.width(start)), (1.0, p.edge - 0.6 * p.corner)]
        for angle in np.linspace(0, math.pi / 2, 6)[1:-1].tolist():
            s = start + (1 - start) * math.sin(angle)
            curve.append((s, p.width(s) - 0.6 * p.corner * (1 - math.cos(angle))))
    outline = [*rim[:-1], *curve, rim[-1]]
    collision = [_wedge(p, pair) for pair in itertools.pairwise([(0.0, p.heel), *rim])]
    if not p.slots:
        visual = _wedge(p, [(0.0, p.heel), *outline])
    else:
        back, front = 0.14, min(0.84, start - 0.02)
        visual = joined(
            _wedge(p, [(0.0, p.heel), (back, p.width(back))]),
            *(_bar(p, k, back, front) for k in range(p.slots + 1)),
            _wedge(p, [(front, p.width(front)), *outline]),
        )
    return PartDescription("blade", visual, p.blade, tuple(collision))


def _bar(p: SpatulaParams, k: int, back: float, front: float) -> Solid:
    """Makes bar k between the slots; its ends are fractions of the way from heel to edge."""
    count = p.slots + 1
    half = BARS / count
    # Bars that reached the blade's corners would make the surface not watertight.
    centre = (2 * k / p.slots - 1) * (0.996 - half)
    return _wedge(p, [(s, half * p.width(s)) for s in (back, front)], centre)


def _wedge(p: SpatulaParams, outline: Sequence[tuple[float, float]], centre: float = 0.0) -> Solid:
    """Makes the part of the blade within an outline: fractions from heel to edge, and half widths.

    Its middle is at `centre`, a fraction of half the blade's width.
    """
    stations = []
    for s, half_width in outline:
        half, y = p.taper(s) / 2, centre * p.width(s)
        x, z = p.heel_x + s * p.length, p.sole_z(s) - half
        stations.append((x, y, z, Section(half, half_width, 0.0)))
    return _lofted(stations, SQUARE)


def build(params: SpatulaParams, name: str) -> ModelDescription:
    """Returns the spatula as a model of one link, `spatula`, in the frame T."""
    p = params
    middle_x = p.heel_x + p.length / 2
    # The keypoint `face` is the point of the upper side straight above the middle of a level sole.
    rate = (p.thickness - EDGE) / p.length
    rise = p.taper(0.5) / (1 + p.incline**2 - rate * p.incline)
    points = {
        "edge": (p.heel_x + p.length, 0.0, p.sole_z(1)),
        "heel": (p.heel_x, 0.0, p.sole_z(0)),
        "sole": (middle_x, 0.0, p.sole_z(0.5)),
        "face": (middle_x - p.incline * rise, 0.0, p.sole_z(0.5) - rise),
        "tail": (p.butt_x, 0.0, 0.0),
    }
    parts = _handle(p), _neck(p), _blade(p)
    return rigid_model("tool", "spatula", name, parts, points)


CATALOGUE = {
    "turner": SpatulaParams(),
    "fish_slice": SpatulaParams(
        butt_x=-0.090, heel_x=0.115, drop=0.045, incline=0.10, length=0.115, heel=0.030,
        edge=0.043, thickness=0.0042, slots=4, handle=BEECH,
    ),
    "burger_flipper": SpatulaParams(
        butt_x=-0.100, handle_x=0.055, handle_z=0.012, heel_x=0.110, drop=0.055, length=0.098,
        heel=0.045, edge=0.045, thickness=0.0050, handle=RUBBER,
    ),
    "pancake_turner": SpatulaParams(
        butt_x=-0.085, heel_x=0.125, drop=0.040, incline=0.15, length=0.100, heel=0.036,
        edge=0.044, thickness=0.0046, corner=0.016, handle=BLACK_NYLON, blade=BLACK_NYLON,
    ),
    "slotted_turner": SpatulaParams(
        butt_x=-0.090, neck=0.009, heel_x=0.130, drop=0.048, incline=0.06, length=0.102,
        heel=0.036, edge=0.039, thickness=0.0048, corner=0.010, slots=2, handle=BLACK_NYLON,
        blade=BLACK_NYLON,
    ),
    "wooden": SpatulaParams(
        butt_x=-0.100, handle_x=0.060, handle_z=0.009, neck=0.011, heel_x=0.125, drop=0.052,
        incline=0.04, length=0.095, heel=0.037, edge=0.041, thickness=0.0055, corner=0.012,
        handle=MAPLE, blade=MAPLE,
    ),
    "griddle_scraper": SpatulaParams(
        butt_x=-0.080, handle_x=0.045, handle_z=0.013, neck=0.014, heel_x=0.095, drop=0.060,
        length=0.090, heel=0.048, edge=0.048, thickness=0.0044, handle=FIBREGLASS,
    ),
    "cake_server": SpatulaParams(
        butt_x=-0.090, handle_z=0.008, neck=0.007, heel_x=0.110, drop=0.044, incline=0.12,
        length=0.108, heel=0.042, edge=0.034, thickness=0.0046, handle=HOLLOW_STEEL,
    ),
}  # fmt: skip


def draw(rng: np.random.Generator) -> SpatulaParams:
    """Returns the parameters of a random plausible spatula."""
    heel = rng.uniform(0.032, 0.044)
    incline = rng.uniform(0.0, 0.15)
    heel_x = rng.uniform(0.100, 0.130)
    handle, blade = (
        (HICKORY, SPRING_STEEL), (BEECH, SPRING_STEEL), (FIBREGLASS, SPRING_STEEL),
        (HOLLOW_STEEL, SPRING_STEEL), (RUBBER, BLACK_NYLON), (BLACK_NYLON, BLACK_NYLON),
        (MAPLE, MAPLE),
    )[rng.integers(7)]  # fmt: skip
    return SpatulaParams(
        butt_x=rng.uniform(-0.100, -0.080),
        handle_x=rng.uniform(0.045, 0.060),
        handle_z=rng.uniform(0.008, 0.013),
        neck=rng.uniform(0.007, 0.012),
        heel_x=heel_x,
        drop=rng.uniform(0.052, 0.060) - 0.8 * incline * heel_x,
        incline=incline,
        length=rng.uniform(0.092, 0.112),
        heel=heel,
        edge=heel * rng.uniform(0.95, 1.2),
        thickness=rng.uniform(0.0042, 0.0052),
        corner=(0.0, rng.uniform(0.008, 0.016))[rng.integers(2)],
        slots=(0, 0, 2, 4)[rng.integers(4)],
        handle=handle,
        blade=blade,
    )


BEHIND_EDGE = 0.0005
"""Distance behind the foremost point at which the edge's thickness is measured, m."""

WIDTHS = (-0.01, 0.0, 0.01)
"""Distances from the blade's middle line at which it is measured, m."""


def edge_thickness(geometry: ModelGeometry) -> Values:
    """Returns the greatest thickness of the blade at its edge, m."""
    along, left, up = _axes(geometry)
    edge = geometry.p_M["edge"]
    return {"": most(_thickness_at_edge(geometry, edge + y * left, along, up) for y in WIDTHS)}


def rise(geometry: ModelGeometry) -> Values:
    """Returns the angle at which the sole rises towards the edge, rad.

    It is measured from the plane at a right angle to sole -> face, which the expert levels.
    """
    return {"": math.atan(_slopes(geometry)[0])}


def roll(geometry: ModelGeometry) -> Values:
    """Returns the angle at which the sole rises to either side, likewise, rad."""
    return {"": abs(math.atan(_slopes(geometry)[1]))}


def sole_offset(geometry: ModelGeometry) -> Values:
    """Returns the height of the blade's underside above `sole`, m; negative below it."""
    _, _, up = _axes(geometry)
    starts = [start for start, _ in geometry.chords(geometry.p_M["sole"], up)]
    return {"": min(starts, key=abs, default=math.nan)}


def clearance(geometry: ModelGeometry) -> Values:
    """Returns the height of the hand's grasp above the sole, m."""
    _, _, up = _axes(geometry)
    return {"": float((geometry.X_MG.translation() - geometry.p_M["sole"]) @ up)}


def _axes(geometry: ModelGeometry) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    up = geometry.axis("sole", "face")
    along = perpendicular(geometry.axis("heel", "edge"), up)
    return along, np.cross(up, along), up


def _thickness_at_edge(
    geometry: ModelGeometry, edge: np.ndarray, along: np.ndarray, up: np.ndarray
) -> float:
    """Returns the thickness behind the foremost point near `edge`, a point of the edge, (3,), m."""
    # No step meets the plane of an edge that is at its keypoint, where rounding would decide.
    for back in np.arange(-0.001875, 0.015, 0.00025):
        if not math.isnan(thickness(geometry, edge - back * along, up)):
            return thickness(geometry, edge - (back + BEHIND_EDGE) * along, up)
    return math.nan


def _slopes(geometry: ModelGeometry) -> tuple[float, float]:
    """Returns the slopes of the underside of the blade, along it and to the left; NaN without one.

    A plane is fitted to the underside between `sole` and the ends of the blade.
    """
    along, left, up = _axes(geometry)
    sole = geometry.p_M["sole"]
    half = 0.8 * float((geometry.p_M["edge"] - sole) @ along)
    found = []
    for x in np.linspace(-half, half, 5):
        for y in WIDTHS:
            chords = geometry.chords(sole + x * along + y * left, up)
            starts = [start for start, _ in chords if abs(start) < 0.01]
            if starts:
                found.append((x, y, 1.0, min(starts, key=abs)))
    if len(found) < 4:
        return math.nan, math.nan
    samples = np.array(found)
    plane = np.linalg.lstsq(samples[:, :3], samples[:, 3], rcond=None)[0]
    return float(plane[0]), float(plane[1])


FACE_REMEDY = (
    "Place `face` straight above `sole`, along the normal of the blade's underside; the blade is "
    "so thin that 0.1 mm turn this axis by degrees."
)

RULES = (
    Rule(
        "edge thickness",
        edge_thickness,
        "mm",
        high=0.0007,
        reason="a thicker edge pushes thin slabs ahead of it instead of going under them",
        remedy="Sharpen the blade: taper it to 0.3 mm at the edge, from below or above.",
    ),
    Rule(
        "rise of the sole towards the edge",
        rise,
        "deg",
        low=math.radians(-5),
        high=math.radians(0.3),
        reason="the expert levels this plane, so that the edge of a sole that rises towards it "
        "stands above the table, and pushes slabs ahead of it",
        remedy=FACE_REMEDY,
    ),
    Rule(
        "rise of the sole to a side",
        roll,
        "deg",
        high=math.radians(1),
        reason="the expert levels this plane, so that one side of the edge stands above the table",
        remedy=FACE_REMEDY,
    ),
    Rule(
        "height of the underside above sole",
        sole_offset,
        "mm",
        low=-0.006,
        high=0.001,
        reason="the expert presses `sole` onto the table; a higher blade pushes slabs ahead of it",
        remedy="Move `sole` onto the underside, at the middle of the blade.",
    ),
    Rule(
        "height of the hand above the sole",
        clearance,
        "mm",
        low=CLEARANCE - 1e-6,
        reason="the fingers reach 45 mm below the grasp's origin, or they would touch the table",
        remedy="Bend the neck so that the handle is higher above the blade, or give a `grasp` "
        "farther up the handle.",
    ),
)


FAMILY = Family(
    kind="tool",
    keypoints={
        "edge": Meaning("the middle of the thin front edge, on the underside"),
        "heel": Meaning("where the blade begins at the neck, on the underside"),
        "sole": Meaning("the middle of the blade's underside", middle("edge", "heel")),
        "face": Meaning("on the upper side of the blade, above the sole", behind("sole")),
        "tail": Meaning("the end of the handle"),
    },
    catalogue=CATALOGUE,
    build=build,
    draw=draw,
    rules=RULES,
    alignment=HandAlignment("edge", ("face", "sole"), ("edge", "heel"), tilt_deg=110, lean_deg=55),
    working_parts=("blade",),
)
