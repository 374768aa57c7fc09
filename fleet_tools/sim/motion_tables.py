"""Tables by which motion is attributed: coordinates of an object, and parts of a tool.

Coordinates are of joints, keypoints and centres of links; a part is a region about lines
through keypoints of the tool. Where it has to touch: `fleet_tools.sim.part_places`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from pydrake.multibody.plant import MultibodyPlant
from pydrake.multibody.tree import Joint, ModelInstanceIndex, RigidBody

from fleet_tools.config.tasks import ToolPart
from fleet_tools.sim.attribution import (
    FIXED,
    Regions,
    advance,
    displacements,
    locate,
)
from fleet_tools.sim.catalog import Model
from fleet_tools.utils.straight_line import pack, straight_line


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

    def named(self, motion: np.ndarray) -> PartMotion:
        """Returns coordinates, (coordinates,), by name."""
        joints, keypoints = len(self._joint_names), len(self._keypoint_names)
        points = motion[joints:].reshape(-1, 3)
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
    tables: "tuple[Coordinates]",
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the shares, the motion and the coordinates after an interval.

    Args:
        force: See `advance`.
        X_0: (links, 3, 4), poses [R_WL | p_WL] of the links before, m.
        X_1: Those now.
        share: See `advance`.
        before: (coordinates,), coordinates before.
        motion: See `advance`.
        x: State of the object in the plant.
        tables: Tables of the object.
    """
    moved, now, (table,) = displacements(X_0, X_1), coordinates(X_1, x, tables), tables
    share, motion = advance(
        force, moved, table.of_link, share, now - before, table.of_coordinate, motion
    )
    return share, motion, now
