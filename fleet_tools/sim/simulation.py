"""Runs one episode after another: takes a scene, makes control steps, returns states."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from pydrake.common.value import AbstractValue
from pydrake.geometry import QueryObject
from pydrake.math import RigidTransform
from pydrake.multibody.plant import MultibodyPlant
from pydrake.multibody.tree import Frame, ModelInstanceIndex, RigidBody
from pydrake.systems.analysis import Simulator
from pydrake.systems.framework import Context

from fleet_tools.errors import SimulationError
from fleet_tools.robot.controller import Reference, within_limits
from fleet_tools.sim.add_models import model_frame
from fleet_tools.sim.apply_scene import (
    apply_scene,
    mark_place,
    move_object,
    place_objects,
    read_defaults,
)
from fleet_tools.sim.attribution import PartMotion
from fleet_tools.sim.catalog import Model
from fleet_tools.sim.contact_shapes import contact_hint, contact_surface_error
from fleet_tools.sim.contacts import JointContact, find_contacts, total_wrench
from fleet_tools.sim.external_forces import (
    NO_FORCES,
    PORT,
    ForcesNow,
    drake_forces,
    forces_in,
    link_forces,
)
from fleet_tools.sim.free_rotation import normalize_quaternions
from fleet_tools.sim.hand_force import NO_CONTACT
from fleet_tools.sim.scene import Push, Scene, marked_place
from fleet_tools.sim.world import World
from fleet_tools.sim.world_state import OTHER, Snapshot, WorldState

Points = dict[str, tuple[Frame, np.ndarray]]
"""Frame of a link and position in it, (3,), m, by the name of a keypoint."""


class Simulation:
    """Simulates scenes in one world, one control step at a time.

    Args:
        world: The world.
        tool: Model of its tool.
        object: Model of its object.
        scene: The first scene.
        next_objects: Models of its further objects.

    Attributes:
        world, object: As given, or of the further object that is in use.
        tool: As given.
        scene: The present scene.

    Raises:
        ConfigError: Drake cannot make the contact surfaces of a model.
        SimulationError: Drake cannot begin in the scene.
    """

    def __init__(
        self,
        world: World,
        tool: Model,
        object: Model,
        scene: Scene,
        next_objects: Sequence[Model] = (),
    ) -> None:
        self.tool, models = tool, (object, *next_objects)
        self._files = [each.file for each in (tool, *models)]
        try:
            self._simulator = Simulator(world.diagram)
        except RuntimeError as error:
            raise contact_surface_error(error, self._files) from error
        self._root = self._simulator.get_mutable_context()
        self._context = world.plant.GetMyMutableContextFromRoot(self._root)
        self._hand = world.hand()
        self._tool_points = attached_points(world.plant, world.tool, tool)
        self._objects = [
            ObjectInUse(each, model, self._root)
            for each, model in zip(world.in_turn(), models, strict=True)
        ]
        self._use(0)
        self._limit_times = world.limit_meter.GetMyMutableContextFromRoot(self._root)
        self._defaults = read_defaults(world, self._root)
        self.reset(scene)

    def reset(self, scene: Scene) -> None:
        """Sets the state in which a scene begins; nothing of the past remains.

        Raises:
            SimulationError: Drake cannot begin in it.
        """
        self._step, self._hand_forces = 0, NO_CONTACT
        self.scene = scene
        self._use(0)
        try:
            apply_scene(scene, self.world, self._defaults, self._root)
            self._mark_place()
            self._push_on(NO_FORCES)
            self._start_motion(self.end_effector_pose(), np.zeros(6))
            self._simulator.Initialize()
            self._start = self.world.plant.GetPositionsAndVelocities(self._context)
            self._object.begin()
        except RuntimeError as error:
            raise self._drake_error("begin", error) from error

    def step(
        self, delta: np.ndarray, watcher: "Callable[[Simulation], None] | None" = None
    ) -> None:
        """Simulates one control step, in which the end effector is to move by a pose delta.

        Args:
            delta: (6,), translation (m), then rotation vector (rad), in the frame of the pose from
                which it moves (`Reference.continued_from`).
            watcher: Receives this simulation at each of its times within the step, the last one
                included. It only looks: the trajectory is the same with and without it.

        Raises:
            SimulationError: The solver failed or the state is not finite; call `reset`.
        """
        self._step += 1
        normalize_quaternions(self.world.plant, self._context)
        push = self.scene.push
        if push is not None and self._step_of(push) == self._step:
            self._push(push)
        self._push_on_in(self._step)
        self._start_motion(self._reference.continued_from(self.end_effector_pose()), delta)
        self._object.contact.set_impulse(0.0)
        self._set_limit_times(np.zeros(3 * self.world.robot.num_joints))
        if watcher is not None:
            self._simulator.set_monitor(lambda _: watcher(self))
        try:
            self.world.hand_force.begin(self._root)
            self._simulator.AdvanceTo(self.world.simulated_until(self._step))
        except RuntimeError as error:
            raise self._drake_error("finish", error) from error
        finally:
            if watcher is not None:
                self._simulator.clear_monitor()
        x = self.world.plant.GetPositionsAndVelocities(self._context)
        if not np.isfinite(x).all():
            raise SimulationError(f"After step {self._step} the state is not finite: {x}")
        self._hand_forces = self.world.hand_force.forces(
            self._root,
            self._forces.hand_N,
            link_forces(self._object.links, self._forces, self._context).sum(axis=0),
        )

    def use_next_object(self) -> None:
        """Lets the next object be the one that is in use; nothing moves.

        What the state tells of it begins now: impulses and motion by part are those since now.

        Raises:
            IndexError: There is none.
        """
        self._use(self.objects_done + 1)
        self._mark_place()
        self._object.begin()

    def link_places(self) -> list[tuple[str, np.ndarray]]:
        """Returns name and place of the centre of mass, (3,), m, of each link of all objects."""
        found = [each.link_motions(self._context) for each in self._objects]
        return [(name, p_W) for links in found for name, (p_W, _) in links.items()]

    @property
    def objects_done(self) -> int:
        """Number of objects before the one that is in use."""
        return self._number

    @property
    def steps(self) -> int:
        """Control steps since the start of the episode."""
        return self._step

    @property
    def time(self) -> float:
        """Time since the start of the episode, s; with substeps, exact to half a time step."""
        return min(self._root.get_time(), self._step / self.world.control_rate_hz)

    def end_effector_pose(self) -> RigidTransform:
        """Returns X_WE now."""
        return self._hand.CalcPoseInWorld(self._context)

    def world_state(self) -> WorldState:
        """Returns the present state of the world.

        Raises:
            SimulationError: The solver finds no contact forces.
        """
        try:
            return self._world_state()
        except RuntimeError as error:
            raise self._drake_error("measure", error) from error

    def snapshot(self) -> Snapshot:
        """Returns the present state, from which the same scene can continue."""
        x = self.world.plant.GetPositionsAndVelocities(self._context)
        return Snapshot(
            step=self._step,
            x=x,
            reference=self._reference,
            impulse=self._object.contact.impulse(),
            attribution=np.concatenate([each.attribution() for each in self._objects]),
            hand_forces=self._hand_forces,
            limit_times=self._limits_bound(),
            objects_done=self.objects_done,
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Returns to a snapshot of the present scene.

        Raises:
            SimulationError: The snapshot is not finite.
        """
        if not np.isfinite(snapshot.x).all():
            raise SimulationError(f"The snapshot is not finite: {snapshot.x}")
        self._use(0)
        self._step = snapshot.step
        self._root.SetTime(self.world.simulated_until(self._step))
        place_objects(self.scene, self.world, self._defaults, self._root)
        push = self.scene.push
        if push is not None and self._step_of(push) <= snapshot.step:
            move_object(push.translation_m, self.world, self._defaults, self._root)
        # Initializing logs contact forces: some states have none that can be found, the start has.
        self.world.plant.SetPositionsAndVelocities(self._context, self._start)
        self._push_on(NO_FORCES)
        self._start_motion(self.end_effector_pose(), np.zeros(6))
        self._simulator.Initialize()
        self._use(snapshot.objects_done)
        self._mark_place()
        self.world.plant.SetPositionsAndVelocities(self._context, snapshot.x)
        self._push_on_in(snapshot.step)
        self._follow(snapshot.reference)
        self._object.contact.set_impulse(snapshot.impulse)
        ends = np.cumsum([each.attribution().size for each in self._objects])
        for each, values in zip(self._objects, np.split(snapshot.attribution, ends), strict=False):
            each.set_attribution(values)
        self._hand_forces = snapshot.hand_forces
        self._set_limit_times(snapshot.limit_times)

    def query(self) -> QueryObject:
        """Returns Drake's query object for the present geometry."""
        scene_graph = self.world.scene_graph
        context = scene_graph.GetMyContextFromRoot(self._root)
        return scene_graph.get_query_output_port().Eval(context)

    def publish(self) -> None:
        """Publishes the present state to the diagram's viewers."""
        self.world.diagram.ForcedPublish(self._root)

    def _world_state(self) -> WorldState:
        world, plant, context = self.world, self.world.plant, self._context
        q = plant.GetPositions(context, world.arm)
        v = plant.GetVelocities(context, world.arm)
        tau = plant.get_generalized_contact_forces_output_port(world.arm).Eval(context)
        X_WE = self.end_effector_pose()
        F_W = world.adjustable.arm_model.external_wrench(q, tau)
        R_EW = X_WE.rotation().inverse()
        position, velocity, torque = np.split(self._limits_bound(), 3)
        contacts = find_contacts(plant, world.scene_graph, context)
        p_W_place = marked_place(self.scene.objects[self._number])
        return WorldState(
            time=self.time,
            q=q,
            v=v,
            tau_external=tau,
            X_WE=X_WE,
            F_E=np.concatenate([R_EW @ F_W[:3], R_EW @ F_W[3:]]),
            p_W_tool=self._locate(self._tool_points),
            X_WO=model_frame(plant, world.object).CalcPoseInWorld(context),
            p_W_object=self._locate(self._object.points),
            object_joints={j.name(): j.GetOnePosition(context) for j in self._object.joints},
            contacts=frozenset(
                _sorted(self._body_name(pair.A), self._body_name(pair.B)) for pair in contacts
            ),
            F_W_tool=total_wrench(contacts, world.tool, world.object, X_WE.translation()),
            object_joint_forces=self._object.contact.forces(),
            object_joint_impulses=self._object.contact.impulses(),
            V_WE=self._hand.CalcSpatialVelocityInWorld(context).get_coeffs(),
            links=self._object.link_motions(context),
            part_motion=self._object.motion_by_part(),
            hand_forces=self._hand_forces,
            motion_scale=self._reference.scale,
            limit_times={"position": position, "velocity": velocity, "torque": torque},
            p_W_place=None if p_W_place is None else np.array(p_W_place),
        )

    def _step_of(self, push: Push) -> int:
        """Returns the control step, counted from 1, at whose start a push is."""
        return 1 + round(push.time_s * self.world.control_rate_hz)

    def _push(self, push: Push) -> None:
        """Moves the object, which is nobody's doing."""
        with self._object.unattributed():
            move_object(push.translation_m, self.world, self._defaults, self._root)

    def _push_on_in(self, step: int) -> None:
        """Applies the forces of a control step."""
        if (now := forces_in(self.scene, step, self.world.control_rate_hz)) != self._forces:
            self._push_on(now)

    def _push_on(self, now: ForcesNow) -> None:
        """Applies forces from now on, which are nobody's doing, either."""
        self._forces = now
        plant, context = self.world.plant, self._context
        port = self.world.diagram.GetInputPort(PORT)
        value = self.world.diagram.AllocateInputAbstract(port)
        links = self._object.links
        value.set_value(drake_forces(plant, self._hand, links, now, context))
        port.FixValue(self._root, value)
        for each in self._objects:  # where there are several, the force on each is zero
            each.set_external_forces(link_forces(each.links, now, context))

    def _use(self, number: int) -> None:
        """Lets an object be the one that is in use."""
        self._number, self._object = number, self._objects[number]
        self.world, self.object = self._object.world, self._object.model

    def _mark_place(self) -> None:
        """Marks the place of the object that is in use."""
        mark_place(self.scene.objects[self._number], self.world, self._root)

    def _drake_error(self, verb: str, error: RuntimeError) -> SimulationError:
        hint = contact_hint(error, self._files)
        return SimulationError(f"Drake could not {verb} step {self._step}: {error}{hint}")

    def _body_name(self, body: RigidBody) -> str:
        instance = body.model_instance()
        if instance == self.world.object:
            return f"object/{body.name()}"
        if instance in self.world.objects:
            return OTHER
        return {self.world.arm: "robot", self.world.tool: "tool"}.get(instance, "table")

    def _start_motion(self, X_WE: RigidTransform, delta: np.ndarray) -> None:
        rate = self.world.control_rate_hz
        start, duration = max(self._step - 1, 0) / rate, 1.0 / rate
        posture = np.array(self.scene.initial_joints_rad)
        whole = Reference(X_WE, np.array(delta), start, duration, posture)
        q = self.world.plant.GetPositions(self._context, self.world.arm)
        self._follow(within_limits(whole, self.world.adjustable.arm_model, q))

    def _follow(self, reference: Reference) -> None:
        self._reference = reference
        port = self.world.diagram.GetInputPort("reference")
        port.FixValue(self._root, AbstractValue.Make(reference))

    def _limits_bound(self) -> np.ndarray:
        return self._limit_times.get_discrete_state_vector().CopyToVector()

    def _set_limit_times(self, seconds: np.ndarray) -> None:
        self.world.limit_meter.set_integral_value(self._limit_times, seconds)

    def _locate(self, points: Points) -> dict[str, np.ndarray]:
        X_WF = {frame: frame.CalcPoseInWorld(self._context) for frame, _ in points.values()}
        return {name: X_WF[frame] @ position for name, (frame, position) in points.items()}


def _sorted(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one <= other else (other, one)


# --- The object that is in use ---------------------------------------------------------------


class ObjectInUse:
    """Reads an object of a world, and its meters.

    Args:
        world: The world in whose role of the object it is.
        model: Its model.
        root: Context of the diagram.

    Attributes:
        world, model: As given.
        points: Its keypoints.
        joints: Its joints with one degree of freedom.
        links: Its links.
        contact: Contact forces and impulses on the joints.
    """

    def __init__(self, world: World, model: Model, root: Context) -> None:
        plant = world.plant
        self.world, self.model = world, model
        self.points = attached_points(plant, world.object, model)
        self.joints = [
            joint
            for joint in map(plant.get_joint, plant.GetJointIndices(world.object))
            if joint.num_positions() == 1
        ]
        self.links = list(world.bodies(world.object))
        self.contact = JointContact(plant, world.object, self.joints, world.impulse_meter, root)
        self._part_motion = None
        if world.part_motion is not None:
            self._part_motion = (
                world.part_motion,
                world.part_motion.GetMyMutableContextFromRoot(root),
            )

    def link_motions(self, context: Context) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Returns position and velocity of each link's centre of mass, (3,) each, m and m/s, in W.

        Args:
            context: Context of the plant.
        """
        return {
            body.name(): (
                body.EvalPoseInWorld(context) @ body.CalcCenterOfMassInBodyFrame(context),
                body.CalcCenterOfMassTranslationalVelocityInWorld(context),
            )
            for body in self.links
        }

    def begin(self) -> None:
        """Forgets who touched and moved it so far, as at the start of an episode."""
        self.contact.set_impulse(0.0)
        if self._part_motion is not None:
            meter, context = self._part_motion
            meter.begin(context)

    def motion_by_part(self) -> dict[str, PartMotion]:
        """Returns its motion since it is in use by the part of the tool that caused it."""
        if self._part_motion is None:
            return {}
        meter, context = self._part_motion
        return meter.motion(context)

    def attribution(self) -> np.ndarray:
        """Returns the attribution of its motion, see `Snapshot`."""
        if self._part_motion is None:
            return np.zeros(0)
        _, context = self._part_motion
        return context.get_discrete_state_vector().CopyToVector()

    def set_attribution(self, values: np.ndarray) -> None:
        """Restores a value of `attribution`."""
        if self._part_motion is not None:
            _, context = self._part_motion
            context.SetDiscreteState(values)

    @contextmanager
    def unattributed(self) -> Iterator[None]:
        """Attributes motions within the `with` statement to no part."""
        if self._part_motion is None:
            yield
            return
        meter, context = self._part_motion
        with meter.unattributed(context):
            yield

    def set_external_forces(self, forces: np.ndarray) -> None:
        """Sets the external forces on it, (links, 3), N, in the world."""
        if self._part_motion is not None:
            meter, context = self._part_motion
            meter.set_external_forces(context, forces)


def attached_points(plant: MultibodyPlant, instance: ModelInstanceIndex, model: Model) -> Points:
    """Returns the keypoints of a model in a plant."""
    return {
        name: (
            plant.GetBodyByName(keypoint.link, instance).body_frame(),
            np.array(keypoint.position),
        )
        for name, keypoint in model.labels.keypoints.items()
    }
