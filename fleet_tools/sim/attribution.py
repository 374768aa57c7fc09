"""Attribution of an object's motion to what moved it, as arithmetic.

The motion of a mechanism (links that move together) is divided among agents, the named parts of the
tool and everything else, in proportion to the positive work that their contact forces do on it. A
mechanism on which no agent does positive work, because it slides on or lies still, keeps its
shares.
"""

import math

import numpy as np

from fleet_tools.utils.compiled import compiled

FIXED = -1
"""Mechanism of links that are fixed to the world."""
TOOL, ROBOT = -2, -3
"""What touches a link: its index for another link of the object, or one of these."""


@compiled
def advance(
    force: np.ndarray,
    displacement: np.ndarray,
    mechanism: np.ndarray,
    share: np.ndarray,
    change: np.ndarray,
    coordinate_mechanism: np.ndarray,
    motion: np.ndarray,
) -> None:
    """Divides the work of an interval, and adds the shares of the motion in it.

    Args:
        force: (n + 1, links, 6), contact wrench of each of n parts, and of everything else in the
            last row, on each link: moment about the link's origin (N m), then force (N), in W.
        displacement: (links, 6), see `displacements`, in the interval in which these forces acted.
        mechanism: (links,), mechanism of each link, or `FIXED`.
        share: (n, mechanisms), share of each part in the positive work; replaced in place.
        change: (coordinates,), changes of coordinates, such as a joint's or a point's position.
        coordinate_mechanism: (coordinates,), mechanism of each coordinate, or `FIXED`.
        motion: (n, coordinates), to which each part's shares of `change` are added in place.
    """
    agents, links = force.shape[0], force.shape[1]
    for m in range(share.shape[1]):
        total = 0.0
        work = np.zeros(agents)
        for a in range(agents):
            for link in range(links):
                if mechanism[link] == m:
                    for k in range(6):
                        work[a] += force[a, link, k] * displacement[link, k]
            total += max(work[a], 0.0)
        if total > 0.0:
            for a in range(agents - 1):
                share[a, m] = max(work[a], 0.0) / total
    for c in range(change.shape[0]):
        if coordinate_mechanism[c] != FIXED:
            for a in range(agents - 1):
                motion[a, c] += share[a, coordinate_mechanism[c]] * change[c]


@compiled
def displacements(X_0: np.ndarray, X_1: np.ndarray, displacement: np.ndarray) -> None:
    """Sets the displacements of links between two times.

    Args:
        X_0: (links, 3, 4), poses [R_WL | p_WL] at the first time, m.
        X_1: (links, 3, 4), poses at the second time.
        displacement: (links, 6), the rotation vector of each link, rad, less than a half turn, then
            the displacement of its origin, m, in W; replaced in place.
    """
    for link in range(X_0.shape[0]):
        A, B = X_0[link], X_1[link]
        R = np.zeros((3, 3))  # R_B R_A^T
        for i in range(3):
            for j in range(3):
                for k in range(3):
                    R[i, j] += B[i, k] * A[j, k]
        x, y, z = R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]
        twice_sine = math.sqrt(x**2 + y**2 + z**2)
        angle = math.atan2(twice_sine, R[0, 0] + R[1, 1] + R[2, 2] - 1.0)
        scale = angle / twice_sine if twice_sine > 1e-9 else 0.5
        displacement[link, 0], displacement[link, 1] = scale * x, scale * y
        displacement[link, 2] = scale * z
        for k in range(3):
            displacement[link, 3 + k] = B[k, 3] - A[k, 3]


@compiled
def assign_forces(
    links: np.ndarray,
    agents: np.ndarray,
    points: np.ndarray,
    wrenches: np.ndarray,
    origins: np.ndarray,
    mechanism: np.ndarray,
    share: np.ndarray,
    corners: np.ndarray,
    last_corner: np.ndarray,
    within: np.ndarray,
    sides: np.ndarray,
    depth: np.ndarray,
    force: np.ndarray,
) -> None:
    """Sets the contact wrench of each agent on each link.

    What another mechanism of the object exerts is divided by the shares of that mechanism.

    Args:
        links: (contacts,), link on which each contact acts.
        agents: (contacts,), what exerts it: a link, `TOOL` or `ROBOT`.
        points: (contacts, 3), p_WC, where it acts, m.
        wrenches: (contacts, 6), moment about C (N m), then force (N), in W.
        origins: (links, 3), origins of the links, m.
        mechanism: (links,), mechanism of each link, or `FIXED`.
        share: (n, mechanisms), see `advance`.
        corners: (corners, 3), corners of the parts' lines in W, one part after the other, m.
        last_corner: (n,), index after the last corner of each part.
        within: (n,), radius of each part about its line, m. A point within several belongs to the
            first of them.
        sides: (n, 3, 3), start and end of an axis of each part, and the point behind which depth is
            measured, in W, m.
        depth: (n,), largest distance of a part behind that point, m, or inf.
        force: (n + 1, links, 6), see `advance`; replaced in place.
    """
    force[:] = 0.0
    parts = share.shape[0]
    F = np.empty(6)
    for i in range(links.shape[0]):
        link, agent = links[i], agents[i]
        x, y, z = points[i] - origins[link]
        fx, fy, fz = wrenches[i, 3:]
        F[:] = wrenches[i]
        F[0] += y * fz - z * fy
        F[1] += z * fx - x * fz
        F[2] += x * fy - y * fx
        if agent == TOOL:
            row, start = parts, 0
            for part in range(parts):
                end = last_corner[part]
                p = points[i]
                if (
                    distance_to_polyline(p, corners[start:end]) <= within[part]
                    and distance_behind(p, sides[part]) <= depth[part]
                ):
                    row = part
                    break
                start = end
            force[row, link] += F
        elif agent == ROBOT:
            force[parts, link] += F
        elif mechanism[agent] != FIXED and mechanism[agent] != mechanism[link]:
            rest = 1.0
            for part in range(parts):
                force[part, link] += share[part, mechanism[agent]] * F
                rest -= share[part, mechanism[agent]]
            force[parts, link] += rest * F


@compiled
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
        t = min(max(along / length, 0.0), 1.0) if length > 0.0 else 0.0
        distance = 0.0
        for k in range(3):
            distance += (p[k] - a[k] - t * (b[k] - a[k])) ** 2
        nearest = min(nearest, distance)
    return math.sqrt(nearest)


@compiled
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
    return behind / math.sqrt(length) if length > 0.0 else 0.0


@compiled
def locate(X_W: np.ndarray, body: np.ndarray, p_B: np.ndarray, p_W: np.ndarray) -> None:
    """Sets positions of points in the world from their positions in bodies.

    Args:
        X_W: (bodies, 3, 4), poses [R_WB | p_WB] of the bodies, m.
        body: (points,), body of each point.
        p_B: (points, 3), position in it, m.
        p_W: (points, 3), replaced in place.
    """
    for i in range(body.shape[0]):
        X = X_W[body[i]]
        for k in range(3):
            rotated = X[k, 0] * p_B[i, 0] + X[k, 1] * p_B[i, 1] + X[k, 2] * p_B[i, 2]
            p_W[i, k] = rotated + X[k, 3]
