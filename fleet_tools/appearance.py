"""How a scene looks in pictures: colours and textures, which no contact feels."""

from collections.abc import Iterable

import numpy as np
from pydrake.geometry import PerceptionProperties, Rgba, Role
from pydrake.multibody.tree import RigidBody
from pydrake.systems.framework import Context

from fleet_tools.scene import Scene
from fleet_tools.textures import PLAIN, texture_file
from fleet_tools.world import World


def paint(world: World, root: Context, scene: Scene) -> None:
    """Gives a context the looks of a scene; every picture rendered from it shows them.

    Args:
        world: With a renderer.
        root: The diagram's context, as `SetDefaultContext` leaves it.
        scene: Its tints scale the colours of the model files.
    """
    plant = world.plant
    _tint(world, root, world.bodies(world.tool), scene.tool_tint)
    _tint(world, root, world.bodies(world.object), scene.object_tint)
    _tint(world, root, [plant.world_body()], scene.table_tint, scene.table_texture)


def tinted(color: Rgba, tint: Iterable[float]) -> Rgba:
    """Scales red, green and blue; each stays at most 1."""
    red, green, blue = np.minimum(np.multiply([color.r(), color.g(), color.b()], list(tint)), 1.0)
    return Rgba(red, green, blue, color.a())


def _tint(
    world: World,
    root: Context,
    bodies: Iterable[RigidBody],
    tint: tuple[float, float, float],
    texture: str = PLAIN,
) -> None:
    picture = texture_file(texture)
    if picture is None and tint == (1.0, 1.0, 1.0):
        return
    source, scene_graph = world.plant.get_source_id(), world.scene_graph
    context = scene_graph.GetMyMutableContextFromRoot(root)
    inspector = scene_graph.model_inspector()
    for body in bodies:
        frame = world.plant.GetBodyFrameIdOrThrow(body.index())
        for geometry in inspector.GetGeometries(frame, Role.kPerception):
            properties = PerceptionProperties(inspector.GetPerceptionProperties(geometry))
            color = properties.GetPropertyOrDefault("phong", "diffuse", _WHITE)
            properties.UpdateProperty("phong", "diffuse", tinted(color, tint))
            if picture is not None:
                properties.UpdateProperty("phong", "diffuse_map", str(picture))
            # Drake replaces no perception properties; it does forget and learn them.
            scene_graph.RemoveRole(context, source, geometry, Role.kPerception)
            scene_graph.AssignRole(context, source, geometry, properties)


_WHITE = Rgba(1.0, 1.0, 1.0, 1.0)
