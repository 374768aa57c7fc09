"""A camera of a task where it is now."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleet_tools.config.cameras import Camera
from fleet_tools.perception.pinhole import Pinhole

if TYPE_CHECKING:
    from pydrake.math import RigidTransform


@dataclass(frozen=True, eq=False)
class CameraView:
    """A camera of a task where it is now.

    Attributes:
        name: Its name in the task file.
        camera: What the task file says.
        pinhole: Its intrinsics.
        X_WC: Its pose.
    """

    name: str
    camera: Camera
    pinhole: Pinhole
    X_WC: "RigidTransform"
