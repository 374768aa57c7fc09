"""Pose deltas, the form of actions: a translation, then a rotation vector."""

import math

import numpy as np
from pydrake.common.eigen_geometry import AngleAxis
from pydrake.math import RigidTransform, RotationMatrix


def displace(X_WE: RigidTransform, delta: np.ndarray, fraction: float = 1.0) -> RigidTransform:
    """Moves a pose by a delta expressed in its own frame.

    Args:
        X_WE: The pose.
        delta: (6,), translation (m), then rotation vector (rad), both in frame E.
        fraction: Fraction of the delta; the path is straight, the angular velocity constant.
    """
    rotation = delta[3:]
    angle = math.hypot(*rotation)
    rotates = angle > 1e-100  # below it the axis would be lost to rounding
    R_EF = RotationMatrix(AngleAxis(fraction * angle, rotation / angle)) if rotates else _IDENTITY
    return X_WE @ RigidTransform(R_EF, fraction * delta[:3])


def displacement(X_WE: RigidTransform, X_WF: RigidTransform) -> np.ndarray:
    """Returns the delta with `displace(X_WE, delta) == X_WF`, (6,), with angles up to pi."""
    X_EF = X_WE.InvertAndCompose(X_WF)
    return np.concatenate([X_EF.translation(), rotation_vector(X_EF.rotation())])


def rotation_vector(R: RotationMatrix) -> np.ndarray:
    """Returns axis times angle (rad), (3,), with an angle of at most pi."""
    angle_axis = R.ToAngleAxis()
    return angle_axis.angle() * angle_axis.axis()


_IDENTITY = RotationMatrix()
