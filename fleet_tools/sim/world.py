"""The Drake diagram of arm, tool, object and table, built once for a pair of models."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from pydrake.geometry import (
    AddContactMaterial,
    AddRigidHydroelasticProperties,
    Box,
    CollisionFilterDeclaration,
    Cylinder,
    GeometrySet,
    HalfSpace,
    Meshcat,
    MeshcatVisualizer,
    ProximityProperties,
    SceneGraph,
    SceneGraphConfig,
)
from pydrake.math import RigidTransform
from pydrake.multibody.plant import (
    AddMultibodyPlant,
    CoulombFriction,
    MultibodyPlant,
    MultibodyPlantConfig,
)
from pydrake.multibody.tree import (
    FixedOffsetFrame,
    Frame,
    JointActuator,
    ModelInstanceIndex,
    RigidBody,
    SpatialInertia,
)
from pydrake.systems.framework import Diagram, DiagramBuilder
from pydrake.systems.primitives import ConstantVectorSource, Demultiplexer, DiscreteTimeIntegrator

from fleet_tools.config.control import TIME_STEP
from fleet_tools.config.geometry import TABLE_LOWER_M, TABLE_UPPER_M
from fleet_tools.config.randomization import PLACE
from fleet_tools.config.tasks import TaskConfig
from fleet_tools.errors import ConfigError
from fleet_tools.robot.arm import LIGHT, Arm
from fleet_tools.robot.arm_model import ArmModel, add_arm
from fleet_tools.robot.controller import OperationalSpaceController
from fleet_tools.robot.python_systems import release_cycles
from fleet_tools.sim.add_models import add_object, add_tool
from fleet_tools.sim.catalog import Model
from fleet_tools.sim.contact_shapes import complete_contact
from fleet_tools.sim.contacts import add_impulse_meter
from fleet_tools.sim.external_forces import PORT as EXTERNAL_FORCES
from fleet_tools.sim.free_rotation import GyroscopicCorrection, add_gyroscopic_correction
from fleet_tools.sim.hand_force import HandForceLog, add_hand_force_log
from fleet_tools.sim.part_motion import PartMotionMeter, add_part_motion_meter

HYDROELASTIC_MARGIN = 1e-4
"""Hydroelastic margin of every geometry, m; without it, light bodies jitter at zero depth."""

CONTACT_APPROXIMATION = "lagged"
"""SAP with friction that neither creeps, drags nor glides; compared with others in
`docs/results/physics_exam.md`."""

TABLE_SIZE = (TABLE_UPPER_M[0] - TABLE_LOWER_M[0], TABLE_UPPER_M[1] - TABLE_LOWER_M[1], 0.05)
TABLE_CENTER = (
    (TABLE_LOWER_M[0] + TABLE_UPPER_M[0]) / 2,
    (TABLE_LOWER_M[1] + TABLE_UPPER_M[1]) / 2,
)
TABLE_FRICTION = 0.6
TABLE_COLOR = (0.80, 0.78, 0.74, 1.0)

PLACE_RADIUS_M, PLACE_HEIGHT_M = 0.03, 0.0006
PLACE_COLOR = (0.80, 0.15, 0.35, 1.0)
"""Of the mark on the table, in tasks that have a marked place."""

# Drake warns that half-spaces do not touch deformable bodies, of which there are none.
logging.getLogger("drake").addFilter(lambda record: "deformable" not in record.getMessage())


@dataclass(frozen=True, eq=False)
class AdjustableParts:
    """The parts of a world that a scene adjusts; only `fleet_tools.sim.apply_scene` writes to them.

    Drake keeps the effort limits of brakes outside of contexts, and the payload is the arm model's,
    so that a world serves one simulation at a time.

    Attributes:
        arm_model: The controller's model of arm and payload.
        grasp_frame: Frame G whose pose in the end effector is X_EG.
        mount_frame: Frame whose pose in the world is X_WO of a fixed object; None for a free one.
        place_frame: Frame of the mark on the table; None in tasks without a marked place.
        brakes: Actuators of the object that act as Coulomb brakes, by joint name.
        gyroscopic: Lets free bodies keep their momentum; None if there are none.
    """

    arm_model: ArmModel
    grasp_frame: FixedOffsetFrame
    mount_frame: FixedOffsetFrame | None
    place_frame: FixedOffsetFrame | None
    brakes: dict[str, JointActuator]
    gyroscopic: GyroscopicCorrection | None


@dataclass(frozen=True, eq=False)
class World:
    """The parts of a diagram that the simulation works with; immutable but for `adjustable`.

    Attributes:
        robot: The arm.
        diagram, plant, scene_graph: Drake's systems.
        arm, tool, object: Model instances in the plant.
        impulse_meter: Integrates the contact forces on the object's joints; None without joints.
        part_motion: Attributes the object's motion to parts of the tool; None without parts.
        hand_force: Records the force of the hand on what it touches.
        limit_meter: Integrates the time for which each limit of the arm binds.
        adjustable: What a scene adjusts.
        control_rate_hz: Control rate of the task.
        substeps: Number of time steps of the dynamics in a period of the controller.
        objects: Model instances of all objects.
        next: The same world where the next object is the one in use; None for the last one. What is
            an object's (`object`, its meters, mount and brakes) is then the next one's.
    """

    robot: Arm
    diagram: Diagram
    plant: MultibodyPlant
    scene_graph: SceneGraph
    arm: ModelInstanceIndex
    tool: ModelInstanceIndex
    object: ModelInstanceIndex
    impulse_meter: DiscreteTimeIntegrator | None
    part_motion: PartMotionMeter | None
    hand_force: HandForceLog
    limit_meter: DiscreteTimeIntegrator
    adjustable: AdjustableParts
    control_rate_hz: float
    substeps: int
    objects: tuple[ModelInstanceIndex, ...]
    next: "World | None" = None

    def in_turn(self) -> Iterator["World"]:
        """Yields this world, then with each of the next objects in use."""
        yield self
        if self.next is not None:
            yield from self.next.in_turn()

    def simulated_until(self, control_steps: int) -> float:
        """Returns the time up to which Drake simulates some control steps, s.

        Up to the end of the last one, the time steps that begin before are made. Where they are
        smaller than the controller's period, the steps of a whole period are made: so the state at
        the end is of the same time, which is up to one period later.
        """
        end = control_steps / self.control_rate_hz
        if self.substeps == 1 or not control_steps:
            return end
        periods = round(end / TIME_STEP)
        if periods * TIME_STEP < end:  # as Drake computes and compares them
            periods += 1
        return periods * TIME_STEP - self.plant.time_step() / 2

    def hand(self) -> Frame:
        """Returns the frame E of the end effector."""
        return self.plant.GetFrameByName(self.robot.end_effector, self.arm)

    def bodies(self, instance: ModelInstanceIndex) -> Iterator[RigidBody]:
        """Yields the bodies of a model instance."""
        return map(self.plant.get_body, self.plant.GetBodyIndices(instance))


def build_world(
    task: TaskConfig,
    robot: Arm,
    tool: Model,
    object: Model,
    *,
    next_objects: Sequence[Model] = (),
    meshcat: Meshcat | None = None,
    robot_visuals: str = LIGHT,
    substeps: int = 1,
) -> World:
    """Builds the diagram; `fleet_tools.sim.apply_scene` applies scenes to its context.

    Args:
        task: The task.
        robot: The arm.
        tool: Model of the tool.
        object: Model of the object.
        next_objects: Models of further objects, in the order in which they are to be used.
        meshcat: Viewer to which the diagram publishes.
        robot_visuals: Name of the arm's visual meshes.
        substeps: Number of time steps of the dynamics in a period of the controller, which remains
            `TIME_STEP`. With more than one, results are no longer any protocol's; they show
            what of them is due to the step.

    Raises:
        ConfigError: The object lacks a joint of the task, or its brake; or a model lacks what
            cannot be filled in.
    """
    builder = DiagramBuilder()
    plant, scene_graph = AddMultibodyPlant(
        MultibodyPlantConfig(
            time_step=TIME_STEP / substeps,
            discrete_contact_approximation=CONTACT_APPROXIMATION,
            # Outputs are then functions of the state, so that a snapshot is the state alone.
            use_sampled_output_ports=False,
        ),
        _scene_graph_config(),
        builder,
    )
    arm = add_arm(plant, robot, robot_visuals)
    _add_table(plant, arm)
    hand = plant.GetFrameByName(robot.end_effector, arm)
    tool_instance, grasp_frame = add_tool(plant, scene_graph, tool, hand)
    objects = [
        (each, *add_object(plant, scene_graph, each, task.object_mount, number))
        for number, each in enumerate((object, *next_objects))
    ]
    complete_contact(plant, scene_graph, tool_instance, tool.file)
    for model, instance, _ in objects:
        free = task.object_mount == "free"
        complete_contact(plant, scene_graph, instance, model.file, free=free)
    place_frame = None if task.randomization.place is None else _add_place(plant)
    plant.Finalize()
    _ignore_contact_within_robot(plant, scene_graph, arm, tool_instance)
    brakes = [_find_brakes(plant, instance, task, model) for model, instance, _ in objects]
    arm_model, limit_meter = _add_controller(builder, plant, arm, robot)
    for _, instance, _ in objects:
        _hold_brakes_still(builder, plant, instance)
    builder.ExportInput(plant.get_applied_spatial_force_input_port(), EXTERNAL_FORCES)
    gyroscopic = add_gyroscopic_correction(builder, plant)
    meters = []
    for model, instance, _ in objects:
        impulse_meter = add_impulse_meter(builder, plant, instance)
        part_motion = add_part_motion_meter(
            builder, plant, arm, (tool_instance, tool), (instance, model), task.tool_parts
        )
        meters.append((impulse_meter, part_motion))
    readers = [each for _, each in meters if each is not None]
    hand_force = add_hand_force_log(builder, plant, arm, arm_model, readers)
    if meshcat is not None:
        MeshcatVisualizer.AddToBuilder(builder, scene_graph, meshcat)
    diagram, world = builder.Build(), None
    for k in reversed(range(len(objects))):
        _, instance, mount_frame = objects[k]
        impulse_meter, part_motion = meters[k]
        world = World(
            robot=robot,
            diagram=diagram,
            plant=plant,
            scene_graph=scene_graph,
            arm=arm,
            tool=tool_instance,
            object=instance,
            impulse_meter=impulse_meter,
            part_motion=part_motion,
            hand_force=hand_force,
            limit_meter=limit_meter,
            adjustable=AdjustableParts(
                arm_model, grasp_frame, mount_frame, place_frame, brakes[k], gyroscopic
            ),
            control_rate_hz=task.control_rate_hz,
            substeps=substeps,
            objects=tuple(instance for _, instance, _ in objects),
            next=world,
        )
    assert world is not None  # there is at least one object
    return world


def _scene_graph_config() -> SceneGraphConfig:
    config = SceneGraphConfig()
    config.default_proximity_properties.margin = HYDROELASTIC_MARGIN
    return config


def _add_table(plant: MultibodyPlant, arm: ModelInstanceIndex) -> None:
    """Adds a rigid table whose top is z = 0; the arm's base stands on it.

    For contact it is a half-space, which is faster than a box and has no edges within its top; an
    object beyond the table's edge is lost (`fleet_tools.config.geometry.Workspace`).
    """
    properties = ProximityProperties()
    AddRigidHydroelasticProperties(properties=properties)
    friction = CoulombFriction(TABLE_FRICTION, TABLE_FRICTION)
    AddContactMaterial(friction=friction, properties=properties)
    world, X_WTable = plant.world_body(), RigidTransform([*TABLE_CENTER, -TABLE_SIZE[2] / 2])
    plant.RegisterCollisionGeometry(world, RigidTransform(), HalfSpace(), "table", properties)
    plant.RegisterVisualGeometry(
        world, X_WTable, Box(*TABLE_SIZE), "table_visual", np.array(TABLE_COLOR)
    )


def _add_place(plant: MultibodyPlant) -> FixedOffsetFrame:
    """Adds the mark of a place: a thin disc on the table, which touches nothing."""
    mark = plant.AddRigidBody(PLACE, plant.AddModelInstance(PLACE), SpatialInertia.Zero())
    frame = plant.AddFrame(FixedOffsetFrame(PLACE, plant.world_frame(), RigidTransform()))
    plant.WeldFrames(frame, mark.body_frame())
    disc = Cylinder(PLACE_RADIUS_M, PLACE_HEIGHT_M)
    X_MarkDisc = RigidTransform([0.0, 0.0, PLACE_HEIGHT_M / 2])
    plant.RegisterVisualGeometry(mark, X_MarkDisc, disc, PLACE, np.array(PLACE_COLOR))
    return frame


def _ignore_contact_within_robot(
    plant: MultibodyPlant,
    scene_graph: SceneGraph,
    arm: ModelInstanceIndex,
    tool: ModelInstanceIndex,
) -> None:
    """Filters contact between the arm and its own tool, which would cost a third of a step."""
    arm_shapes, tool_shapes = (
        GeometrySet(
            [
                geometry
                for body in plant.GetBodyIndices(instance)
                for geometry in plant.GetCollisionGeometriesForBody(plant.get_body(body))
            ]
        )
        for instance in (arm, tool)
    )
    declaration = CollisionFilterDeclaration().ExcludeBetween(arm_shapes, tool_shapes)
    scene_graph.collision_filter_manager().Apply(declaration)


def _find_brakes(
    plant: MultibodyPlant, instance: ModelInstanceIndex, task: TaskConfig, object: Model
) -> dict[str, JointActuator]:
    """Returns the object's brakes: actuators with a damping gain and an effort limit.

    Their implicit damping stops the joint with any force up to the limit: Coulomb friction.
    """
    actuators = map(plant.get_joint_actuator, plant.GetJointActuatorIndices(instance))
    brakes = {a.joint().name(): a for a in actuators if a.has_controller()}
    for name in task.randomization.joint_resistance:
        if name not in brakes:
            raise ConfigError(
                f"The task {task.name!r} sets the resistance of the joint {name!r}, but this joint "
                f"of {object.file} has no brake (an <effort> limit and <drake:controller_gains "
                f"p='0' d='1e5'/>). Joints with brakes: {', '.join(brakes)}."
            )
    return brakes


def _add_controller(
    builder: DiagramBuilder, plant: MultibodyPlant, arm: ModelInstanceIndex, robot: Arm
) -> tuple[ArmModel, DiscreteTimeIntegrator]:
    """Adds the controller, and a meter of the time for which each of its limits binds."""
    arm_model, num_limits, h = ArmModel(robot), 3 * robot.num_joints, plant.time_step()
    controller = OperationalSpaceController(arm_model, robot.gains, time_step=h)
    controller = builder.AddSystem(controller)
    arm_state = controller.GetInputPort("arm_state")
    builder.Connect(plant.get_state_output_port(arm), arm_state)
    parts = builder.AddSystem(Demultiplexer([robot.num_joints, num_limits]))
    builder.Connect(controller.get_output_port(), parts.get_input_port())
    builder.Connect(parts.get_output_port(0), plant.get_actuation_input_port(arm))
    limit_meter = builder.AddSystem(DiscreteTimeIntegrator(num_limits, h))
    builder.Connect(parts.get_output_port(1), limit_meter.get_input_port())
    builder.ExportInput(controller.GetInputPort("reference"), "reference")
    release_cycles(controller, controller.update_callback)
    return arm_model, limit_meter


def _hold_brakes_still(
    builder: DiagramBuilder, plant: MultibodyPlant, instance: ModelInstanceIndex
) -> None:
    # An unconnected port would silently disarm the brakes.
    desired_state = plant.get_desired_state_input_port(instance)
    if desired_state.size():
        source = builder.AddSystem(ConstantVectorSource(np.zeros(desired_state.size())))
        builder.Connect(source.get_output_port(), desired_state)
