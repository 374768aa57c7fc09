"""The appearance of a scene in images: colours and textures, which affect no contact."""

from collections.abc import Callable, Iterable

import numpy as np
from pydrake.geometry import PerceptionProperties, Rgba, Role

from fleet_tools.config.file_access import PLAIN, texture_file
from fleet_tools.perception.render_scene import RenderScene
from fleet_tools.perception.segmentation import BACKGROUND, OBJECT, TOOL
from fleet_tools.sim.scene import Scene

HUE_SHARE = 0.2
"""Share of the hue of tints that is left in pictures for people."""

Tint = tuple[float, float, float]
"""Factors of red, green and blue."""


def apply_appearance(
    scene: Scene, render_scene: RenderScene, shown: Callable[[Tint], Tint] = lambda tint: tint
) -> None:
    """Sets the appearance of a scene, whose tints scale the colours of the model files.

    Args:
        scene: The scene.
        render_scene: The visual side of its world.
        shown: Returns the tint that is shown, given the scene's; the cameras observe the scene's.
    """
    by_segment = {
        TOOL: (shown(scene.tool_tint), PLAIN),
        OBJECT: (shown(scene.object_tint), PLAIN),
        BACKGROUND: (shown(scene.table_tint), scene.table_texture),
    }
    graph, source, context = render_scene.scene_graph, render_scene.source, render_scene.context
    for link in render_scene.links:
        if link.segment not in by_segment:
            continue
        for shape, properties in link.appearance.items():
            # Drake cannot replace perception properties, but it can remove and assign them.
            graph.RemoveRole(context, source, shape, Role.kPerception)
            graph.AssignRole(
                context, source, shape, _painted(properties, *by_segment[link.segment])
            )


def within_material(tint: Tint) -> Tint:
    """Returns a tint for pictures for people, in which a material looks like itself.

    It has the brightness of the scene's tint, but little of its hue, by which steel would be pink.
    """
    red, green, blue = tint
    grey = (red + green + blue) / 3.0
    return (
        grey + HUE_SHARE * (red - grey),
        grey + HUE_SHARE * (green - grey),
        grey + HUE_SHARE * (blue - grey),
    )


def tinted(color: Rgba, tint: Iterable[float]) -> Rgba:
    """Scales red, green and blue; each stays at most 1."""
    red, green, blue = np.minimum(np.multiply([color.r(), color.g(), color.b()], list(tint)), 1.0)
    return Rgba(red, green, blue, color.a())


def _painted(properties: PerceptionProperties, tint: Tint, texture: str) -> PerceptionProperties:
    painted = PerceptionProperties(properties)
    color = painted.GetPropertyOrDefault("phong", "diffuse", _WHITE)
    painted.UpdateProperty("phong", "diffuse", tinted(color, tint))
    file = texture_file(texture)
    if file is not None:
        painted.UpdateProperty("phong", "diffuse_map", str(file))
    return painted


_WHITE = Rgba(1.0, 1.0, 1.0, 1.0)
