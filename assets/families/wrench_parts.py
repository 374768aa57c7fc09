"""The parts of a wrench as solids; for the frames T and J see `wrench_params`."""

from __future__ import annotations

import math

import numpy as np

from ..model import Part
from ..solids import Section, Solid, circle, join, loft, rectangle, ring, stack
from .grip import GRIP, Z_TO_X, along_x
from .wrench_params import (
    AT_BACK,
    AT_CORNER,
    AT_LIP,
    AT_ROOT,
    AT_TIP,
    PAD,
    THROAT,
    WrenchParams,
)

CORNERS = 4
"""Points to a corner of a handle's section."""
TAIL, TAIL_BORE = 0.019, 0.58
"""Radius of a ring or fork at the handle's other end, m, and that of its hole in proportion."""


def wrench_parts(params: WrenchParams) -> tuple[Part, ...]:
    """All parts, in T."""
    return (_grip(params), _shank(params), *_head(params), *_tail(params))


# --- The head -------------------------------------------------------------------------------


def _prism(outline: np.ndarray, half: float) -> Solid:
    """A prism over an outline (n, 2) of the x-y plane, |z| <= half."""
    outline = np.round(outline, 9)
    return loft([np.column_stack([outline, np.full(len(outline), z)]) for z in (-half, half)])


def _ribbon(inner: np.ndarray, outer: np.ndarray, half: float, bevel: float) -> Solid:
    """A solid between two edges (n, 2) in step, |z| <= half, bevelled along the outer one."""
    rings = []
    for a, b in zip(inner, outer, strict=True):
        inset = b + (a - b) * bevel / np.linalg.norm(a - b)
        corners = [(a, -half), (inset, -half), (b, bevel - half), (b, half - bevel),
                   (inset, half), (a, half)]  # fmt: skip
        rings.append(np.array([(*point, z) for point, z in corners]))
    return loft(rings)


def _head(p: WrenchParams) -> tuple[Part, ...]:
    """Two prongs and what joins them behind the throat."""
    half, mirror = p.thickness, np.array([1.0, -1.0])
    steps = _steps(p)
    left = p.inner_edge(steps) * mirror, p.outer_edge(steps) * mirror
    right = p.inner_edge(steps), p.outer_edge(steps)
    first = 0
    slide: tuple[Part, ...] = ()
    if p.sliding:  # the right half begins at the throat's corner
        first = int(np.argmax(steps >= AT_ROOT))
        slide = (_sliding_jaw(p),)
    inner, outer = (
        np.concatenate([one, other[: first - 1 if first else None : -1]])
        for one, other in zip(left, right, strict=True)
    )
    seen = _ribbon(inner, outer, half, min(0.0025, half / 2))
    felt = [*_prong(p, mirror), _bottom(p)]
    felt += [] if p.sliding else _prong(p, np.ones(2))
    head = Part("head", p.to_tool(seen), p.body, tuple(p.to_tool(_prism(f, half)) for f in felt))
    return head, *slide


def _steps(p: WrenchParams) -> np.ndarray:
    """Where along its outline the head is cut: evenly, and at every bend of either edge."""
    bends = [AT_ROOT, *AT_CORNER, *([AT_LIP] if p.lips else [])]
    even = np.linspace(AT_TIP, AT_BACK, p.facets + 1)
    apart = even[np.min(np.abs(even[:, None] - bends), axis=1) > 0.02]
    return np.sort(np.concatenate([apart, bends]))


def _prong(p: WrenchParams, side: np.ndarray) -> list[np.ndarray]:
    """Convex outlines of one prong: as long as its pad, and of its lip."""
    start = AT_LIP if p.lips else AT_TIP
    arc = [AT_ROOT, start] if p.lips else [AT_ROOT, (start + AT_ROOT) / 2, start]
    pad = np.array([(p.reach, PAD), (-THROAT, PAD)])
    outlines = [np.concatenate([pad, p.outer_edge(np.array(arc))])]
    if p.lips:
        ends = np.array([AT_LIP, AT_TIP])
        outlines.append(np.concatenate([p.inner_edge(ends[::-1]), p.outer_edge(ends)]))
    return [outline * side for outline in outlines]


def _bottom(p: WrenchParams) -> np.ndarray:
    """The convex outline of what lies behind the throat."""
    half = np.concatenate([[(-THROAT, PAD)], p.outer_edge(np.array([AT_ROOT, AT_BACK]))])
    return np.concatenate([half, half[::-1] * [1.0, -1.0]])


def _sliding_jaw(p: WrenchParams) -> Part:
    """A straight jaw with a knurled roll on it, seen and felt alike but for the roll."""
    top, root = PAD + p.sliding, p.outer_edge(np.array([AT_ROOT]))[0]
    outline = np.array(
        [(p.reach, PAD), (-THROAT, PAD), root, (root[0], top), (p.reach - 0.006, top)]
    )
    solid = _prism(outline, p.thickness)
    z = [0.001 * k for k in range(9)]
    knurl = [(-0.012 + h, circle(0.0035 - 0.0006 * (k % 2))) for k, h in enumerate(z)]
    turned = stack(knurl, 3).transformed(Z_TO_X, (0.0, top + 0.0036, 0.0))
    seen = join(solid, turned)
    return Part("slide", p.to_tool(seen), p.grip, (p.to_tool(solid),))


# --- The handle -----------------------------------------------------------------------------


def _section(p: WrenchParams) -> Section:
    return Section(p.grip_z, GRIP, p.roundness * p.grip_z)


def _grip(p: WrenchParams) -> Part:
    """From the butt to the shank; its free end is rounded off."""
    full = _section(p)
    end = full.towards(Section(0.6 * p.grip_z, 0.7 * GRIP, 0.6 * p.roundness * p.grip_z), 1.0)
    profile = [(p.butt_x, end), (p.butt_x + 0.003, end.towards(full, 0.75))]
    profile += [(p.butt_x + 0.009, full), (p.shank_x, full)]
    felt = [ring(rectangle(p.grip_z, GRIP), x, 1) for x in (p.butt_x, p.shank_x)]
    return Part("grip", along_x(loft([ring(s, x, CORNERS) for x, s in profile])), p.grip,
                (along_x(loft(felt)),))  # fmt: skip


def _shank(p: WrenchParams) -> Part:
    """From the grip to the plane where the head begins, swung aside and down to it."""
    full, neck = _section(p), Section(p.neck_z, p.neck_y, p.roundness * p.neck_z)
    end_T = p.p_TJ - p.R_TJ @ [p.back, 0.0, 0.0]
    length = end_T[0] - p.shank_x
    rings = []
    for t in np.linspace(0.0, 0.9, 9):
        s = t * t * (3 - 2 * t)
        # The section's x is -z_T; see `along_x`.
        axis = (-s * p.drop, s * end_T[1])
        rings.append(ring(full.towards(neck, s), p.shank_x + t * length, CORNERS, axis))
    flat = ring(neck, 0.0, CORNERS) @ Z_TO_X.T
    seen = loft([*(one @ Z_TO_X.T for one in rings), flat @ p.R_TJ.T + end_T])
    y = round(end_T[1], 9)
    felt = [
        ring(rectangle(p.grip_z, GRIP), p.shank_x, 1),
        ring(rectangle(p.neck_z, p.neck_y), round(end_T[0], 9), 1, (-p.drop, y)),
    ]
    return Part("shank", seen, p.body, (along_x(loft(felt)),))


def _tail(p: WrenchParams) -> tuple[Part, ...]:
    """A ring or a smaller fork behind the butt, joined to it by a web."""
    if p.tail == "plain":
        return ()
    half = min(p.grip_z, p.thickness)
    start = math.asin(0.6 * GRIP / TAIL)  # where the outline meets the butt
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
    flip = np.array([1.0, -1.0])
    web = np.array([TAIL_BORE * corner, corner, corner * flip, TAIL_BORE * corner * flip])
    seen = join(*arcs, _prism(web, 0.9 * half))
    square = 0.85 * TAIL * np.array([(1, 1), (-1, 1), (-1, -1), (1, -1)])
    centre = (round(p.butt_x - corner[0], 9), 0.0, 0.0)
    seen, felt = (s.transformed(np.eye(3), centre) for s in (seen, _prism(square, half)))
    return (Part("tail", seen, p.body, (felt,)),)
