"""The gizmo: a pose that the end effector is to reach, as fast as the action bounds allow."""

import numpy as np
from pydrake.common.eigen_geometry import Quaternion
from pydrake.math import RigidTransform, RotationMatrix

from fleet_tools.robot.pose_delta import displacement
from fleet_tools.teleoperation.commands import within_bounds


def action_toward(X_WE: RigidTransform, X_WT: RigidTransform, scale: np.ndarray) -> np.ndarray:
    """Returns the action from a pose towards a target, (6,) float32, in [-1, 1].

    It is straight and turns about one axis; it ends at the target where that is within one step.

    Args:
        X_WE: Pose of the end effector.
        X_WT: The target.
        scale: (6,), the motion for which each entry of an action is 1, m and rad.
    """
    return within_bounds(displacement(X_WE, X_WT) / scale)


def pose_of(position: np.ndarray, wxyz: np.ndarray) -> RigidTransform:
    """Returns a pose from what a page sends of the gizmo.

    Args:
        position: (3,), m.
        wxyz: (4,), quaternion, of any length but 0.

    Raises:
        ValueError: They are not finite, or the quaternion is 0.
    """
    length = float(np.linalg.norm(wxyz))
    if not np.isfinite([*position, length]).all() or length == 0:
        raise ValueError(f"no pose: position {position}, quaternion {wxyz}")
    return RigidTransform(RotationMatrix(Quaternion(np.asarray(wxyz, float) / length)), position)
