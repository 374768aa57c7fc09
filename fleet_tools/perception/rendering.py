"""Rendering by VTK through EGL: colour, depth and segmentation of pinhole cameras."""

import os

import numpy as np
from pydrake.geometry import (
    ClippingRange,
    ColorRenderCamera,
    DepthRange,
    DepthRenderCamera,
    LightParameter,
    MakeRenderEngineVtk,
    QueryObject,
    RenderCameraCore,
    RenderEngineVtkParams,
    SceneGraph,
)
from pydrake.math import RigidTransform
from pydrake.systems.sensors import CameraInfo

from fleet_tools.config.cameras import CLIPPING_M
from fleet_tools.errors import ForkedRendererError
from fleet_tools.perception.opengl import require_driver
from fleet_tools.perception.pinhole import Pinhole
from fleet_tools.perception.segmentation import segmentation

BACKGROUND_COLOR = (0.96, 0.97, 0.98)

VTK = "vtk"
"""Name of the renderer in Drake."""

_LIGHTS = [((-0.6, 0.5, -1.0), 0.9), ((-0.3, -1.0, -0.6), 0.4), ((1.0, 0.6, -0.3), 0.2)]
_owner: int | None = None
"""Id of the process that renders, by which a forked process knows that it is another."""


def add_renderer(scene_graph: SceneGraph) -> None:
    """Adds the renderer to a scene graph.

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
    lights = [
        LightParameter(type="directional", direction=d, frame="world", intensity=i)
        for d, i in _LIGHTS
    ]
    parameters = RenderEngineVtkParams(default_clear_color=BACKGROUND_COLOR, lights=lights)
    scene_graph.AddRenderer(VTK, MakeRenderEngineVtk(parameters))


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
            "This process was forked from one that had already rendered, and OpenGL does not "
            "survive that. Start workers afresh: gymnasium.make_vec(..., "
            'vectorization_mode="async", vector_kwargs={"context": "spawn"}), or '
            'multiprocessing.get_context("spawn").'
        )
