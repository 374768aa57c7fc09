"""How a scene is set: a world's context is put into the state in which an episode begins."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydrake.geometry import GeometryId, ProximityProperties, RoleAssign
from pydrake.math import RigidTransform
from pydrake.multibody.plant import CoulombFriction
from pydrake.multibody.tree import ModelInstanceIndex, RigidBody, SpatialInertia
from pydrake.systems.framework import Context

from fleet_tools.robot.panda import END_EFFECTOR
from fleet_tools.sim.scene import Scene
from fleet_tools.sim.world import World


class Stage:
    """Sets one scene after another in a world's context."""

    def __init__(self, world: World, root: Context) -> None:
        self._world, self._root = world, root
        self._context = world.plant.GetMyMutableContextFromRoot(root)
        self._as_filed = _as_filed(world, self._context)

    def set(self, scene: Scene) -> None:
        """Makes a scene of the context; nothing of the past remains."""
        world, context = self._world, self._context
        world.diagram.SetDefaultContext(self._root)
        self._root.SetTime(0.0)
        world.plant.SetPositions(context, world.arm, scene.initial_joints_rad)
        world.grasp_frame.SetPoseInParentFrame(context, scene.tool_in_hand.to_transform())
        self.place_object(scene)
        self._scale_masses(world.tool, scene.tool_mass_scale)
        self._scale_masses(world.object, scene.object_mass_scale)
        self._scale_friction(world.tool, scene.tool_friction_scale)
        self._scale_friction(world.object, scene.object_friction_scale)
        for name, brake in world.brakes.items():
            brake.set_effort_limit(scene.joint_resistance.get(name, self._as_filed.effort[name]))
        payload = [body.index() for body in world.bodies(world.tool)]
        hand = world.plant.GetFrameByName(END_EFFECTOR)
        world.arm_model.hold(world.plant.CalcSpatialInertia(context, hand, payload))

    def place_object(self, scene: Scene) -> None:
        """Puts the object where it is at the episode's start."""
        X_WO = scene.object_pose.to_transform()
        if self._world.mount_frame is not None:
            self._world.mount_frame.SetPoseInParentFrame(self._context, X_WO)
        for body, X_OB in self._as_filed.free_bodies:
            self._world.plant.SetFreeBodyPose(self._context, body, X_WO @ X_OB)

    def move_object(self, p_W: Sequence[float]) -> None:
        """Moves the object by a translation in the world; its velocities and joints stay."""
        X = RigidTransform(p_W)
        mount = self._world.mount_frame
        if mount is not None:
            mount.SetPoseInParentFrame(self._context, X @ mount.GetPoseInParentFrame(self._context))
        for body, _ in self._as_filed.free_bodies:
            X_WB = body.EvalPoseInWorld(self._context)
            self._world.plant.SetFreeBodyPose(self._context, body, X @ X_WB)

    def _scale_masses(self, instance: ModelInstanceIndex, scale: float) -> None:
        for body, M_B in self._as_filed.inertias[instance]:
            scaled = SpatialInertia(scale * M_B.get_mass(), M_B.get_com(), M_B.get_unit_inertia())
            body.SetSpatialInertiaInBodyFrame(self._context, scaled)

    def _scale_friction(self, instance: ModelInstanceIndex, scale: float) -> None:
        if scale == 1.0:
            return
        scene_graph = self._world.scene_graph
        scene_graph_context = scene_graph.GetMyMutableContextFromRoot(self._root)
        for geometry, properties in self._as_filed.contact[instance]:
            friction = properties.GetProperty("material", "coulomb_friction")
            scaled = ProximityProperties(properties)
            scaled.UpdateProperty(
                "material",
                "coulomb_friction",
                CoulombFriction(
                    scale * friction.static_friction(), scale * friction.dynamic_friction()
                ),
            )
            scene_graph.AssignRole(
                scene_graph_context,
                self._world.plant.get_source_id(),
                geometry,
                scaled,
                RoleAssign.kReplace,
            )


@dataclass(frozen=True)
class _AsFiled:
    """What the model files say, before a scene scales or moves it."""

    inertias: dict[ModelInstanceIndex, list[tuple[RigidBody, SpatialInertia]]]
    contact: dict[ModelInstanceIndex, list[tuple[GeometryId, ProximityProperties]]]
    free_bodies: list[tuple[RigidBody, RigidTransform]]
    effort: dict[str, float]


def _as_filed(world: World, context: Context) -> _AsFiled:
    plant, inspector = world.plant, world.scene_graph.model_inspector()
    instances = (world.tool, world.object)
    return _AsFiled(
        inertias={
            instance: [
                (body, body.CalcSpatialInertiaInBodyFrame(context))
                for body in world.bodies(instance)
            ]
            for instance in instances
        },
        contact={
            instance: [
                (geometry, inspector.GetProximityProperties(geometry))
                for body in world.bodies(instance)
                for geometry in plant.GetCollisionGeometriesForBody(body)
            ]
            for instance in instances
        },
        free_bodies=[
            (body, body.EvalPoseInWorld(context))
            for body in world.bodies(world.object)
            if body.is_floating_base_body()
        ],
        effort={name: brake.effort_limit() for name, brake in world.brakes.items()},
    )
