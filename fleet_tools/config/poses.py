"""Poses in readable numbers, as task files, scenes and keypoint files give them."""

import math
from typing import TYPE_CHECKING

from fleet_tools.config.values import Value, Vector3

if TYPE_CHECKING:
    from pydrake.math import RigidTransform


class Pose(Value):
    """A rigid transform; roll, pitch and yaw rotate about fixed x, y and z axes."""

    translation_m: Vector3 = (0.0, 0.0, 0.0)
    """Translation along x, y and z."""
    rpy_deg: Vector3 = (0.0, 0.0, 0.0)
    """Roll, pitch and yaw."""

    def to_transform(self) -> "RigidTransform":
        """Returns the same pose as a Drake transform."""
        from pydrake.math import RigidTransform, RollPitchYaw  # values load without Drake

        roll, pitch, yaw = (math.radians(angle) for angle in self.rpy_deg)
        return RigidTransform(RollPitchYaw(roll, pitch, yaw), self.translation_m)
