"""The third-person view: images from outside, and Meshcat's initial camera in the browser."""

import ipaddress
import os
from dataclasses import dataclass

import numpy as np
from pydrake.geometry import Meshcat, MeshcatParams
from pydrake.math import RigidTransform, RotationMatrix

from fleet_tools.config.cameras import CLIPPING_M
from fleet_tools.errors import ConfigError
from fleet_tools.perception.pinhole import Pinhole
from fleet_tools.perception.rendering import BACKGROUND_COLOR

THIRD = "third"
"""Name of the third-person view among the cameras of a task."""

WIDTH, HEIGHT, FIELD_OF_VIEW_DEG = 640, 480, 40.0
EYE, TARGET = (1.50, -1.00, 0.80), (0.32, 0.0, 0.30)
"""Position of the camera, and the point at which it looks, in the world, m."""
MESHCAT_DISTANCE_SCALE = 0.55
"""Meshcat's field of view is wider, so that its camera must be nearer."""

MESHCAT_HOST = "FLEET_TOOLS_MESHCAT_HOST"
"""Environment variable with the address at which Meshcat listens, such as 0.0.0.0."""


@dataclass(frozen=True, eq=False)
class View:
    """A camera of pictures for people, where it is now.

    Attributes:
        pinhole: Its intrinsics.
        X_WC: Its pose.
    """

    pinhole: Pinhole
    X_WC: RigidTransform

    def project(self, p_W: np.ndarray) -> np.ndarray:
        """Projects points (..., 3) in the world, m: pixels right and down, (..., 2).

        Points that are not in front of the camera are NaN.
        """
        p_C = self.X_WC.inverse().multiply(np.reshape(p_W, (-1, 3)).T).T
        p_C[p_C[:, 2] < CLIPPING_M[0]] = np.nan
        return self.pinhole.project(p_C).reshape(*np.shape(p_W)[:-1], 2)


def third_person_view(size: tuple[int, int] = (WIDTH, HEIGHT)) -> View:
    """Returns the view of the whole scene.

    Args:
        size: Width and height of the picture, pixels.
    """
    return View(Pinhole.from_field_of_view(*size, FIELD_OF_VIEW_DEG), look_at(EYE, TARGET))


def project(p_W: np.ndarray) -> np.ndarray:
    """Projects points (..., 3) into the third-person view: pixels right and down, (..., 2)."""
    return third_person_view().project(p_W)


def open_meshcat() -> Meshcat:
    """Starts a Meshcat server whose camera looks from the third-person view.

    It serves this machine alone, unless `MESHCAT_HOST` names another address.

    Raises:
        ConfigError: This is no address, or it cannot listen there.
    """
    host = os.environ.get(MESHCAT_HOST, "127.0.0.1")
    try:
        if host not in ("localhost", "*"):  # of an empty name, Drake would listen everywhere
            ipaddress.ip_address(host)
        meshcat = Meshcat(MeshcatParams(host=host, show_stats_plot=False))
    except (ValueError, RuntimeError) as error:
        raise ConfigError(
            f"Meshcat cannot listen on {host!r}, ports 7000 to 7999: {error}. {MESHCAT_HOST} is an "
            "address of this machine, such as 127.0.0.1, or * for all of them."
        ) from None
    for clutter in ("/Grid", "/Axes"):
        meshcat.SetProperty(clutter, "visible", False)
    for end in ("top_color", "bottom_color"):
        meshcat.SetProperty("/Background", end, list(BACKGROUND_COLOR))
    eye = np.add(TARGET, np.subtract(EYE, TARGET) * MESHCAT_DISTANCE_SCALE)
    meshcat.SetCameraPose(eye, TARGET)
    return meshcat


def look_at(eye: tuple[float, ...], target: tuple[float, ...]) -> RigidTransform:
    """Returns X_WC of a camera (x right, y down, z forward) at `eye` that looks at `target`."""
    forward = np.subtract(target, eye)
    forward /= np.linalg.norm(forward)
    right = np.cross(forward, [0.0, 0.0, 1.0])
    right /= np.linalg.norm(right)
    columns = np.column_stack([right, np.cross(forward, right), forward])
    return RigidTransform(RotationMatrix(columns), eye)
