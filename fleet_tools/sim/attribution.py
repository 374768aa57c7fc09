"""Attribution of an object's motion to what moved it, as arithmetic.

The motion of a mechanism (links that move together) is divided among agents, the named parts of the
tool and everything else, in proportion to the positive work that their contact forces do on it. A
mechanism on which no agent does positive work, because it slides on or lies still, keeps its
shares.
"""

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from fleet_tools.utils.straight_line import straight_line
from fleet_tools.utils.symbols import arctangent, larger, smaller, square_root, where, zeros

FIXED = -1
"""Mechanism of links that are fixed to the world."""
TOOL, ROBOT = -2, -3
"""What touches a link: its index for another link of the object, or one of these."""
_CONTACTS_AT_ONCE = 8
"""Each number of contacts up to this one has machine code of its own."""


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
    contacts: Sequence[tuple[int, int, np.ndarray, np.ndarray]],
    origins: np.ndarray,
    mechanism: tuple[int, ...],
    share: np.ndarray,
    X_WB: np.ndarray,
    regions: "tuple[Regions]",
    misplaced: Collection[tuple[int, int]] = (),
) -> np.ndarray:
    """Returns the contact wrench of each agent on each link, see `advance`.

    What another mechanism of the object exerts is divided by the shares of that mechanism.

    Args:
        contacts: The link on which each contact acts; what exerts it: a link, `TOOL` or `ROBOT`;
            p_WC, where it acts, m; and its wrench: moment about C (N m), then force (N), in W.
        origins: (links, 3), origins of the links, m.
        mechanism: Mechanism of each link, or `FIXED`.
        share: (n, mechanisms), see `advance`.
        X_WB: (bodies, 3, 4), poses of the bodies of the tool's parts.
        regions: The parts.
        misplaced: Indices of a contact and of a part that does not count there.
    """
    everything_else = share.shape[0]
    # Lists, because numpy takes longer for six numbers.
    force = [[[0.0] * 6 for _ in mechanism] for _ in range(everything_else + 1)]

    def add(row: int, link: int, F: list[float], part: float = 1.0) -> None:
        force[row][link] = [total + part * f for total, f in zip(force[row][link], F, strict=True)]

    for start in range(0, len(contacts), _CONTACTS_AT_ONCE):
        links, agents, points, wrenches = zip(
            *contacts[start : start + _CONTACTS_AT_ONCE], strict=True
        )
        parts, moved = parts_and_wrenches(
            np.array(points), np.array(wrenches), origins[list(links)], X_WB, regions
        )
        for k, (link, agent, part, F) in enumerate(
            zip(links, agents, parts, moved.tolist(), strict=True), start
        ):
            if agent == TOOL:
                add(everything_else if (k, int(part)) in misplaced else int(part), link, F)
            elif agent == ROBOT:
                add(everything_else, link, F)
            elif mechanism[agent] != FIXED and mechanism[agent] != mechanism[link]:
                rest = 1.0
                for row, fraction in enumerate(share[:, mechanism[agent]].tolist()):
                    add(row, link, F, fraction)
                    rest -= fraction
                add(everything_else, link, F, rest)
    return np.array(force)


class Regions(NamedTuple):
    """Parts of a tool, by points of it.

    They are the corners of the parts' lines, one part after the other; then, for each part, start
    and end of an axis, and a point behind which depth is measured.

    Attributes:
        body: Body of each point.
        p_BK: (points, 3), position of each point in its body, m.
        last_corner: Index after the last corner of each of n parts.
        within: (n,), radius of each part about its line, m.
        depth: (n,), largest distance of a part behind its point, m, or inf.
    """

    body: tuple[int, ...]
    p_BK: np.ndarray
    last_corner: tuple[int, ...]
    within: np.ndarray
    depth: np.ndarray


@straight_line
def parts_and_wrenches(
    points: np.ndarray,
    wrenches: np.ndarray,
    origins: np.ndarray,
    X_WB: np.ndarray,
    regions: tuple[Regions],
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the part of a tool at each contact, and the contact's wrench about another point.

    Args:
        points: (contacts, 3), the points of contact C, m.
        wrenches: (contacts, 6), moments about them, N m, and forces, N.
        origins: (contacts, 3), the other points, m.
        X_WB: (bodies, 3, 4), poses of the bodies of the parts.
        regions: The parts.

    Returns:
        (contacts,), the index of the first part within which C lies, or the number of parts.
        (contacts, 6), the wrenches.
    """
    ((body, p_BK, last_corner, within, depth),) = regions
    p_WK, parts = locate(X_WB, (body, p_BK)), zeros(len(points))
    corners, sides = p_WK[: last_corner[-1]], p_WK[last_corner[-1] :].reshape(-1, 3, 3)
    wrenches = wrenches.copy()
    for p, origin, F, i in zip(points, origins, wrenches, range(len(points)), strict=True):
        (x, y, z), (fx, fy, fz) = p - origin, F[3:]
        F[0] += y * fz - z * fy
        F[1] += z * fx - x * fz
        F[2] += x * fy - y * fx
        parts[i] = float(len(last_corner))
        for part in reversed(range(len(last_corner))):
            line = corners[last_corner[part - 1] if part else 0 : last_corner[part]]
            near = distance_to_polyline(p, line) <= within[part]
            inside = near & (distance_behind(p, sides[part]) <= depth[part])
            parts[i] = where(inside, float(part), parts[i])
    return parts, wrenches


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
