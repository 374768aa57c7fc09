"""Attribution of an object's motion to what moved it, as arithmetic.

The motion of a mechanism (links that move together) is divided among agents, the named parts of the
tool and everything else, in proportion to the positive work that their contact forces do on it. A
mechanism on which no agent does positive work, because it slides on or lies still, keeps its
shares.
"""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from fleet_tools.utils.straight_line import straight_line
from fleet_tools.utils.symbols import arctangent, larger, smaller, square_root, where, zeros

FIXED = -1
"""Mechanism of links that are fixed to the world."""
TOOL, ROBOT = -2, -3
"""What touches a link: its index for another link of the object, or one of these."""


@straight_line
def advance(
    force: np.ndarray,
    displacement: np.ndarray,
    mechanism: tuple[int, ...],
    share: np.ndarray,
    change: np.ndarray,
    coordinate_mechanism: tuple[int, ...],
    motion: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Divides the work of an interval, and adds the shares of the motion in it.

    Args:
        force: (n + 1, links, 6), contact wrench of each of n parts, and of everything else in the
            last row, on each link: moment about the link's origin (N m), then force (N), in W.
        displacement: (links, 6), see `displacements`, in the interval in which these forces acted.
        mechanism: Mechanism of each link, or `FIXED`.
        share: (n, mechanisms), share of each part in the positive work before.
        change: (coordinates,), changes of coordinates, such as a joint's or a point's position.
        coordinate_mechanism: Mechanism of each coordinate, or `FIXED`.
        motion: (n, coordinates), each part's motion before.

    Returns:
        The shares in the work of the interval, and the motion with each part's share of `change`.
    """
    share, motion = share.copy(), motion.copy()
    agents, links = force.shape[0], force.shape[1]
    for m in range(share.shape[1]):
        total, work = 0.0, zeros(agents)
        for a in range(agents):
            for link in range(links):
                if mechanism[link] == m:
                    for k in range(6):
                        work[a] += force[a, link, k] * displacement[link, k]
            total += larger(work[a], 0.0)
        for a in range(agents - 1):
            share[a, m] = where(total > 0.0, larger(work[a], 0.0) / total, share[a, m])
    for c in range(change.shape[0]):
        if coordinate_mechanism[c] != FIXED:
            for a in range(agents - 1):
                motion[a, c] += share[a, coordinate_mechanism[c]] * change[c]
    return share, motion


@straight_line
def displacements(X_0: np.ndarray, X_1: np.ndarray) -> np.ndarray:
    """Returns the displacements of links between two times, (links, 6).

    They are the rotation vector of each link, rad, less than a half turn, then the displacement of
    its origin, m, in W.

    Args:
        X_0: (links, 3, 4), poses [R_WL | p_WL] at the first time, m.
        X_1: (links, 3, 4), poses at the second time.
    """
    displacement = zeros(X_0.shape[0], 6)
    for link in range(X_0.shape[0]):
        A, B = X_0[link], X_1[link]
        R = zeros(3, 3)  # R_B R_A^T
        for i in range(3):
            for j in range(3):
                for k in range(3):
                    R[i, j] += B[i, k] * A[j, k]
        x, y, z = R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]
        twice_sine = square_root(x**2 + y**2 + z**2)
        angle = arctangent(twice_sine, R[0, 0] + R[1, 1] + R[2, 2] - 1.0)
        scale = where(twice_sine > 1e-9, angle / twice_sine, 0.5)
        displacement[link, 0], displacement[link, 1] = scale * x, scale * y
        displacement[link, 2] = scale * z
        for k in range(3):
            displacement[link, 3 + k] = B[k, 3] - A[k, 3]
    return displacement


def contact_forces(
    contacts: Iterable[tuple[int, int, np.ndarray, np.ndarray]],
    origins: np.ndarray,
    mechanism: tuple[int, ...],
    share: np.ndarray,
    parts: "Parts",
) -> np.ndarray:
    """Returns the contact wrench of each agent on each link, see `advance`.

    What another mechanism of the object exerts is divided by the shares of that mechanism.

    Args:
        contacts: The link on which each contact acts; what exerts it: a link, `TOOL` or `ROBOT`;
            p_WC, where it acts, m; and its wrench: moment about C (N m), then force (N), in W.
        origins: (links, 3), origins of the links, m.
        mechanism: Mechanism of each link, or `FIXED`.
        share: (n, mechanisms), see `advance`.
        parts: The parts of the tool.
    """
    rest_row = share.shape[0]
    force = np.zeros((rest_row + 1, len(mechanism), 6))
    for link, agent, p_WC, F_C in contacts:
        part, F = part_and_wrench(p_WC, F_C, origins[link], *parts)
        if agent == TOOL:
            force[int(part), link] += F
        elif agent == ROBOT:
            force[rest_row, link] += F
        elif mechanism[agent] != FIXED and mechanism[agent] != mechanism[link]:
            rest = 1.0
            for row in range(rest_row):
                force[row, link] += share[row, mechanism[agent]] * F
                rest -= share[row, mechanism[agent]]
            force[rest_row, link] += rest * F
    return force


class Parts(NamedTuple):
    """Parts of a tool at one moment.

    Attributes:
        corners: (corners, 3), corners of the parts' lines in W, one part after the other, m.
        sides: (n, 3, 3), start and end of an axis of each part, and the point behind which depth is
            measured, in W, m.
        bounds: For each part: the index after its last corner; its radius about its line, (n,), m;
            and its largest distance behind that point, (n,), m, or inf.
    """

    corners: np.ndarray
    sides: np.ndarray
    bounds: Any


@straight_line
def part_and_wrench(
    p: np.ndarray,
    F_p: np.ndarray,
    origin: np.ndarray,
    corners: np.ndarray,
    sides: np.ndarray,
    bounds: tuple[tuple[int, ...], np.ndarray, np.ndarray],
) -> tuple[float, np.ndarray]:
    """Returns the part of a tool at a point, and a wrench about another point.

    Args:
        p: (3,), the point, m.
        F_p: (6,), moment about it, N m, and force, N.
        origin: (3,), the other point, m.
        corners: See `Parts`.
        sides: Likewise.
        bounds: Likewise.

    Returns:
        The index of the first part within which the point lies, or the number of parts; the wrench.
    """
    (x, y, z), (fx, fy, fz) = p - origin, F_p[3:]
    F = F_p.copy()
    F[0] += y * fz - z * fy
    F[1] += z * fx - x * fz
    F[2] += x * fy - y * fx
    last_corner, within, depth = bounds
    index = float(len(last_corner))
    for part in reversed(range(len(last_corner))):
        line = corners[last_corner[part - 1] if part else 0 : last_corner[part]]
        near = distance_to_polyline(p, line) <= within[part]
        inside = near & (distance_behind(p, sides[part]) <= depth[part])
        index = where(inside, float(part), index)
    return index, F


@straight_line
def distance_to_polyline(p: np.ndarray, points: np.ndarray) -> float:
    """Returns the distance of a point from a polyline, m; a single point is one, too.

    Args:
        p: (3,), the point, m.
        points: (n, 3), corners of the polyline, m.
    """
    nearest = math.inf
    for i in range(max(1, points.shape[0] - 1)):
        a, b = points[i], points[min(i + 1, points.shape[0] - 1)]
        along, length = 0.0, 0.0
        for k in range(3):
            along += (p[k] - a[k]) * (b[k] - a[k])
            length += (b[k] - a[k]) ** 2
        t = where(length > 0.0, smaller(larger(along / length, 0.0), 1.0), 0.0)
        distance = 0.0
        for k in range(3):
            distance += (p[k] - a[k] - t * (b[k] - a[k])) ** 2
        nearest = smaller(nearest, distance)
    return square_root(nearest)


@straight_line
def distance_behind(p: np.ndarray, side: np.ndarray) -> float:
    """Returns how far a point lies behind another one along an axis, m; negative in front of it.

    Args:
        p: (3,), the point, m.
        side: (3, 3), start and end of the axis, and the other point, m. If start and end are the
            same, there is no axis, and the distance is 0.
    """
    behind, length = 0.0, 0.0
    for k in range(3):
        along = side[1, k] - side[0, k]
        behind += (side[2, k] - p[k]) * along
        length += along**2
    return where(length > 0.0, behind / square_root(length), 0.0)


@straight_line
def locate(X_W: np.ndarray, points: tuple[tuple[int, ...], np.ndarray]) -> np.ndarray:
    """Returns positions of points in the world, (points, 3), from their positions in bodies.

    Args:
        X_W: (bodies, 3, 4), poses [R_WB | p_WB] of the bodies, m.
        points: The body of each point, and (points, 3), its position in it, m.
    """
    body, p_B = points
    p_W = zeros(len(body), 3)
    for i in range(len(body)):
        X = X_W[body[i]]
        for k in range(3):
            rotated = X[k, 0] * p_B[i, 0] + X[k, 1] * p_B[i, 1] + X[k, 2] * p_B[i, 2]
            p_W[i, k] = rotated + X[k, 3]
    return p_W
