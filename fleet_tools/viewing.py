"""The third view: where people look from."""

import numpy as np
from pydrake.geometry import QueryObject
from pydrake.math import RigidTransform, RotationMatrix

from fleet_tools.perception.pinhole import Pinhole
from fleet_tools.perception.renderer import render_rgb

WIDTH, HEIGHT, FIELD_OF_VIEW_DEG = 640, 480, 40.0
EYE, TARGET = (1.50, -1.00, 0.80), (0.32, 0.0, 0.30)


def third_view(query: QueryObject) -> np.ndarray:
    """Returns a picture of the whole scene, (HEIGHT, WIDTH, 3) uint8."""
    pinhole = Pinhole.from_field_of_view(WIDTH, HEIGHT, FIELD_OF_VIEW_DEG)
    return render_rgb(query, pinhole, look_at(EYE, TARGET))


def look_at(eye: tuple[float, ...], target: tuple[float, ...]) -> RigidTransform:
    """Returns X_WC of a camera (x right, y down, z forward) at `eye` that sees `target` upright."""
    forward = np.subtract(target, eye)
    forward /= np.linalg.norm(forward)
    right = np.cross(forward, [0.0, 0.0, 1.0])
    right /= np.linalg.norm(right)
    columns = np.column_stack([right, np.cross(forward, right), forward])
    return RigidTransform(RotationMatrix(columns), eye)
