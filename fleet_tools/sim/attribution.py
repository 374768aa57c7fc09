"""Attribution of an object's motion to what moved it, as arithmetic.

In each simulation step, the motion of a rigid mechanism (links that move together) is divided among
agents, the named parts of the tool and everything else, in proportion to the positive work that
their contact forces do on it. A mechanism that nothing pushes at the moment, because it slides on
or lies still, keeps the shares of the step before.
"""

import math

import numpy as np

from fleet_tools.utils.compiled import compiled


@compiled
def divide_work(
    force: np.ndarray, velocity: np.ndarray, mechanism: np.ndarray, share: np.ndarray
) -> None:
    """Sets each part's share of the positive work done on each mechanism in a step.

    Shares of a mechanism on which no positive work is done stay as they are.

    Args:
        force: (n + 1, links, 6), contact wrench of each of n parts, and of everything else in the
            last row, on each link: moment about the link's origin (N m), then force (N), in W.
        velocity: (links, 6), spatial velocity V_WL of each link, rad/s and m/s, in the step in
            which these forces acted.
        mechanism: (links,), mechanism of each link; -1 for links fixed to the world.
        share: (n, mechanisms), replaced in place.
    """
    agents, links = force.shape[0], force.shape[1]
    power = np.zeros((agents, share.shape[1]))
    for a in range(agents):
        for link in range(links):
            if mechanism[link] >= 0:
                for k in range(6):
                    power[a, mechanism[link]] += force[a, link, k] * velocity[link, k]
    for m in range(share.shape[1]):
        total = 0.0
        for a in range(agents):
            total += max(power[a, m], 0.0)
        if total > 0.0:
            for a in range(agents - 1):
                share[a, m] = max(power[a, m], 0.0) / total


@compiled
def add_motion(
    share: np.ndarray, mechanism: np.ndarray, rate: np.ndarray, step: float, motion: np.ndarray
) -> None:
    """Adds each part's share of the motion in one step.

    Args:
        share: (n, mechanisms), see `divide_work`.
        mechanism: (coordinates,), mechanism of each coordinate; -1 for what is fixed to the world.
        rate: (coordinates,), rate of each coordinate, such as a joint's or a point's velocity.
        step: Simulation time step, s.
        motion: (n, coordinates), added to in place.
    """
    for a in range(share.shape[0]):
        for c in range(rate.shape[0]):
            if mechanism[c] >= 0:
                motion[a, c] += share[a, mechanism[c]] * rate[c] * step


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
def distance_behind(p: np.ndarray, start: np.ndarray, end: np.ndarray) -> float:
    """Returns how far a point lies behind the end of an axis, m; negative in front of it.

    Args:
        p: (3,), the point, m.
        start: (3,), start of the axis, m.
        end: (3,), its end, elsewhere, m.
    """
    along, length = 0.0, 0.0
    for k in range(3):
        along += (end[k] - p[k]) * (end[k] - start[k])
        length += (end[k] - start[k]) ** 2
    return along / math.sqrt(length)
