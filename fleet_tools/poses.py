"""Poses, and the small motions between them that actions are made of."""

import math
from typing import TYPE_CHECKING

import numpy as np

from fleet_tools.values import Value, Vector3

if TYPE_CHECKING:
    from pydrake.math import RigidTransform


class Pose(Value):
    """A rigid transform in readable numbers; roll, pitch and yaw turn about fixed x, y and z."""

    translation_m: Vector3 = (0.0, 0.0, 0.0)
    rpy_deg: Vector3 = (0.0, 0.0, 0.0)

    def to_transform(self) -> "RigidTransform":
        """Returns the same pose for Drake."""
        from pydrake.math import RigidTransform, RollPitchYaw

        roll, pitch, yaw = (math.radians(angle) for angle in self.rpy_deg)
        return RigidTransform(RollPitchYaw(roll, pitch, yaw), self.translation_m)


def displace(X_WE: "RigidTransform", motion: np.ndarray, fraction: float = 1.0) -> "RigidTransform":
    """Moves a pose by a motion expressed in its own frame.

    Args:
        X_WE: The pose.
        motion: (6,), translation (m), then rotation vector (rad), both in frame E.
        fraction: How much of the motion; the path is straight, its turning rate constant.
    """
    from pydrake.common.eigen_geometry import AngleAxis
    from pydrake.math import RigidTransform, RotationMatrix

    translation, rotation = fraction * motion[:3], fraction * motion[3:]
    angle = float(np.linalg.norm(rotation))
    R_EF = RotationMatrix(AngleAxis(angle, rotation / angle)) if angle else RotationMatrix()
    return X_WE @ RigidTransform(R_EF, translation)


def displacement(X_WE: "RigidTransform", X_WF: "RigidTransform") -> np.ndarray:
    """Returns the motion with `displace(X_WE, motion) == X_WF`, (6,), with angles up to pi."""
    X_EF = X_WE.InvertAndCompose(X_WF)
    return np.concatenate([X_EF.translation(), rotation_vector(X_EF.rotation())])


def rotation_vector(R) -> np.ndarray:
    """Returns axis times angle (rad) of a Drake RotationMatrix, (3,), with angle at most pi."""
    angle_axis = R.ToAngleAxis()
    return angle_axis.angle() * angle_axis.axis()
