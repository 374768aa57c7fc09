"""Small motions of a pose, of which actions are made: translation, then rotation vector."""

import math

import numpy as np
from pydrake.common.eigen_geometry import AngleAxis
from pydrake.math import RigidTransform, RotationMatrix


def displace(X_WE: RigidTransform, motion: np.ndarray, fraction: float = 1.0) -> RigidTransform:
    """Moves a pose by a motion expressed in its own frame.

    Args:
        X_WE: The pose.
        motion: (6,), translation (m), then rotation vector (rad), both in frame E.
        fraction: How much of the motion; the path is straight, its turning rate constant.
    """
    rotation = motion[3:]
    angle = math.hypot(*rotation)
    turns = angle > 1e-100  # below it the axis would be lost to rounding
    R_EF = RotationMatrix(AngleAxis(fraction * angle, rotation / angle)) if turns else _NO_TURN
    return X_WE @ RigidTransform(R_EF, fraction * motion[:3])


def displacement(X_WE: RigidTransform, X_WF: RigidTransform) -> np.ndarray:
    """Returns the motion with `displace(X_WE, motion) == X_WF`, (6,), with angles up to pi."""
    X_EF = X_WE.InvertAndCompose(X_WF)
    return np.concatenate([X_EF.translation(), rotation_vector(X_EF.rotation())])


def rotation_vector(R: RotationMatrix) -> np.ndarray:
    """Returns axis times angle (rad), (3,), with the angle at most pi."""
    angle_axis = R.ToAngleAxis()
    return angle_axis.angle() * angle_axis.axis()


_NO_TURN = RotationMatrix()
