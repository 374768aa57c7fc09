"""Checks a given scene, and sets the context of a world to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydrake.geometry import GeometryId, ProximityProperties, RoleAssign
from pydrake.math import RigidTransform
from pydrake.multibody.plant import CoulombFriction
from pydrake.multibody.tree import ModelInstanceIndex, RigidBody, SpatialInertia
from pydrake.systems.framework import Context

from fleet_tools.config.tasks import TaskConfig
from fleet_tools.config.values import parse
from fleet_tools.errors import ConfigError
from fleet_tools.robot.arm import Arm
from fleet_tools.robot.arm_model import require_positions
from fleet_tools.sim.catalog import find_task_model
from fleet_tools.sim.scene import NextObject, Scene, marked_place
from fleet_tools.sim.world import World


def check_scene(task: TaskConfig, robot: Arm, given: Scene | Mapping[str, Any]) -> Scene:
    """Returns a scene of a task.

    Args:
        task: The task.
        robot: The robot.
        given: The scene, or its JSON as a dict.

    Raises:
        ConfigError, UnknownNameError: It is not a scene of the task and the robot, or its models do
            not exist.
    """
    # A scene may be an altered copy, which pydantic does not check.
    data = given.model_dump(warnings=False) if isinstance(given, Scene) else given
    scene = parse(Scene, data, "The scene")
    if scene.task != task.name:
        raise ConfigError(
            f"The scene belongs to the task {scene.task!r}; this environment's task is "
            f"{task.name!r}."
        )
    require_positions(robot, scene.initial_joints_rad, "The scene")
    resistances = list(task.randomization.joint_resistance)
    for each in scene.objects:
        if set(each.joint_resistance) != set(resistances):
            raise ConfigError(
                f"The scene gives the resistance of the joints {list(each.joint_resistance)}; "
                f"expected {resistances}, as in the task {task.name!r}."
            )
        if (each.place is None) != (task.randomization.place is None):
            has, draws = ("lacks", "draws") if each.place is None else ("has", "does not draw")
            raise ConfigError(
                f"The scene {has} the place of the object {each.object!r} (`place`); the task "
                f"{task.name!r} {draws} one."
            )
    if scene.cameras.keys() != task.cameras.keys():
        raise ConfigError(
            f"The scene places the cameras {list(scene.cameras)}; the task {task.name!r} has "
            f"{list(task.cameras)}."
        )
    find_task_model(task, "tool", scene.tool)
    for each in scene.objects:
        find_task_model(task, "object", each.object)
    return scene


@dataclass(frozen=True)
class ModelDefaults:
    """The values of the model files, before a scene scales or moves anything.

    Attributes:
        inertias: Spatial inertia of each body, by model instance.
        proximity: Proximity properties of each collision geometry, by model instance.
        free_bodies: X_OB of the floating bodies of each object, by model instance.
        resistance: Effort limits of its brakes by joint name, N or N m, likewise.
    """

    inertias: dict[ModelInstanceIndex, list[tuple[RigidBody, SpatialInertia]]]
    proximity: dict[ModelInstanceIndex, list[tuple[GeometryId, ProximityProperties]]]
    free_bodies: dict[ModelInstanceIndex, list[tuple[RigidBody, RigidTransform]]]
    resistance: dict[ModelInstanceIndex, dict[str, float]]


def read_defaults(world: World, root: Context) -> ModelDefaults:
    """Reads the values of the model files.

    Args:
        world: The world.
        root: Context of its diagram, to which no scene has been applied.
    """
    plant, inspector = world.plant, world.scene_graph.model_inspector()
    context = plant.GetMyContextFromRoot(root)
    instances = (world.tool, *(each.object for each in world.in_turn()))
    return ModelDefaults(
        inertias={
            instance: [
                (body, body.CalcSpatialInertiaInBodyFrame(context))
                for body in world.bodies(instance)
            ]
            for instance in instances
        },
        proximity={
            instance: [
                (geometry, inspector.GetProximityProperties(geometry))
                for body in world.bodies(instance)
                for geometry in plant.GetCollisionGeometriesForBody(body)
            ]
            for instance in instances
        },
        free_bodies={
            each.object: [
                (body, body.EvalPoseInWorld(context))
                for body in world.bodies(each.object)
                if body.is_floating_base_body()
            ]
            for each in world.in_turn()
        },
        resistance={
            each.object: {
                name: brake.effort_limit() for name, brake in each.adjustable.brakes.items()
            }
            for each in world.in_turn()
        },
    )


def apply_scene(scene: Scene, world: World, defaults: ModelDefaults, root: Context) -> None:
    """Sets the state in which a scene begins; nothing of the past remains.

    Args:
        scene: The scene.
        world: The world, built for the scene's tool and objects.
        defaults: The values of its model files.
        root: Context of its diagram.
    """
    context = world.plant.GetMyMutableContextFromRoot(root)
    world.diagram.SetDefaultContext(root)
    root.SetTime(0.0)
    world.plant.SetPositions(context, world.arm, scene.initial_joints_rad)
    world.adjustable.grasp_frame.SetPoseInParentFrame(context, scene.tool_in_hand.to_transform())
    place_objects(scene, world, defaults, root)
    objects = list(zip(world.in_turn(), scene.objects, strict=True))
    for instance, scale in (
        (world.tool, scene.tool_mass_scale),
        *((each.object, of.object_mass_scale) for each, of in objects),
    ):
        _scale_masses(defaults.inertias[instance], scale, context)
    if world.adjustable.gyroscopic is not None:
        world.adjustable.gyroscopic.read_inertias(world.plant, root)
    for instance, scale in (
        (world.tool, scene.tool_friction_scale),
        *((each.object, of.object_friction_scale) for each, of in objects),
    ):
        _scale_friction(defaults.proximity[instance], scale, world, root)
    for each, of in objects:
        for name, resistance in defaults.resistance[each.object].items():
            # The limit belongs to the plant, not to its context.
            brake = each.adjustable.brakes[name]
            brake.set_effort_limit(of.joint_resistance.get(name, resistance))
    payload = [body.index() for body in world.bodies(world.tool)]
    M_E = world.plant.CalcSpatialInertia(context, world.hand(), payload)
    world.adjustable.arm_model.set_payload(M_E)


def place_objects(scene: Scene, world: World, defaults: ModelDefaults, root: Context) -> None:
    """Puts the objects where they are at the start of the episode."""
    context = world.plant.GetMyMutableContextFromRoot(root)
    for each, of in zip(world.in_turn(), scene.objects, strict=True):
        X_WO, mount = of.object_pose.to_transform(), each.adjustable.mount_frame
        if mount is not None:
            mount.SetPoseInParentFrame(context, X_WO)
        for body, X_OB in defaults.free_bodies[each.object]:
            world.plant.SetFreeBodyPose(context, body, X_WO @ X_OB)


def mark_place(of: Scene | NextObject, world: World, root: Context) -> None:
    """Puts the mark where the place of an object is, in tasks that have one."""
    frame, p_W = world.adjustable.place_frame, marked_place(of)
    if frame is not None and p_W is not None:
        context = world.plant.GetMyMutableContextFromRoot(root)
        frame.SetPoseInParentFrame(context, RigidTransform(p_W))


def move_object(p_W: Sequence[float], world: World, defaults: ModelDefaults, root: Context) -> None:
    """Moves the object by a translation in the world; its velocities and joints are unchanged."""
    context = world.plant.GetMyMutableContextFromRoot(root)
    X, mount = RigidTransform(p_W), world.adjustable.mount_frame
    if mount is not None:
        mount.SetPoseInParentFrame(context, X @ mount.GetPoseInParentFrame(context))
    for body, _ in defaults.free_bodies[world.object]:
        world.plant.SetFreeBodyPose(context, body, X @ body.EvalPoseInWorld(context))


def _scale_masses(
    inertias: list[tuple[RigidBody, SpatialInertia]], scale: float, context: Context
) -> None:
    for body, M_B in inertias:
        scaled = SpatialInertia(scale * M_B.get_mass(), M_B.get_com(), M_B.get_unit_inertia())
        body.SetSpatialInertiaInBodyFrame(context, scaled)


def _scale_friction(
    proximity: list[tuple[GeometryId, ProximityProperties]],
    scale: float,
    world: World,
    root: Context,
) -> None:
    if scale == 1.0:
        return
    context = world.scene_graph.GetMyMutableContextFromRoot(root)
    source = world.plant.get_source_id()
    assert source is not None  # the plant is registered with the scene graph
    for geometry, properties in proximity:
        friction = properties.GetProperty("material", "coulomb_friction")
        scaled = ProximityProperties(properties)
        scaled.UpdateProperty(
            "material",
            "coulomb_friction",
            CoulombFriction(
                scale * friction.static_friction(), scale * friction.dynamic_friction()
            ),
        )
        world.scene_graph.AssignRole(context, source, geometry, scaled, RoleAssign.kReplace)
