"""The object's motion that is caused by contact with named parts of the tool.

A part is what lies within a distance of a line through some of the tool's keypoints. It may lie
on one side of the tool only. It may count only where it touches a place on the object, or where it
pushes in a direction. Or it counts while the tool bears on a link, as a lever does on its fulcrum:
`fleet_tools.config.tasks.ToolPart`.
How motion is attributed: `fleet_tools.sim.attribution`.
"""

import math
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from pydrake.common.value import AbstractValue
from pydrake.geometry import FrameId, FramePoseVector
from pydrake.multibody.plant import ContactResults, MultibodyPlant
from pydrake.multibody.tree import BodyIndex, ModelInstanceIndex
from pydrake.systems.framework import (
    BasicVector,
    Context,
    DiagramBuilder,
    DiscreteValues,
    LeafSystem,
)

from fleet_tools.config.tasks import ToolPart
from fleet_tools.errors import ConfigError, UnknownNameError
from fleet_tools.robot.python_systems import release_cycles
from fleet_tools.sim.attribution import (
    FIXED,
    ROBOT,
    TOOL,
    ObjectMotion,
    PartMotion,
    PartRegions,
    advanced,
    collision_shapes,
    contact_forces,
    distance_to_polyline,
)
from fleet_tools.sim.catalog import Model
from fleet_tools.sim.contacts import contacts

READING_STEPS = 4
"""Simulation steps after which contact that lasts is read again; reading costs half a step."""

BEARING_SHARE = 0.5
"""Least part of the load that the link must bear."""

PartContact = tuple[int, int, np.ndarray, np.ndarray]
"""Link, agent, p_WC (m), and the wrench on the link at C: moment (N m), then force (N), in W."""


class PartMotionMeter(LeafSystem):
    """Attributes the object's motion to parts of the tool, step by step.

    Its discrete state is updated together with the plant's, with the contact forces that the plant
    applies in that step. While the tool or the robot touches the object, these forces are taken to
    last for `READING_STEPS`; where contact begins or ends is exact.

    Input ports: the plant's `contact_results` and `geometry_pose`, the generalized contact forces
    of the arm, `arm_contact`, and the state of the object, `object_state`. Its parameters are the
    external forces on the object. Its output port is its state.

    Args:
        plant: The finalized plant.
        arm: Model instance of the arm.
        tool, object: Model instance and model of each.
        parts: Parts of the tool by name.
    """

    def __init__(
        self,
        plant: MultibodyPlant,
        arm: ModelInstanceIndex,
        tool: tuple[ModelInstanceIndex, Model],
        object: tuple[ModelInstanceIndex, Model],
        parts: Mapping[str, ToolPart],
    ) -> None:
        super().__init__()
        self._parts = PartRegions.of(parts, plant, *tool)
        self._object = ObjectMotion(plant, *object)
        self._places = places_of_parts(parts, self._object.bodies, plant, object[1])
        self._link_frames = _frames(plant, self._object.bodies)
        self._part_frames = _frames(plant, self._parts.bodies)
        self._links = collision_shapes(plant, object[0])
        self._agents = (
            self._links
            | dict.fromkeys(collision_shapes(plant, tool[0]), TOOL)
            | dict.fromkeys(collision_shapes(plant, arm), ROBOT)
        )

        number = len(self._object.coordinate_mechanism)
        self._shapes = _State(
            force=(len(parts) + 1, len(self._object.bodies), 6),
            age=(1,),
            share=(len(parts), self._object.num_mechanisms),
            motion=(len(parts), number),
            poses=(len(self._object.bodies), 3, 4),
            far=(number,),
            start_poses=(len(self._object.bodies), 3, 4),
            start=(number,),
        )
        ends = np.cumsum([math.prod(shape) for shape in self._shapes])
        self._slices = _State(*map(slice, [0, *ends], ends))
        self.DeclareStateOutputPort("state", self.DeclareDiscreteState(int(ends[-1])))
        forces = BasicVector(3 * len(self._object.bodies))
        self._external = int(self.DeclareNumericParameter(forces))

        # A Python system that keeps its ports, or a bound method, is never freed; so it keeps
        # their indices.
        self._inputs = {
            name: int(port.get_index())
            for name, port in {
                "contact_results": self.DeclareAbstractInputPort(
                    "contact_results", AbstractValue.Make(ContactResults())
                ),
                "geometry_pose": self.DeclareAbstractInputPort(
                    "geometry_pose", AbstractValue.Make(FramePoseVector())
                ),
                "arm_contact": self.DeclareVectorInputPort(
                    "arm_contact", plant.num_velocities(arm)
                ),
                "object_state": self.DeclareVectorInputPort(
                    "object_state", plant.num_multibody_states(object[0])
                ),
            }.items()
        }
        this = weakref.ref(self)

        def update(context: Context, values: DiscreteValues) -> None:
            system = this()
            assert system is not None  # Drake calls it only while the diagram lives
            system._update(context, values.get_mutable_value())

        self._update_callback = update  # nothing else keeps it alive, after `release_cycles`
        self.DeclarePeriodicDiscreteUpdateEvent(plant.time_step(), 0.0, update)

    def last_reading(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the force on the object that was read last, and how long ago, in some steps.

        Args:
            states: (steps, size), values of the output port.

        Returns:
            (steps, 3), force of the hand and external ones on all moving links, N, in the world;
            and (steps,), the number of steps since they were read.
        """
        wrenches = states[:, self._slices.force].reshape(len(states), -1, 6)
        return wrenches[:, :, 3:].sum(axis=1), states[:, self._slices.age.start]

    def begin(self, context: Context) -> None:
        """Lets the motion begin at the present.

        Args:
            context: Context of this system.
        """
        values = np.zeros_like(context.get_discrete_state_vector().value())
        state = self._parts_of(values)
        state.start_poses[:] = state.poses[:] = self._poses(context, self._link_frames)
        state.start[:] = self._object.coordinates(state.poses, self._object_state(context))
        context.SetDiscreteState(values)

    def motion(self, context: Context) -> dict[str, PartMotion]:
        """Returns the motion up to the present by the name of the part.

        Args:
            context: Context of this system.
        """
        # No output port: Python would keep it and the system alive for each other.
        state = self._parts_of(context.get_discrete_state_vector().CopyToVector())
        self._advance(context, state)
        return {
            name: self._object.named(row, state.start_poses)
            for name, row in zip(self._parts.names, state.motion, strict=True)
        }

    @contextmanager
    def unattributed(self, context: Context) -> Iterator[None]:
        """Attributes to nobody how the object is moved inside of the `with` statement.

        Args:
            context: Context of this system.
        """
        values = context.get_discrete_state_vector().CopyToVector()
        state = self._parts_of(values)
        self._advance(context, state)
        yield
        state.force[:], state.share[:] = 0.0, 0.0  # how it goes on is nobody's, either
        self._advance(context, state)
        context.SetDiscreteState(values)

    def set_external_forces(self, context: Context, forces: np.ndarray) -> None:
        """Sets the external forces on the object; their motion is attributed to no part.

        Args:
            context: Context of this system.
            forces: (links, 3), force at the centre of mass of each link, N, in the world.
        """
        parameter = context.get_mutable_numeric_parameter(self._external)
        if not np.array_equal(parameter.value(), forces.ravel()):
            parameter.SetFromVector(forces.ravel())
            values = context.get_discrete_state_vector().CopyToVector()
            values[self._slices.age] = READING_STEPS  # forces are read again in the next step
            context.SetDiscreteState(values)

    def _update(self, context: Context, values: np.ndarray) -> None:
        """Advances the state, `values`, to the present, and finds the present forces."""
        # count_nonzero, because `any` of a few numbers takes as long as the rest of an idle step
        tau = self.EvalVectorInput(context, self._inputs["arm_contact"]).value()
        arm_in_contact = np.count_nonzero(tau) > 0
        touched = np.count_nonzero(values[self._slices.force]) > 0
        age = self._slices.age.start
        if arm_in_contact and touched and values[age] + 1 < READING_STEPS:
            values[age] += 1
            return
        external = context.get_numeric_parameter(self._external).value()
        pushed = np.count_nonzero(external) > 0
        if not (arm_in_contact or touched or pushed):
            return  # nothing but the object itself moves it
        contacts, on_fixed = self._contacts(context) if arm_in_contact else ((), {})
        if not contacts and not touched and not pushed:
            return  # neither now nor before
        state = self._parts_of(values)
        self._advance(context, state)
        state.age[:] = 0.0
        state.force[:] = 0.0
        if contacts:
            state.force[:] = contact_forces(
                contacts,
                state.poses[:, :, 3],
                self._object.link_mechanism,
                state.share,
                self._poses(context, self._part_frames),
                self._parts.packed,
                self._places.not_counted(contacts, on_fixed, state.poses),
            )
        if pushed:
            for link, force in enumerate(external.reshape(-1, 3)):
                moment = np.cross(state.poses[link, :, :3] @ self._object.p_LLcm[link], force)
                state.force[-1, link] += np.concatenate([moment, force])

    def _contacts(self, context: Context) -> tuple[list[PartContact], dict[int, list[float]]]:
        """Returns contacts on moving links, and the force of the tool on each fixed one, N."""
        found, on_fixed = [], {}
        links, agents, mechanism = self._links, self._agents, self._object.link_mechanism
        for shape_A, shape_B, contact in contacts(self._eval(context, "contact_results")):
            A, B = shape_A.get_value(), shape_B.get_value()
            for on, by, sign in ((A, B, 1.0), (B, A, -1.0)):
                link, agent = links.get(on), agents.get(by)
                if link is None or agent is None:
                    continue
                if mechanism[link] != FIXED:
                    p_WC, F_AC_W = contact()
                    found.append((link, agent, p_WC, sign * F_AC_W.get_coeffs()))
                elif agent == TOOL and self._places.bearings:
                    _, F_AC_W = contact()
                    force = on_fixed.setdefault(link, [0.0, 0.0, 0.0])
                    add_to(force, sign * F_AC_W.translational())
        return found, on_fixed

    def _advance(self, context: Context, state: "_State") -> None:
        """Advances shares, motion and poses to the present, in place."""
        X_WL = self._poses(context, self._link_frames)
        state.share[:], state.motion[:], state.far[:] = advanced(
            state.force,
            state.poses,
            X_WL,
            state.share,
            state.far,
            self._object_state(context),
            state.motion,
            state.start,
            state.start_poses,
            self._object.packed,
        )
        state.poses[:] = X_WL

    def _poses(self, context: Context, frames: list[FrameId]) -> np.ndarray:
        """Returns poses [R | p] of frames in the world, (frames, 3, 4)."""
        poses = self._eval(context, "geometry_pose")
        return np.array([poses.value(frame).GetAsMatrix34() for frame in frames])

    def _parts_of(self, values: np.ndarray) -> "_State":
        """Returns views of a state vector."""
        return _State(
            *(
                values[where].reshape(shape)
                for where, shape in zip(self._slices, self._shapes, strict=True)
            )
        )

    def _object_state(self, context: Context) -> np.ndarray:
        return self.EvalVectorInput(context, self._inputs["object_state"]).value()

    def _eval(self, context: Context, port: str):
        return self.EvalAbstractInput(context, self._inputs[port]).get_value()


class _State(NamedTuple):
    """The discrete state, or something about each of its parts.

    Attributes:
        force: (n + 1, links, 6), contact wrenches read last, see `attribution.advance`.
        age: (1,), simulation steps since they were read.
        share: (n, mechanisms), shares of the parts in the work.
        motion: (n, coordinates), motion that the parts caused, see `attribution.from_start`.
        poses: (links, 3, 4), poses [R_WL | p_WL] up to which the motion reaches.
        far: (coordinates,), how far they are from the start there, see `attribution.from_start`.
        start_poses: (links, 3, 4), poses at which it begins.
        start: (coordinates,), coordinates at which it begins.
    """

    force: Any
    age: Any
    share: Any
    motion: Any
    poses: Any
    far: Any
    start_poses: Any
    start: Any


def _frames(plant: MultibodyPlant, bodies: Iterable[int]) -> list[FrameId]:
    """Returns the frames of bodies, by index in the plant, in the scene graph."""
    return [plant.GetBodyFrameIdOrThrow(BodyIndex(body)) for body in bodies]


def add_part_motion_meter(
    builder: DiagramBuilder,
    plant: MultibodyPlant,
    arm: ModelInstanceIndex,
    tool: tuple[ModelInstanceIndex, Model],
    object: tuple[ModelInstanceIndex, Model],
    parts: Mapping[str, ToolPart],
) -> PartMotionMeter | None:
    """Adds a `PartMotionMeter` to a diagram; its arguments are described there.

    Returns:
        None if there are no parts.
    """
    if not parts:
        return None
    meter = builder.AddSystem(PartMotionMeter(plant, arm, tool, object, parts))
    for name, port in (
        ("contact_results", plant.get_contact_results_output_port()),
        ("geometry_pose", plant.get_geometry_pose_output_port()),
        ("arm_contact", plant.get_generalized_contact_forces_output_port(arm)),
        ("object_state", plant.get_state_output_port(object[0])),
    ):
        builder.Connect(port, meter.GetInputPort(name))
    release_cycles(meter, meter._update_callback)
    return meter


# --- Where a part has to touch ---------------------------------------------------------------


class PlaceOnObject(NamedTuple):
    """The place on an object where a part of the tool has to touch it.

    Attributes:
        part: Index of the part.
        corners: Link, by its index in the object, and position in it, m, of each corner of a line.
        within_m: Largest distance from the line, m.
    """

    part: int
    corners: tuple[tuple[int, np.ndarray], ...]
    within_m: float


class Bearing(NamedTuple):
    """The link of an object on which the tool has to bear for a part to count.

    Attributes:
        part: Index of the part.
        link: The link, by its index in the object.
    """

    part: int
    link: int


class Direction(NamedTuple):
    """The direction in which a part of the tool has to push a link of the object.

    Attributes:
        part: Index of the part.
        link: The link, by its index in the object.
        axis: (3,), the direction in its frame, of any length.
    """

    part: int
    link: int
    axis: np.ndarray


class Places(NamedTuple):
    """Required contacts: of parts of the tool with the object, and of the tool with a support.

    Attributes:
        on_object: Places of the parts that have one.
        bearings: Bearings of the parts that have one.
        directions: Directions of the parts that have some.
    """

    on_object: tuple[PlaceOnObject, ...]
    bearings: tuple[Bearing, ...]
    directions: tuple[Direction, ...]

    def not_counted(
        self,
        contacts: Sequence[PartContact],
        on_fixed: Mapping[int, Sequence[float]],
        X_WL: np.ndarray,
    ) -> set[tuple[int, int]]:
        """Returns which contacts do not count for which parts, as pairs of their indices.

        Args:
            contacts: Contacts on moving links.
            on_fixed: Force of the tool on each fixed link, (3,), N.
            X_WL: (links, 3, 4), poses of the object's links, m.
        """
        found = misplaced(self.on_object, [p_WC for _, _, p_WC, _ in contacts], X_WL)
        found |= misdirected(self.directions, [(link, F[3:]) for link, _, _, F in contacts], X_WL)
        if self.bearings:
            load = [0.0, 0.0, 0.0]
            for _, agent, _, F in contacts:
                if agent == TOOL:
                    add_to(load, F[3:])
            parts = unsupported(self.bearings, on_fixed, load)
            found |= {(k, part) for k in range(len(contacts)) for part in parts}
        return found


def places_of_parts(
    parts: Mapping[str, ToolPart], bodies: Sequence[int], plant: MultibodyPlant, model: Model
) -> Places:
    """Returns places, bearings and directions of those parts that have some.

    Args:
        parts: Parts of the tool by name.
        bodies: Body index of each link of the object.
        plant: The plant.
        model: The object.

    Raises:
        UnknownNameError: The object lacks a keypoint, or a fixed link.
        ConfigError: A direction is between keypoints of two links.
    """
    welded = {body.index() for body in plant.GetBodiesWeldedTo(plant.world_body())}
    of_name = {plant.get_body(BodyIndex(body)).name(): link for link, body in enumerate(bodies)}
    places, bearings, directions = [], [], []
    for row, part in enumerate(parts.values()):
        if part.at is not None:
            points = [model.keypoint(name) for name in part.at.keypoints]
            corners = tuple((of_name[k.link], np.array(k.position)) for k in points)
            places.append(PlaceOnObject(row, corners, part.at.within_m))
        if part.bears_on is not None:
            fixed = {name: k for name, k in of_name.items() if BodyIndex(bodies[k]) in welded}
            if part.bears_on not in fixed:
                raise UnknownNameError(f"fixed link of {model.name}", part.bears_on, fixed)
            bearings.append(Bearing(row, fixed[part.bears_on]))
        for names in part.pushes or ():
            start, end = (model.keypoint(name) for name in names)
            if start.link != end.link:
                raise ConfigError(
                    f"`pushes: [{names[0]}, {names[1]}]` needs two keypoints of the same link of "
                    f"{model.name}; they are on {start.link} and {end.link}."
                )
            axis = np.subtract(end.position, start.position)
            directions.append(Direction(row, of_name[start.link], axis))
    return Places(tuple(places), tuple(bearings), tuple(directions))


def misplaced(
    places: Sequence[PlaceOnObject], points: Sequence[np.ndarray], X_WL: np.ndarray
) -> set[tuple[int, int]]:
    """Returns which contacts do not count for which parts, as pairs of their indices.

    Args:
        places: Places of the parts that have one.
        points: Where contacts act, (3,) each, m, in the world.
        X_WL: (links, 3, 4), poses of the object's links, m.
    """
    found = set()
    for place in places:
        line = np.array([_in_world(X_WL[link], p_LK) for link, p_LK in place.corners])
        for k, point in enumerate(points):
            if distance_to_polyline(point, line) > place.within_m:
                found.add((k, place.part))
    return found


def misdirected(
    directions: Sequence[Direction],
    forces: Sequence[tuple[int, np.ndarray]],
    X_WL: np.ndarray,
) -> set[tuple[int, int]]:
    """Returns which contacts do not count for which parts, as pairs of their indices.

    Args:
        directions: Directions of the parts that have some; it is enough to push in one of them.
        forces: The link on which each contact acts, and its force, (3,), N, in the world.
        X_WL: (links, 3, 4), poses of the object's links, m.
    """
    found = {(k, direction.part) for direction in directions for k in range(len(forces))}
    for part, link, axis in directions:
        towards = _in_world(X_WL[link] * _TURN, axis)
        for k, (on, force) in enumerate(forces):
            if on == link and _within_45_deg(force.tolist(), towards):
                found.discard((k, part))
    return found


_TURN = np.array([1.0, 1.0, 1.0, 0.0])
"""Factor of a pose [R | p] that leaves the rotation."""


def _within_45_deg(a: Sequence[float], b: Sequence[float]) -> bool:
    ab, aa, bb = (
        sum(x * y for x, y in zip(p, q, strict=True)) for p, q in ((a, b), (a, a), (b, b))
    )
    return ab > 0.0 and 2.0 * ab * ab >= aa * bb


def unsupported(
    bearings: Sequence[Bearing], forces: Mapping[int, Sequence[float]], load: Sequence[float]
) -> set[int]:
    """Returns which parts do not count, because the tool does not bear on their link.

    A lever presses its fulcrum against the force on its load, with the force of the hand beside.
    So the force on the link must have a component against the load of at least half of it; the
    other half is for what is read while contact settles.

    Args:
        bearings: Bearings of the parts that have one.
        forces: Force of the tool on links of the object, (3,) each, N, by index of the link.
        load: (3,), its force on all moving links, N.
    """
    x, y, z = load
    least = BEARING_SHARE * (x * x + y * y + z * z)
    found = set()
    for part, link in bearings:
        f = forces.get(link, (0.0, 0.0, 0.0))
        if f[0] * x + f[1] * y + f[2] * z > -least:
            found.add(part)
    return found


def add_to(total: list[float], force: np.ndarray) -> None:
    """Adds a force, (3,), to a sum in place."""
    for i, each in enumerate(force.tolist()):
        total[i] += each


def _in_world(X_WL: np.ndarray, p_LK: np.ndarray) -> list[float]:
    """Returns the position of a point of a link; by sums whose order no library chooses."""
    rows, p = X_WL.tolist(), p_LK.tolist()
    return [row[0] * p[0] + row[1] * p[1] + row[2] * p[2] + row[3] for row in rows]
