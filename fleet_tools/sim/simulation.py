"""The simulation of one episode after another: a scene in, control steps, measurements out."""

import hashlib
from dataclasses import dataclass

import numpy as np
from pydrake.common.value import AbstractValue
from pydrake.geometry import QueryObject
from pydrake.math import RigidTransform
from pydrake.multibody.plant import MultibodyPlant
from pydrake.multibody.tree import Frame, ModelInstanceIndex, RigidBody
from pydrake.systems.analysis import Simulator

from fleet_tools.errors import SimulationError
from fleet_tools.robot.osc import external_wrench
from fleet_tools.robot.panda import END_EFFECTOR, NUM_JOINTS
from fleet_tools.robot.reference import Reference
from fleet_tools.sim.apply_scene import Stage
from fleet_tools.sim.catalog import Model
from fleet_tools.sim.contacts import JointContact, find_touches, total_wrench
from fleet_tools.sim.model_checks import contact_refused, model_frame
from fleet_tools.sim.scene import Scene
from fleet_tools.sim.world import World
from fleet_tools.sim.world_state import WorldState

CONTROL_RATE = 6
"""Actions per second."""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The simulation at one moment; restored into the same scene, it goes on bit for bit.

    Attributes:
        step: Control steps since the episode's start.
        x: The plant's positions and velocities.
        reference: What the controller follows.
        impulse: Of contact on the object's degrees of freedom during the last control step.
    """

    step: int
    x: np.ndarray
    reference: Reference
    impulse: np.ndarray

    def digest(self) -> int:
        """Returns 64 bits of hash over the exact bits of step and x.

        Reference and impulse say how the state was reached; the next step replaces them.
        """
        content = self.step.to_bytes(8, "little") + self.x.tobytes()
        return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


class Simulation:
    """Runs scenes in one world, one control step at a time."""

    def __init__(self, world: World, tool: Model, object: Model) -> None:
        self.world, self.tool, self.object = world, tool, object
        try:
            self._simulator = Simulator(world.diagram)
        except RuntimeError as error:
            raise contact_refused(error, [tool.file, object.file]) from error
        self._root = self._simulator.get_mutable_context()
        self._context = world.plant.GetMyMutableContextFromRoot(self._root)
        self._step = 0
        self._scene: Scene | None = None
        self._reference: Reference | None = None
        self._posture = np.zeros(NUM_JOINTS)
        plant = world.plant
        self._hand = plant.GetFrameByName(END_EFFECTOR)
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
        self._stage = Stage(world, self._root)

    def reset(self, scene: Scene) -> None:
        """Puts the world into the state in which a scene begins; nothing of the past remains."""
        self._stage.set(scene)
        self._step = 0
        self._scene = scene
        self._posture = np.array(scene.initial_joints_rad)
        self._move(np.zeros(6))
        self._simulator.Initialize()

    def step(self, motion: np.ndarray) -> None:
        """Runs one control step: the end effector is to move by `motion` from where it is.

        Args:
            motion: (6,), translation (m), then rotation vector (rad), in the end effector's frame.

        Raises:
            SimulationError: The solver failed or the state is not finite; `reset` mends it.
        """
        self._step += 1
        push = self._scene.push
        if push is not None and push.step == self._step:
            self._stage.move_object(push.translation_m)
        self._move(motion)
        self._joint_contact.impulse = 0.0
        try:
            self._simulator.AdvanceTo(self._step / CONTROL_RATE)
        except RuntimeError as error:
            raise SimulationError(f"Drake could not finish step {self._step}: {error}") from error
        x = self.world.plant.GetPositionsAndVelocities(self._context)
        if not np.isfinite(x).all():
            raise SimulationError(f"After step {self._step} the state is not finite: {x}")

    @property
    def steps(self) -> int:
        """Control steps since the episode's start."""
        return self._step

    def measure(self) -> WorldState:
        """Returns what is so now.

        Raises:
            SimulationError: The solver finds no contact forces.
        """
        try:
            return self._measure()
        except RuntimeError as error:
            raise SimulationError(f"Drake could not measure step {self._step}: {error}") from error

    def _measure(self) -> WorldState:
        world, plant, context = self.world, self.world.plant, self._context
        q = plant.GetPositions(context, world.arm)
        v = plant.GetVelocities(context, world.arm)
        tau = plant.get_generalized_contact_forces_output_port(world.arm).Eval(context)
        X_WE = self._pose()
        world.arm_model.set_state(np.concatenate([q, v]))
        F_W = external_wrench(world.arm_model.jacobian(), tau)
        R_EW = X_WE.rotation().inverse()
        touches = find_touches(plant, world.scene_graph, context)
        return WorldState(
            time=self._root.get_time(),
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
                tuple(sorted(map(self._party, (touch.A, touch.B)))) for touch in touches
            ),
            F_W_tool=total_wrench(touches, world.tool, world.object, X_WE.translation()),
            object_joint_forces=self._joint_contact.forces(),
            object_joint_impulses=self._joint_contact.impulses(),
            V_WE=world.arm_model.jacobian() @ v,
            links={
                body.name(): (
                    body.EvalPoseInWorld(context) @ body.CalcCenterOfMassInBodyFrame(context),
                    body.CalcCenterOfMassTranslationalVelocityInWorld(context),
                )
                for body in world.bodies(world.object)
            },
        )

    def _party(self, body: RigidBody) -> str:
        instance = body.model_instance()
        if instance == self.world.object:
            return f"object/{body.name()}"
        return {self.world.arm: "robot", self.world.tool: "tool"}.get(instance, "table")

    def snapshot(self) -> Snapshot:
        """Returns the state, from which the same scene can go on."""
        x = self.world.plant.GetPositionsAndVelocities(self._context)
        return Snapshot(self._step, x, self._reference, self._joint_contact.impulse)

    def restore(self, snapshot: Snapshot) -> None:
        """Goes back to a snapshot of the scene that was reset last.

        Raises:
            SimulationError: The snapshot is not finite.
        """
        if not np.isfinite(snapshot.x).all():
            raise SimulationError(f"The snapshot is not finite: {snapshot.x}")
        self._step = snapshot.step
        self._root.SetTime(snapshot.step / CONTROL_RATE)
        self._stage.place_object(self._scene)
        push = self._scene.push
        if push is not None and push.step <= snapshot.step:
            self._stage.move_object(push.translation_m)
        self.world.plant.SetPositionsAndVelocities(self._context, snapshot.x)
        self._follow(snapshot.reference)
        self._joint_contact.impulse = snapshot.impulse
        self._simulator.Initialize()

    def query(self) -> QueryObject:
        """Returns what can be asked about the geometry as it is now, and rendered of it."""
        scene_graph = self.world.scene_graph
        context = scene_graph.GetMyContextFromRoot(self._root)
        return scene_graph.get_query_output_port().Eval(context)

    def publish(self) -> None:
        """Shows what is so now to whoever watches the diagram."""
        self.world.diagram.ForcedPublish(self._root)

    def _pose(self) -> RigidTransform:
        return self._hand.CalcPoseInWorld(self._context)

    def _move(self, motion: np.ndarray) -> None:
        start, duration = self._root.get_time(), 1.0 / CONTROL_RATE
        self._follow(Reference(self._pose(), np.array(motion), start, duration, self._posture))

    def _follow(self, reference: Reference) -> None:
        self._reference = reference
        port = self.world.diagram.GetInputPort("reference")
        port.FixValue(self._root, AbstractValue.Make(reference))

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
