"""The controller's reference, as a value."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from pydrake.math import RigidTransform


@dataclass(frozen=True, eq=False)
class Reference:
    """A motion of the end effector in its own frame, and a posture of the arm.

    Attributes:
        X_WE: Initial pose of the end effector.
        delta: (6,), translation (m), then rotation vector (rad), in the initial frame.
        start: Start time, s.
        duration: Duration, s; the final pose is held afterwards.
        posture: (7,), joint positions to which the redundant elbow returns, rad.
        scale: Part of the motion that is made, at most 1; less where joint limits ask for it.
    """

    X_WE: RigidTransform
    delta: np.ndarray
    start: float
    duration: float
    posture: np.ndarray
    scale: float = 1.0

    def at(self, time: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns position (3,), rotation matrix (3, 3) and spatial velocity (6,) of E in W.

        The pose is `fleet_tools.robot.pose_delta.displace(X_WE, delta, scale * fraction)`, in a
        form that is fast to evaluate in every simulation step. The velocity stays constant up to
        the very end, where contact is measured: with zero velocity there, braking would act like a
        force.
        """
        p, dp, R, KR, KKR, angle, V = self._path
        fraction = (time - self.start) / self.duration
        if not 0.0 <= fraction <= 1.0:
            if not 0.0 <= fraction <= _AT_THE_END:
                V = _AT_REST
            fraction = float(fraction > 0.0)
        turned = fraction * angle
        # Rodrigues: exp(turned K) = I + sin(turned) K + (1 - cos(turned)) K^2.
        R_WE = R + math.sin(turned) * KR + (1.0 - math.cos(turned)) * KKR
        return p + fraction * dp, R_WE, V

    @cached_property
    def _path(self) -> tuple:
        R_WE = self.X_WE.rotation()
        dp, rotation = (R_WE @ (self.scale * part) for part in (self.delta[:3], self.delta[3:]))
        angle = math.hypot(*rotation)
        axis = rotation / angle if angle > 1e-100 else np.zeros(3)
        R = R_WE.matrix()
        # K turns a column x into axis x x; without `@`, whose rounding depends on the processor.
        KR = np.cross(axis, R, axisb=0, axisc=0)
        KKR = np.cross(axis, KR, axisb=0, axisc=0)
        V = np.concatenate([rotation, dp]) / self.duration
        return self.X_WE.translation(), dp, R, KR, KKR, angle, V


_AT_REST = np.zeros(6)
_AT_THE_END = 1.0 + 1e-9  # as far as rounding of times goes
