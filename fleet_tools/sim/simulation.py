"""The simulation of one episode after another: a scene in, control steps, states out."""

from collections.abc import Callable
from contextlib import nullcontext

import numpy as np
from pydrake.common.value import AbstractValue
from pydrake.geometry import QueryObject
from pydrake.math import RigidTransform
from pydrake.multibody.plant import MultibodyPlant
from pydrake.multibody.tree import Frame, ModelInstanceIndex, RigidBody
from pydrake.systems.analysis import Simulator

from fleet_tools.errors import SimulationError
from fleet_tools.robot.controller import Reference, within_limits
from fleet_tools.robot.osc import external_wrench
from fleet_tools.sim.add_models import model_frame
from fleet_tools.sim.apply_scene import apply_scene, move_object, place_object, read_defaults
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
from fleet_tools.sim.motion_tables import PartMotion
from fleet_tools.sim.scene import Push, Scene
from fleet_tools.sim.world import World
from fleet_tools.sim.world_state import Snapshot, WorldState


class Simulation:
    """Simulates scenes in one world, one control step at a time.

    Args:
        world: The world.
        tool: Model of its tool.
        object: Model of its object.
        scene: The first scene.

    Attributes:
        world, tool, object: As given.
        scene: The present scene.

    Raises:
        ConfigError: Drake cannot make the contact surfaces of a model.
        SimulationError: Drake cannot begin in the scene.
    """

    def __init__(self, world: World, tool: Model, object: Model, scene: Scene) -> None:
        self.world, self.tool, self.object = world, tool, object
        try:
            self._simulator = Simulator(world.diagram)
        except RuntimeError as error:
            raise contact_surface_error(error, [tool.file, object.file]) from error
        self._root = self._simulator.get_mutable_context()
        self._context = world.plant.GetMyMutableContextFromRoot(self._root)
        plant = world.plant
        self._hand = world.hand()
        self._tool_points = _attached_points(plant, world.tool, tool)
        self._object_points = _attached_points(plant, world.object, object)
        self._object_joints = [
            joint
            for joint in map(plant.get_joint, plant.GetJointIndices(world.object))
            if joint.num_positions() == 1
        ]
        self._joint_contact = JointContact(
            plant, world.object, self._object_joints, world.impulse_meter, self._root
        )
        self._part_motion = None
        if world.part_motion is not None:
            context = world.part_motion.GetMyMutableContextFromRoot(self._root)
            self._part_motion = world.part_motion, context
        self._links = list(world.bodies(world.object))
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
        try:
            apply_scene(scene, self.world, self._defaults, self._root)
            self._push_on(NO_FORCES)
            self._start_motion(np.zeros(6))
            self._simulator.Initialize()
            self._start = self.world.plant.GetPositionsAndVelocities(self._context)
        except RuntimeError as error:
            raise self._drake_error("begin", error) from error

    def step(
        self, delta: np.ndarray, watcher: "Callable[[Simulation], None] | None" = None
    ) -> None:
        """Simulates one control step, in which the end effector is to move by a pose delta.

        Args:
            delta: (6,), translation (m), then rotation vector (rad), in the end effector's frame.
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
        self._start_motion(delta)
        self._joint_contact.set_impulse(0.0)
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
            self.world.adjustable.arm_model,
            self._forces.hand_N,
            link_forces(self._links, self._forces, self._context).sum(axis=0),
        )

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
            impulse=self._joint_contact.impulse(),
            attribution=self._attribution(),
            hand_forces=self._hand_forces,
            limit_times=self._limits_bound(),
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Returns to a snapshot of the present scene.

        Raises:
            SimulationError: The snapshot is not finite.
        """
        if not np.isfinite(snapshot.x).all():
            raise SimulationError(f"The snapshot is not finite: {snapshot.x}")
        self._step = snapshot.step
        self._root.SetTime(self.world.simulated_until(self._step))
        place_object(self.scene, self.world, self._defaults, self._root)
        push = self.scene.push
        if push is not None and self._step_of(push) <= snapshot.step:
            move_object(push.translation_m, self.world, self._defaults, self._root)
        # Initializing logs contact forces: some states have none that can be found, the start has.
        self.world.plant.SetPositionsAndVelocities(self._context, self._start)
        self._push_on(NO_FORCES)
        self._start_motion(np.zeros(6))
        self._simulator.Initialize()
        self.world.plant.SetPositionsAndVelocities(self._context, snapshot.x)
        self._push_on_in(snapshot.step)
        self._follow(snapshot.reference)
        self._joint_contact.set_impulse(snapshot.impulse)
        if self._part_motion is not None:
            _, context = self._part_motion
            context.SetDiscreteState(snapshot.attribution)
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
        dynamics, _ = world.adjustable.arm_model.dynamics(q, v)
        F_W = external_wrench(dynamics.J, tau)
        R_EW = X_WE.rotation().inverse()
        position, velocity, torque = np.split(self._limits_bound(), 3)
        contacts = find_contacts(plant, world.scene_graph, context)
        return WorldState(
            time=self.time,
            q=q,
            v=v,
            tau_external=tau,
            X_WE=X_WE,
            F_E=np.concatenate([R_EW @ F_W[:3], R_EW @ F_W[3:]]),
            p_W_tool=self._locate(self._tool_points),
            X_WO=model_frame(plant, world.object).CalcPoseInWorld(context),
            p_W_object=self._locate(self._object_points),
            object_joints={j.name(): j.GetOnePosition(context) for j in self._object_joints},
            contacts=frozenset(
                _sorted(self._body_name(pair.A), self._body_name(pair.B)) for pair in contacts
            ),
            F_W_tool=total_wrench(contacts, world.tool, world.object, X_WE.translation()),
            object_joint_forces=self._joint_contact.forces(),
            object_joint_impulses=self._joint_contact.impulses(),
            V_WE=self._hand.CalcSpatialVelocityInWorld(context).get_coeffs(),
            links={
                body.name(): (
                    body.EvalPoseInWorld(context) @ body.CalcCenterOfMassInBodyFrame(context),
                    body.CalcCenterOfMassTranslationalVelocityInWorld(context),
                )
                for body in world.bodies(world.object)
            },
            part_motion=self._motion_by_part(),
            hand_forces=self._hand_forces,
            motion_scale=self._reference.scale,
            limit_times={"position": position, "velocity": velocity, "torque": torque},
        )

    def _step_of(self, push: Push) -> int:
        """Returns the control step, counted from 1, at whose start a push is."""
        return 1 + round(push.time_s * self.world.control_rate_hz)

    def _push(self, push: Push) -> None:
        """Moves the object, which is nobody's doing."""
        attribution = nullcontext()
        if self._part_motion is not None:
            meter, context = self._part_motion
            attribution = meter.unattributed(context)
        with attribution:
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
        value.set_value(drake_forces(plant, self._hand, self._links, now, context))
        port.FixValue(self._root, value)
        if self._part_motion is not None:
            meter, meter_context = self._part_motion
            meter.set_external_forces(meter_context, link_forces(self._links, now, context))

    def _motion_by_part(self) -> dict[str, PartMotion]:
        if self._part_motion is None:
            return {}
        meter, context = self._part_motion
        return meter.motion(context)

    def _attribution(self) -> np.ndarray:
        if self._part_motion is None:
            return np.zeros(0)
        _, context = self._part_motion
        return context.get_discrete_state_vector().CopyToVector()

    def _drake_error(self, verb: str, error: RuntimeError) -> SimulationError:
        hint = contact_hint(error, [self.tool.file, self.object.file])
        return SimulationError(f"Drake could not {verb} step {self._step}: {error}{hint}")

    def _body_name(self, body: RigidBody) -> str:
        instance = body.model_instance()
        if instance == self.world.object:
            return f"object/{body.name()}"
        return {self.world.arm: "robot", self.world.tool: "tool"}.get(instance, "table")

    def _start_motion(self, delta: np.ndarray) -> None:
        rate = self.world.control_rate_hz
        start, duration = max(self._step - 1, 0) / rate, 1.0 / rate
        posture = np.array(self.scene.initial_joints_rad)
        whole = Reference(self.end_effector_pose(), np.array(delta), start, duration, posture)
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

    def _locate(self, points: dict[str, tuple[Frame, np.ndarray]]) -> dict[str, np.ndarray]:
        return {
            name: frame.CalcPoseInWorld(self._context) @ position
            for name, (frame, position) in points.items()
        }


def _attached_points(
    plant: MultibodyPlant, instance: ModelInstanceIndex, model: Model
) -> dict[str, tuple[Frame, np.ndarray]]:
    return {
        name: (
            plant.GetBodyByName(keypoint.link, instance).body_frame(),
            np.array(keypoint.position),
        )
        for name, keypoint in model.labels.keypoints.items()
    }


def _sorted(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one <= other else (other, one)
