"""Spatulas: a tapered blade, whose plane sole lies on the table, in front of and below a handle.

In the tool frame T the handle is the x axis. The blade's sole extends from the heel, at the neck,
to the edge; where the blade is inclined to the handle, the blade is level at work.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fleet_tools.assets.model_description import (
    BEECH,
    HICKORY,
    NYLON,
    STEEL,
    Material,
    PartDescription,
)
from fleet_tools.assets.parametric import GRIP, GRIP_END, along_x, check_parameters
from fleet_tools.assets.solids import Section, Solid, joined, loft, section_ring

EDGE = 0.0003
"""Thickness of the blade's edge, m: thin enough to slide under an object that lies flat."""

CLEARANCE = 0.045
"""Least height of the grip above a table on which the sole lies, m; the fingers need it."""

SPRING_STEEL = replace(STEEL, modulus=1e7, friction=0.2, dissipation=50.0)
HOLLOW_STEEL = replace(SPRING_STEEL, density=1500.0)  # mean density of a hollow handle
BLACK_NYLON = replace(NYLON, modulus=1e7, friction=0.2, dissipation=50.0).coloured(0.13, 0.13, 0.14)
MAPLE = replace(BEECH, modulus=1e7, friction=0.25, dissipation=50.0).coloured(0.85, 0.68, 0.47)

SQUARE = 1
"""Corner points of rectangular sections."""

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

    def __post_init__(self) -> None:
        """Refuses impossible parameters with a ValueError."""
        rules = {
            "butt_x < -GRIP_END": self.butt_x < -GRIP_END,
            "GRIP_END < handle_x < heel_x": GRIP_END < self.handle_x < self.heel_x,
            "handle_z <= GRIP": self.handle_z <= GRIP,
            "neck < heel": self.neck < self.heel,
            "thickness > EDGE": self.thickness > EDGE,
            "corner < edge, length / 3": self.corner < min(self.edge, self.length / 3),
            "slots even": self.slots % 2 == 0,
            "grip clear of the table": self.clearance >= CLEARANCE,
        }
        check_parameters("spatula", self, rules)

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


def spatula_parts(params: SpatulaParams) -> tuple[PartDescription, ...]:
    """Makes the parts of a spatula, in T."""
    return (_handle(params), _neck(params), _blade(params))


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
    """Makes one of the bars between the slots.

    Args:
        p: Parameters of the spatula.
        k: Index of the bar.
        back: Rear end of the bar, as a fraction of the way from heel to edge.
        front: Front end of the bar, likewise.
    """
    count = p.slots + 1
    half = BARS / count
    # Bars that reached the blade's corners would make the surface not watertight.
    centre = (2 * k / p.slots - 1) * (0.996 - half)
    return _wedge(p, [(s, half * p.width(s)) for s in (back, front)], centre)


def _wedge(p: SpatulaParams, outline: Sequence[tuple[float, float]], centre: float = 0.0) -> Solid:
    """Makes the part of the blade within an outline.

    Args:
        p: Parameters of the spatula.
        outline: Fractions of the way from heel to edge, and half widths there, m.
        centre: y of the middle of the part, as a fraction of half the blade's width.
    """
    stations = []
    for s, half_width in outline:
        half, y = p.taper(s) / 2, centre * p.width(s)
        x, z = p.heel_x + s * p.length, p.sole_z(s) - half
        stations.append((x, y, z, Section(half, half_width, 0.0)))
    return _lofted(stations, SQUARE)
