"""Where people look from: the third view of pictures, and Meshcat's in the browser."""

import numpy as np
from pydrake.geometry import Meshcat, MeshcatParams, QueryObject
from pydrake.math import RigidTransform, RotationMatrix

from fleet_tools.perception.pinhole import Pinhole
from fleet_tools.perception.rendering import BACKDROP, render_rgb

WIDTH, HEIGHT, FIELD_OF_VIEW_DEG = 640, 480, 40.0
EYE, TARGET = (1.50, -1.00, 0.80), (0.32, 0.0, 0.30)
MESHCAT_NEARNESS = 0.55

_PINHOLE = Pinhole.from_field_of_view(WIDTH, HEIGHT, FIELD_OF_VIEW_DEG)


def third_view(query: QueryObject) -> np.ndarray:
    """Returns a picture of the whole scene, (HEIGHT, WIDTH, 3) uint8."""
    return render_rgb(query, _PINHOLE, look_at(EYE, TARGET))


def project(p_W: np.ndarray) -> np.ndarray:
    """Returns where points, (..., 3), lie in the third view: pixels right and down, (..., 2)."""
    p_C = look_at(EYE, TARGET).inverse().multiply(np.reshape(p_W, (-1, 3)).T).T
    return _PINHOLE.project(p_C).reshape(*np.shape(p_W)[:-1], 2)


def open_meshcat() -> Meshcat:
    """Returns a Meshcat that looks from where the third view does."""
    meshcat = Meshcat(MeshcatParams(show_stats_plot=False))
    for clutter in ("/Grid", "/Axes"):
        meshcat.SetProperty(clutter, "visible", False)
    for end in ("top_color", "bottom_color"):
        meshcat.SetProperty("/Background", end, list(BACKDROP))
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
