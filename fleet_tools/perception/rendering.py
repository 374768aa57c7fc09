"""Rendering by VTK through EGL: images of pinhole cameras, lights, and colours of surfaces."""

import os
from collections.abc import Iterable

import numpy as np
from pydrake.geometry import (
    ClippingRange,
    ColorRenderCamera,
    DepthRange,
    DepthRenderCamera,
    LightParameter,
    MakeRenderEngineVtk,
    PerceptionProperties,
    QueryObject,
    RenderCameraCore,
    RenderEngineVtkParams,
    Rgba,
    SceneGraph,
)
from pydrake.math import RigidTransform
from pydrake.systems.sensors import CameraInfo

from fleet_tools.config.cameras import CLIPPING_M
from fleet_tools.config.file_access import texture_file
from fleet_tools.errors import ForkedRendererError
from fleet_tools.perception.camera_view import Pinhole, segmentation
from fleet_tools.perception.opengl import require_driver

BACKGROUND_COLOR = (0.96, 0.97, 0.98)

VTK = "vtk"
"""Name of the renderer in Drake."""

_LIGHTS = [((-0.6, 0.5, -1.0), 0.9), ((-0.3, -1.0, -0.6), 0.4), ((1.0, 0.6, -0.3), 0.2)]
"""Direction and intensity of the lights of the observation cameras."""

_KEY_LIGHT = ((-0.25, 0.5, -1.0), 0.5)
_FILL_LIGHTS = [((-0.3, -0.3, -1.0), 0.5), ((-1.0, 0.6, -0.5), 0.25), ((1.0, 0.6, -0.3), 0.25)]
"""Lights of pictures for people: the key light casts shadows, and the others brighten them."""
_FILL_DISTANCE_M = 30.0
_SHADOW_MAP_SIZE = 320
"""Pixels; finer maps let thin tools shade themselves in stripes: Drake offers no depth bias."""
HUE_SHARE = 0.2
"""Share of the hue of tints that is left in pictures for people."""

Tint = tuple[float, float, float]
"""Factors of red, green and blue."""

_owner: int | None = None
"""Id of the process that renders, by which a forked process knows that it is another."""


def add_renderer(scene_graph: SceneGraph, *, shadows: bool = False) -> None:
    """Adds the renderer to a scene graph.

    Args:
        scene_graph: The scene graph.
        shadows: Whether bodies cast shadows, as in pictures for people; the observation cameras
            see none.

    Raises:
        MissingLibraryError: OpenGL or its driver is missing.
        ForkedRendererError: This process was forked from one with a renderer.
    """
    global _owner
    _require_own_process()
    # Mesa renders small images faster without threads of its own, and leaves other cores alone.
    os.environ.setdefault("LP_NUM_THREADS", "0")
    require_driver()
    _owner = os.getpid()
    parameters = RenderEngineVtkParams(
        default_clear_color=BACKGROUND_COLOR,
        lights=_shadow_lights() if shadows else [_directional(*light) for light in _LIGHTS],
        cast_shadows=shadows,
        shadow_map_size=_SHADOW_MAP_SIZE,
    )
    scene_graph.AddRenderer(VTK, MakeRenderEngineVtk(parameters))


def _directional(direction: tuple[float, ...], intensity: float) -> LightParameter:
    return LightParameter(
        type="directional", direction=direction, frame="world", intensity=intensity
    )


def _shadow_lights() -> list[LightParameter]:
    """Returns the key light, and fill lights as far points, which cast no shadows in VTK."""
    fill = [
        LightParameter(
            type="point",
            position=-_FILL_DISTANCE_M * np.array(direction) / np.linalg.norm(direction),
            frame="world",
            intensity=intensity,
            attenuation_values=(1.0, 0.0, 0.0),
        )
        for direction, intensity in _FILL_LIGHTS
    ]
    return [_directional(*_KEY_LIGHT), *fill]


def render_rgb(
    query: QueryObject, pinhole: Pinhole, X_WC: RigidTransform, renderer: str = VTK
) -> np.ndarray:
    """Returns a colour image, (height, width, 3) uint8.

    Args:
        query: Query object of a `RenderScene`.
        pinhole: Intrinsics of the camera.
        X_WC: Pose of the camera.
        renderer: Name of the renderer in Drake.
    """
    camera = ColorRenderCamera(_core(pinhole, renderer))
    image = query.RenderColorImage(camera, query.inspector().world_frame_id(), X_WC)
    return image.data[:, :, :3].copy()


def render_depth(
    query: QueryObject, pinhole: Pinhole, X_WC: RigidTransform, range_m: tuple[float, float]
) -> np.ndarray:
    """Returns distances along the camera's z axis, (height, width) float32, m.

    Pixels below the range read 0; pixels beyond it, infinity.
    """
    camera = DepthRenderCamera(_core(pinhole), DepthRange(*range_m))
    image = query.RenderDepthImage(camera, query.inspector().world_frame_id(), X_WC)
    return image.data[:, :, 0].copy()


def render_segmentation(query: QueryObject, pinhole: Pinhole, X_WC: RigidTransform) -> np.ndarray:
    """Returns the segment of each pixel, (height, width) uint8."""
    camera = ColorRenderCamera(_core(pinhole))
    image = query.RenderLabelImage(camera, query.inspector().world_frame_id(), X_WC)
    return segmentation(image.data[:, :, 0].copy())


def _core(pinhole: Pinhole, renderer: str = VTK) -> RenderCameraCore:
    _require_own_process()
    f, (u, v) = pinhole.focal_px, pinhole.center_px
    # Drake counts pixels from the corner of the image, not from the first pixel's centre.
    intrinsics = CameraInfo(pinhole.width, pinhole.height, f, f, u + 0.5, v + 0.5)
    return RenderCameraCore(renderer, intrinsics, ClippingRange(*CLIPPING_M), RigidTransform())


def _require_own_process() -> None:
    # The threads of a GL driver do not survive a fork; the child would wait for them forever.
    if _owner not in (None, os.getpid()):
        raise ForkedRendererError(
            "This process was forked from one that had already rendered, and OpenGL fails after a "
            "fork. Start workers as new processes: gymnasium.make_vec(..., "
            'vectorization_mode="async", vector_kwargs={"context": "spawn"}), or '
            'multiprocessing.get_context("spawn").'
        )


# --- Colours --------------------------------------------------------------------------------


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


def painted(properties: PerceptionProperties, tint: Tint, texture: str) -> PerceptionProperties:
    """Returns the properties of a shape whose colours are scaled by a tint.

    Args:
        properties: Its properties in the model file.
        tint: The tint.
        texture: Name of a texture, see `fleet_tools.config.file_access`.
    """
    changed = PerceptionProperties(properties)
    color = changed.GetPropertyOrDefault("phong", "diffuse", Rgba(1.0, 1.0, 1.0, 1.0))
    changed.UpdateProperty("phong", "diffuse", tinted(color, tint))
    file = texture_file(texture)
    if file is not None:
        changed.UpdateProperty("phong", "diffuse_map", str(file))
    return changed
