"""Pictures of a diagram for people: images from a third view, and Meshcat in the browser."""

from typing import Literal

import numpy as np
from pydrake.geometry import (
    ClippingRange,
    ColorRenderCamera,
    LightParameter,
    MakeRenderEngineVtk,
    Meshcat,
    MeshcatParams,
    MeshcatVisualizer,
    RenderCameraCore,
    RenderEngineVtkParams,
    SceneGraph,
)
from pydrake.math import RigidTransform, RotationMatrix
from pydrake.systems.framework import Context, Diagram, DiagramBuilder
from pydrake.systems.sensors import CameraInfo

from fleet_tools.opengl import require_driver, require_gl

RENDERER = "vtk"
WIDTH, HEIGHT, FIELD_OF_VIEW_DEG = 640, 480, 40.0
EYE, TARGET = (1.50, -1.00, 0.80), (0.32, 0.0, 0.30)
BACKDROP = (0.96, 0.97, 0.98)
MESHCAT_NEARNESS = 0.55
_LIGHTS = [((-0.6, 0.5, -1.0), 0.9), ((-0.3, -1.0, -0.6), 0.4), ((1.0, 0.6, -0.3), 0.2)]


class Viewer:
    """Shows people one diagram after another.

    Args:
        kind: "image" for pictures of a third view, "meshcat" for a live view in the browser.

    Raises:
        MissingLibraryError: Images are wanted where OpenGL is missing.
    """

    def __init__(self, kind: Literal["image", "meshcat"]) -> None:
        if kind == "image":
            require_gl()
        self.meshcat = _open_meshcat() if kind == "meshcat" else None

    def attach(self, builder: DiagramBuilder, scene_graph: SceneGraph) -> None:
        """Adds what showing needs to a diagram that is being built.

        Raises:
            MissingLibraryError: OpenGL has no driver.
        """
        if self.meshcat is not None:
            MeshcatVisualizer.AddToBuilder(builder, scene_graph, self.meshcat)
            return
        require_driver()
        lights = [
            LightParameter(type="directional", direction=d, frame="world", intensity=i)
            for d, i in _LIGHTS
        ]
        parameters = RenderEngineVtkParams(default_clear_color=BACKDROP, lights=lights)
        scene_graph.AddRenderer(RENDERER, MakeRenderEngineVtk(parameters))

    def show(self, diagram: Diagram, scene_graph: SceneGraph, root: Context) -> np.ndarray | None:
        """Returns the third view, (height, width, 3) uint8, or None after updating Meshcat."""
        if self.meshcat is not None:
            diagram.ForcedPublish(root)
            return None
        query = scene_graph.get_query_output_port().Eval(scene_graph.GetMyContextFromRoot(root))
        core = RenderCameraCore(
            RENDERER, _intrinsics(), ClippingRange(0.05, 10.0), RigidTransform()
        )
        camera = ColorRenderCamera(core)
        image = query.RenderColorImage(camera, scene_graph.world_frame_id(), look_at(EYE, TARGET))
        return image.data[:, :, :3].copy()


def project(p_W: np.ndarray) -> np.ndarray:
    """Returns where points, (..., 3), lie in the third view: pixels right and down, (..., 2)."""
    p_C = (look_at(EYE, TARGET).inverse() @ np.reshape(p_W, (-1, 3)).T).T
    f = _intrinsics().focal_x()
    pixels = f * p_C[:, :2] / p_C[:, 2:] + [_intrinsics().center_x(), _intrinsics().center_y()]
    return pixels.reshape(*np.shape(p_W)[:-1], 2)


def _intrinsics() -> CameraInfo:
    return CameraInfo(WIDTH, HEIGHT, np.deg2rad(FIELD_OF_VIEW_DEG))


def _open_meshcat() -> Meshcat:
    meshcat = Meshcat(MeshcatParams(show_stats_plot=False))
    for clutter in ("/Grid", "/Axes"):
        meshcat.SetProperty(clutter, "visible", False)
    for end, color in (("top_color", BACKDROP), ("bottom_color", BACKDROP)):
        meshcat.SetProperty("/Background", end, list(color))
    # Meshcat's field of view is wider, so that it must stand nearer to show as much.
    meshcat.SetCameraPose(np.add(TARGET, np.subtract(EYE, TARGET) * MESHCAT_NEARNESS), TARGET)
    return meshcat


def look_at(eye: tuple[float, ...], target: tuple[float, ...]) -> RigidTransform:
    """Returns X_WC of a camera (x right, y down, z forward) at `eye` that sees `target` upright."""
    forward = np.subtract(target, eye)
    forward /= np.linalg.norm(forward)
    right = np.cross(forward, [0.0, 0.0, 1.0])
    right /= np.linalg.norm(right)
    columns = np.column_stack([right, np.cross(forward, right), forward])
    return RigidTransform(RotationMatrix(columns), eye)
