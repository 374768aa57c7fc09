"""Attributes an object's motion to its causes: arithmetic and tables.

The motion of a mechanism (links that move together) is divided among agents, the named parts of the
tool and everything else, in proportion to the positive work that their contact forces do on it. A
mechanism on which no agent does positive work, because it slides on or lies still, keeps its
shares. Motion back towards the start reduces what is attributed: `remaining`. The same path in
smaller steps gives the same motion, exactly if one agent moves at a time. Where a link of the
object pushes another one, the shares of the pushing mechanism divide its force.

Coordinates are of joints, keypoints and centres of links; a part is a region about lines through
keypoints of the tool. `fleet_tools.sim.part_motion` does it in each step.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from pydrake.multibody.plant import MultibodyPlant
from pydrake.multibody.tree import Joint, ModelInstanceIndex, RigidBody

from fleet_tools.config.tasks import ToolPart
from fleet_tools.sim.catalog import Model
from fleet_tools.utils.straight_line import pack, straight_line
from fleet_tools.utils.symbols import arctangent, larger, smaller, square_root, where, zeros

FIXED = -1
"""Mechanism of links that are fixed to the world."""
TOOL, ROBOT = -2, -3
"""The body that touches a link: the index of another link of the object, or one of these."""
_CONTACTS_AT_ONCE = 8
"""Each number of contacts up to this one has machine code of its own."""


@straight_line
def advance(
    force: np.ndarray,
    displacement: np.ndarray,
    mechanism: tuple[int, ...],
    share: np.ndarray,
    before: np.ndarray,
    now: np.ndarray,
    coordinate_mechanism: tuple[int, ...],
    motion: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Divides the work of an interval, and the motion in it.

    Args:
        force: (n + 1, links, 6), contact wrench of each of n parts, and of everything else in the
            last row, on each link: moment about the link's origin (N m), then force (N), in W.
        displacement: (links, 6), see `displacements`, in the interval in which these forces acted.
        mechanism: Mechanism of each link, or `FIXED`.
        share: (n, mechanisms), share of each part in the positive work before.
        before: (coordinates,), how far coordinates, such as a joint's or a point's position, are
            from the start before the interval.
        now: (coordinates,), how far after it.
        coordinate_mechanism: Mechanism of each coordinate, or `FIXED`.
        motion: (n, coordinates), each part's motion before.

    Returns:
        The shares in the work of the interval, and each part's motion after it, see `remaining`.
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
    for c in range(now.shape[0]):
        if coordinate_mechanism[c] != FIXED:
            shares = share[:, coordinate_mechanism[c]]
            motion[:, c] = remaining(motion[:, c], shares, before[c], now[c])
    return share, motion


@straight_line
def remaining(motion: np.ndarray, share: np.ndarray, before: float, now: float) -> np.ndarray:
    """Returns each part's motion of a coordinate after an interval: its part of what remains.

    Away from the start it grows by the part's share. Towards the start, a part takes back its own
    motion first, down to none. What others move back takes the same fraction of everybody's.
    So it lies between none and the whole displacement, and none is left at the start. It does not
    depend on who passed a place last: of a lid that the hand opens, the bar opens further and the
    hand presses back to where the bar began, half is the bar's.

    Args:
        motion: (n,), each part's motion before.
        share: (n,), its share in the change.
        before: How far the coordinate is from the start before; it has a sign.
        now: How far after.
    """
    inwards = where(before * now > 0.0, where(before * (before - now) > 0.0, now, before), 0.0)
    kept, rest = zeros(share.shape[0]), before
    for a in range(share.shape[0]):
        own = motion[a] + share[a] * (inwards - before)
        kept[a] = where(own * before > 0.0, own, 0.0)
        rest += kept[a] - motion[a]
    fraction = where(rest * before > 0.0, inwards / rest, 0.0)
    for a in range(share.shape[0]):
        kept[a] = kept[a] * fraction + share[a] * (now - inwards)
    return kept


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


# --- Tables: coordinates of an object, and parts of a tool ------------------------------------


@dataclass(frozen=True)
class PartMotion:
    """Motion of the object since the start of the episode that a part of the tool caused.

    Attributes:
        object_joints: Displacements of the object's joints by name, m or rad.
        p_W_object: Displacements of the object's keypoints by name, (3,) each, m.
        links: Displacements of the centres of mass of its links by name, (3,) each, m.
    """

    object_joints: dict[str, float]
    p_W_object: dict[str, np.ndarray]
    links: dict[str, np.ndarray]


class Coordinates(NamedTuple):
    """The tables of an `ObjectMotion` from which coordinates follow.

    Attributes:
        of_link: Mechanism of each link.
        of_coordinate: Mechanism of each coordinate.
        joint_position: Index in the object's state of each joint with one degree of freedom.
        point_link: Link of each point.
        p_LP: (points, 3), position of each point in its link, m.
    """

    of_link: tuple[int, ...]
    of_coordinate: tuple[int, ...]
    joint_position: tuple[int, ...]
    point_link: tuple[int, ...]
    p_LP: np.ndarray


@straight_line
def coordinates(X_WL: np.ndarray, x: np.ndarray, tables: tuple[Coordinates]) -> np.ndarray:
    """Returns the coordinates of an object, (coordinates,), rad or m.

    Args:
        X_WL: (links, 3, 4), poses [R_WL | p_WL] of the links.
        x: State of the object in the plant.
        tables: Tables of the object.
    """
    (table,) = tables
    points = locate(X_WL, (table.point_link, table.p_LP))
    return np.concatenate([[x[i] for i in table.joint_position], points.ravel()])


@straight_line
def from_start(
    values: np.ndarray, start: np.ndarray, X_WS: np.ndarray, tables: tuple[Coordinates]
) -> np.ndarray:
    """Returns how far coordinates are from the start; points along axes of their links then.

    Args:
        values: (coordinates,), the coordinates.
        start: (coordinates,), those at the start.
        X_WS: (links, 3, 4), poses of the links at the start.
        tables: Tables of the object.
    """
    (table,) = tables
    far, joints = values - start, len(table.joint_position)
    turned = far.copy()
    for i, link in enumerate(table.point_link):
        for k in range(3):
            turned[joints + 3 * i + k] = 0.0
            for j in range(3):
                turned[joints + 3 * i + k] += X_WS[link, j, k] * far[joints + 3 * i + j]
    return turned


class ObjectMotion:
    """Tables of an object's links and coordinates; immutable.

    A mechanism is a set of links that joints connect, other than through the world: work on one of
    its links moves all of them.

    Args:
        plant: The finalized plant.
        instance: Model instance of the object.
        model: The object.

    Attributes:
        bodies: Body index of each link.
        p_LLcm: (links, 3), centre of mass of each link in its frame, m.
        link_mechanism: Mechanism of each link, or `FIXED`.
        num_mechanisms: Number of mechanisms.
        coordinate_mechanism: Mechanism of each coordinate: the joints with one degree of freedom,
            then x, y and z of each keypoint and of each centre of mass.
        packed: `Coordinates`, for compiled functions.
    """

    def __init__(self, plant: MultibodyPlant, instance: ModelInstanceIndex, model: Model) -> None:
        links = [plant.get_body(index) for index in plant.GetBodyIndices(instance)]
        joints = [plant.get_joint(index) for index in plant.GetJointIndices(instance)]
        self.bodies = [int(body.index()) for body in links]
        self.p_LLcm = np.array([body.default_com() for body in links])
        self.link_mechanism = _mechanisms(plant, links, joints)
        self.num_mechanisms = max(self.link_mechanism, default=FIXED) + 1

        own = [joint for joint in joints if joint.num_velocities() == 1]
        positions = list(plant.GetPositionsFromArray(instance, np.arange(plant.num_positions())))
        self._joint_names = [joint.name() for joint in own]
        joint_position = tuple(positions.index(joint.position_start()) for joint in own)
        labels = model.labels.keypoints
        of_body = {body.name(): i for i, body in enumerate(links)}
        context = plant.CreateDefaultContext()
        self._keypoint_names, self._link_names = list(labels), [body.name() for body in links]
        point_link = (*(of_body[k.link] for k in labels.values()), *range(len(links)))
        self._point_links = list(point_link)
        p_LP = np.array(
            [
                *(keypoint.position for keypoint in labels.values()),
                *(body.CalcCenterOfMassInBodyFrame(context) for body in links),
            ]
        )
        moved = [self.bodies.index(int(joint.child_body().index())) for joint in own]
        moved += [link for link in point_link for _ in range(3)]
        self.coordinate_mechanism = tuple(self.link_mechanism[link] for link in moved)
        self.packed = pack(
            Coordinates(
                self.link_mechanism, self.coordinate_mechanism, joint_position, point_link, p_LP
            )
        )

    def coordinates(self, X_WL: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Returns the coordinates, (coordinates,), rad or m.

        Args:
            X_WL: (links, 3, 4), poses [R_WL | p_WL] of the links.
            x: State of the object in the plant.
        """
        return coordinates(X_WL, x, self.packed)

    def named(self, motion: np.ndarray, X_WS: np.ndarray) -> PartMotion:
        """Returns motion by name; points move in the world.

        Args:
            motion: (coordinates,), see `from_start`.
            X_WS: (links, 3, 4), poses of the links at the start.
        """
        joints, keypoints = len(self._joint_names), len(self._keypoint_names)
        points = motion[joints:].reshape(-1, 3)
        turns = X_WS[self._point_links, :, :3]
        points = (turns * points[:, None]).sum(axis=2)
        return PartMotion(
            dict(zip(self._joint_names, map(float, motion), strict=False)),
            dict(zip(self._keypoint_names, points, strict=False)),
            dict(zip(self._link_names, points[keypoints:], strict=True)),
        )


def _mechanisms(
    plant: MultibodyPlant, links: list[RigidBody], joints: Iterable[Joint]
) -> tuple[int, ...]:
    """Returns the mechanism of each link, numbered from 0 in the order of the links."""
    fixed = {int(body.index()) for body in plant.GetBodiesWeldedTo(plant.world_body())}
    root = {int(body.index()): int(body.index()) for body in links}

    def find(body: int) -> int:
        while root[body] != body:
            body = root[body]
        return body

    for joint in joints:
        ends = [int(joint.parent_body().index()), int(joint.child_body().index())]
        if all(end in root and end not in fixed for end in ends):
            root[find(ends[1])] = find(ends[0])
    numbers: dict[int, int] = {}
    return tuple(
        FIXED if body in fixed else numbers.setdefault(find(body), len(numbers)) for body in root
    )


@dataclass(frozen=True, eq=False)
class PartRegions:
    """The parts of a tool in a plant.

    Attributes:
        names: Names of the parts.
        bodies: Bodies of the plant to which the parts belong.
        packed: Their `fleet_tools.sim.attribution.Regions`, with indices in `bodies`.
    """

    names: tuple[str, ...]
    bodies: tuple[int, ...]
    packed: tuple[Regions]

    @classmethod
    def of(
        cls,
        parts: Mapping[str, ToolPart],
        plant: MultibodyPlant,
        instance: ModelInstanceIndex,
        tool: Model,
    ) -> "PartRegions":
        """Finds the keypoints of a tool in a plant.

        Args:
            parts: Parts by name.
            plant: Plant with the tool.
            instance: Model instance of the tool.
            tool: The tool.

        Raises:
            UnknownNameError: The tool lacks a keypoint.
        """
        corners = [name for part in parts.values() for name in part.keypoints]
        sides = [name for part in parts.values() for name in _side(part)]
        points = [tool.keypoint(name) for name in (*corners, *sides)]
        of_point = [int(plant.GetBodyByName(k.link, instance).index()) for k in points]
        bodies = tuple(dict.fromkeys(of_point))
        facing = [part.facing for part in parts.values()]
        regions = Regions(
            body=tuple(bodies.index(body) for body in of_point),
            p_BK=np.array([keypoint.position for keypoint in points]),
            last_corner=tuple(accumulate(len(part.keypoints) for part in parts.values())),
            within=np.array([part.within_m for part in parts.values()]),
            depth=np.array([np.inf if side is None else side.depth_m for side in facing]),
        )
        return cls(tuple(parts), bodies, pack(regions))


def _side(part: ToolPart) -> tuple[str, str, str]:
    """Returns a part's axis and front; the same keypoint thrice where it faces no side."""
    if part.facing is None:
        return part.keypoints[0], part.keypoints[0], part.keypoints[0]
    start, end = part.facing.axis
    return start, end, part.facing.point


def collision_shapes(plant: MultibodyPlant, instance: ModelInstanceIndex) -> dict[int, int]:
    """Returns the collision shapes of a model, each with the index of its link in the model."""
    return {
        # A number, because Python would keep the plant alive for a GeometryId.
        shape.get_value(): link
        for link, body in enumerate(plant.GetBodyIndices(instance))
        for shape in plant.GetCollisionGeometriesForBody(plant.get_body(body))
    }


@straight_line
def advanced(
    force: np.ndarray,
    X_0: np.ndarray,
    X_1: np.ndarray,
    share: np.ndarray,
    before: np.ndarray,
    x: np.ndarray,
    motion: np.ndarray,
    start: np.ndarray,
    X_WS: np.ndarray,
    tables: "tuple[Coordinates]",
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the shares, the motion and how far coordinates are from the start after an interval.

    Args:
        force: See `advance`.
        X_0: (links, 3, 4), poses [R_WL | p_WL] of the links before, m.
        X_1: Those now.
        share: See `advance`.
        before: (coordinates,), how far they were before, see `from_start`.
        x: State of the object in the plant.
        motion: See `advance`.
        start: See `from_start`.
        X_WS: See `from_start`.
        tables: Tables of the object.
    """
    moved, (table,) = displacements(X_0, X_1), tables
    now = from_start(coordinates(X_1, x, tables), start, X_WS, tables)
    share, motion = advance(
        force, moved, table.of_link, share, before, now, table.of_coordinate, motion
    )
    return share, motion, now
