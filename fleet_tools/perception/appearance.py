"""How a scene looks in pictures: colours and textures, which no contact feels."""

from collections.abc import Iterable

import numpy as np
from pydrake.geometry import PerceptionProperties, Rgba, Role

from fleet_tools.config.textures import PLAIN, texture_file
from fleet_tools.perception.render_scene import Scenery
from fleet_tools.perception.segmentation import BACKGROUND, OBJECT, TOOL
from fleet_tools.sim.scene import Scene


def paint(scenery: Scenery, scene: Scene) -> None:
    """Gives a scenery the looks of a scene; its tints scale the colours of the model files."""
    wear = {
        TOOL: (scene.tool_tint, PLAIN),
        OBJECT: (scene.object_tint, PLAIN),
        BACKGROUND: (scene.table_tint, scene.table_texture),
    }
    scene_graph = scenery.scene_graph
    for thing in scenery.things:
        if thing.segment not in wear:
            continue
        for shape, looks in thing.looks.items():
            # Drake replaces no perception properties; it does forget and learn them.
            scene_graph.RemoveRole(scenery.context, scenery.source, shape, Role.kPerception)
            painted = _painted(looks, *wear[thing.segment])
            scene_graph.AssignRole(scenery.context, scenery.source, shape, painted)


def tinted(color: Rgba, tint: Iterable[float]) -> Rgba:
    """Scales red, green and blue; each stays at most 1."""
    red, green, blue = np.minimum(np.multiply([color.r(), color.g(), color.b()], list(tint)), 1.0)
    return Rgba(red, green, blue, color.a())


def _painted(
    looks: PerceptionProperties, tint: tuple[float, float, float], texture: str
) -> PerceptionProperties:
    painted = PerceptionProperties(looks)
    color = painted.GetPropertyOrDefault("phong", "diffuse", _WHITE)
    painted.UpdateProperty("phong", "diffuse", tinted(color, tint))
    picture = texture_file(texture)
    if picture is not None:
        painted.UpdateProperty("phong", "diffuse_map", str(picture))
    return painted


_WHITE = Rgba(1.0, 1.0, 1.0, 1.0)
