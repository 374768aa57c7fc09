"""The parts of a wrench as solids; for the frames T and J see `wrench_params`."""

import math

import numpy as np

from fleet_tools.assets.families.grip import GRIP, Z_TO_X, along_x
from fleet_tools.assets.families.wrench_params import (
    AT_BACK,
    AT_CORNER,
    AT_LIP,
    AT_ROOT,
    AT_TIP,
    PAD,
    THROAT,
    WrenchParams,
)
from fleet_tools.assets.model_description import PartDescription
from fleet_tools.assets.solids import (
    Section,
    Solid,
    circle,
    joined,
    loft,
    rectangle,
    section_loft,
    section_ring,
)

CORNERS = 4
"""Corner points of a handle's section."""

TAIL, TAIL_BORE = 0.019, 0.58
"""Radius of a ring or fork at the handle's free end, m, and that of its hole as a fraction."""


def wrench_parts(params: WrenchParams) -> tuple[PartDescription, ...]:
    """Makes the parts of a wrench, in T."""
    return (_grip(params), _shank(params), *_head(params), *_tail(params))


def _prism(outline: np.ndarray, half: float) -> Solid:
    """Makes a prism over a convex outline (n, 2) of the x-y plane, |z| <= half."""
    outline = np.round(outline, 9)
    return loft([np.column_stack([outline, np.full(len(outline), z)]) for z in (-half, half)])


def _ribbon(inner: np.ndarray, outer: np.ndarray, half: float, bevel: float) -> Solid:
    """Makes a solid between two curves in the x-y plane, bevelled along the outer one.

    Args:
        inner: Points of the one curve, (n, 2), m.
        outer: Points of the other curve, (n, 2), m, opposite those of the inner one.
        half: Half the height, m.
        bevel: Width of the bevels, m.
    """
    rings = []
    for a, b in zip(inner, outer, strict=True):
        inset = b + (a - b) * bevel / np.linalg.norm(a - b)
        corners = [(a, -half), (inset, -half), (b, bevel - half), (b, half - bevel),
                   (inset, half), (a, half)]  # fmt: skip
        rings.append(np.array([(*point, z) for point, z in corners]))
    return loft(rings)


def _head(p: WrenchParams) -> tuple[PartDescription, ...]:
    """Makes the two prongs and the bridge behind the throat, and the sliding jaw, if any."""
    half, mirror = p.thickness, np.array([1.0, -1.0])
    t = _outline_parameters(p)
    left = p.inner_edge(t) * mirror, p.outer_edge(t) * mirror
    right = p.inner_edge(t), p.outer_edge(t)
    first = 0
    slide: tuple[PartDescription, ...] = ()
    if p.sliding:  # the right half begins at the throat's corner
        first = int(np.argmax(t >= AT_ROOT))
        slide = (_sliding_jaw(p),)
    inner, outer = (
        np.concatenate([one, other[: first - 1 if first else None : -1]])
        for one, other in zip(left, right, strict=True)
    )
    visual = _ribbon(inner, outer, half, min(0.0025, half / 2))
    outlines = [*_prong(p, mirror), _bridge(p)]
    outlines += [] if p.sliding else _prong(p, np.ones(2))
    collision = tuple(p.to_tool(_prism(outline, half)) for outline in outlines)
    return PartDescription("head", p.to_tool(visual), p.body, collision), *slide


def _outline_parameters(p: WrenchParams) -> np.ndarray:
    """Returns parameters of the outline's points: even steps, and every bend of either edge."""
    bends = [AT_ROOT, *AT_CORNER, *([AT_LIP] if p.lips else [])]
    even = np.linspace(AT_TIP, AT_BACK, p.facets + 1)
    apart = even[np.min(np.abs(even[:, None] - bends), axis=1) > 0.02]
    return np.sort(np.concatenate([apart, bends]))


def _prong(p: WrenchParams, side: np.ndarray) -> list[np.ndarray]:
    """Returns convex outlines of a prong over the length of its pad, and of its lip, if any."""
    start = AT_LIP if p.lips else AT_TIP
    arc = [AT_ROOT, start] if p.lips else [AT_ROOT, (start + AT_ROOT) / 2, start]
    pad = np.array([(p.reach, PAD), (-THROAT, PAD)])
    outlines = [np.concatenate([pad, p.outer_edge(np.array(arc))])]
    if p.lips:
        ends = np.array([AT_LIP, AT_TIP])
        outlines.append(np.concatenate([p.inner_edge(ends[::-1]), p.outer_edge(ends)]))
    return [outline * side for outline in outlines]


def _bridge(p: WrenchParams) -> np.ndarray:
    """Returns the convex outline of the head behind the throat."""
    half = np.concatenate([[(-THROAT, PAD)], p.outer_edge(np.array([AT_ROOT, AT_BACK]))])
    return np.concatenate([half, half[::-1] * [1.0, -1.0]])


def _sliding_jaw(p: WrenchParams) -> PartDescription:
    """Makes a straight jaw with a knurled roll, which is not in the collision geometry."""
    top, root = PAD + p.sliding, p.outer_edge(np.array([AT_ROOT]))[0]
    outline = np.array(
        [(p.reach, PAD), (-THROAT, PAD), root, (root[0], top), (p.reach - 0.006, top)]
    )
    solid = _prism(outline, p.thickness)
    z = [0.001 * k for k in range(9)]
    knurl = [(-0.012 + h, circle(0.0035 - 0.0006 * (k % 2))) for k, h in enumerate(z)]
    turned = section_loft(knurl, 3).transformed(Z_TO_X, (0.0, top + 0.0036, 0.0))
    visual = joined(solid, turned)
    return PartDescription("slide", p.to_tool(visual), p.grip, (p.to_tool(solid),))


def _section(p: WrenchParams) -> Section:
    return Section(p.grip_z, GRIP, p.roundness * p.grip_z)


def _grip(p: WrenchParams) -> PartDescription:
    """Makes the handle from the butt, which is rounded, to the shank."""
    full = _section(p)
    end = full.interpolated(Section(0.6 * p.grip_z, 0.7 * GRIP, 0.6 * p.roundness * p.grip_z), 1.0)
    profile = [(p.butt_x, end), (p.butt_x + 0.003, end.interpolated(full, 0.75))]
    profile += [(p.butt_x + 0.009, full), (p.shank_x, full)]
    collision = [section_ring(rectangle(p.grip_z, GRIP), x, 1) for x in (p.butt_x, p.shank_x)]
    visual = loft([section_ring(section, x, CORNERS) for x, section in profile])
    return PartDescription("grip", along_x(visual), p.grip, (along_x(loft(collision)),))


def _shank(p: WrenchParams) -> PartDescription:
    """Makes the shank, which curves sideways and down to the plane where the head begins."""
    full, neck = _section(p), Section(p.neck_z, p.neck_y, p.roundness * p.neck_z)
    end_T = p.p_TJ - p.R_TJ @ [p.back, 0.0, 0.0]
    length = end_T[0] - p.shank_x
    rings = []
    for t in np.linspace(0.0, 0.9, 9):
        s = t * t * (3 - 2 * t)
        # The section's x is -z_T; see `along_x`.
        axis = (-s * p.drop, s * end_T[1])
        rings.append(
            section_ring(full.interpolated(neck, s), p.shank_x + t * length, CORNERS, axis)
        )
    flat = section_ring(neck, 0.0, CORNERS) @ Z_TO_X.T
    visual = loft([*(ring @ Z_TO_X.T for ring in rings), flat @ p.R_TJ.T + end_T])
    y = round(end_T[1], 9)
    collision = [
        section_ring(rectangle(p.grip_z, GRIP), p.shank_x, 1),
        section_ring(rectangle(p.neck_z, p.neck_y), round(end_T[0], 9), 1, (-p.drop, y)),
    ]
    return PartDescription("shank", visual, p.body, (along_x(loft(collision)),))


def _tail(p: WrenchParams) -> tuple[PartDescription, ...]:
    """Makes the ring or the smaller fork behind the butt, and the web between them, if any."""
    if p.tail == "plain":
        return ()
    half = min(p.grip_z, p.thickness)
    start = math.asin(0.6 * GRIP / TAIL)  # angle at which the outline meets the butt
    sweeps = {
        "ring": [(start, 2 * math.pi - start)],
        "fork": [(start, 0.72 * math.pi), (2 * math.pi - start, 1.28 * math.pi)],
    }[p.tail]
    arcs = []
    for first, last in sweeps:
        angles = np.linspace(first, last, 25)
        rim = TAIL * np.column_stack([np.cos(angles), np.sin(angles)])
        arcs.append(_ribbon(TAIL_BORE * rim, rim, half, min(0.0015, half / 2)))
    corner = TAIL * np.array([math.cos(start), math.sin(start)])
    mirror = np.array([1.0, -1.0])
    web = np.array([TAIL_BORE * corner, corner, corner * mirror, TAIL_BORE * corner * mirror])
    visual = joined(*arcs, _prism(web, 0.9 * half))
    square = 0.85 * TAIL * np.array([(1, 1), (-1, 1), (-1, -1), (1, -1)])
    centre = (round(p.butt_x - corner[0], 9), 0.0, 0.0)
    visual, collision = (s.transformed(np.eye(3), centre) for s in (visual, _prism(square, half)))
    return (PartDescription("tail", visual, p.body, (collision,)),)
