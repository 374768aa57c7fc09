"""The controller's reference, as a value."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from pydrake.math import RigidTransform

from fleet_tools.robot.osc import Path
from fleet_tools.utils.straight_line import pack


@dataclass(frozen=True, eq=False)
class Reference:
    """A motion of the end effector in its own frame, and a posture of the arm.

    Attributes:
        X_WE: Initial pose of the end effector.
        delta: (6,), translation (m), then rotation vector (rad), in the initial frame.
        start: Start time, s.
        duration: Duration, s; the final pose is held afterwards.
        posture: (n,), joint positions to which the arm returns in the null space, rad.
        scale: Part of the motion that is made, at most 1; less where joint limits ask for it.
    """

    X_WE: RigidTransform
    delta: np.ndarray
    start: float
    duration: float
    posture: np.ndarray
    scale: float = 1.0

    @cached_property
    def path(self) -> Path:
        """Its path: `fleet_tools.robot.pose_delta.displace(X_WE, delta, scale * fraction)`."""
        R_WE = self.X_WE.rotation()
        dp, rotation = self._displacements
        angle = math.hypot(*rotation)
        axis = rotation / angle if angle > 1e-100 else np.zeros(3)
        R = np.ascontiguousarray(R_WE.matrix())
        # By np.cross and not by `@`, whose rounding depends on the processor.
        KR = np.ascontiguousarray(np.cross(axis, R, axisb=0, axisc=0))
        KKR = np.ascontiguousarray(np.cross(axis, KR, axisb=0, axisc=0))
        return Path(self.X_WE.translation(), dp, R, KR, KKR, angle)

    @cached_property
    def packed(self) -> tuple[Path, np.ndarray]:
        """The path and the posture, for compiled functions."""
        return pack(self.path, self.posture)

    def at(self, time: float) -> tuple[float, np.ndarray]:
        """Returns the fraction of the path, and the spatial velocity (6,) of E in W.

        The velocity stays constant up to the very end, where contact is measured: with zero
        velocity there, braking would act like a force.
        """
        fraction = (time - self.start) / self.duration
        if 0.0 <= fraction <= 1.0:
            return fraction, self._velocity
        V = self._velocity if 0.0 <= fraction <= _AT_THE_END else _AT_REST
        return float(fraction > 0.0), V

    @cached_property
    def _velocity(self) -> np.ndarray:
        dp, rotation = self._displacements
        return np.concatenate([rotation, dp]) / self.duration

    @cached_property
    def _displacements(self) -> tuple[np.ndarray, np.ndarray]:
        """Translation (m) and rotation vector (rad) of the whole path, in the world."""
        R_WE, motion = self.X_WE.rotation(), self.scale * self.delta
        return R_WE @ motion[:3], R_WE @ motion[3:]


_AT_REST = np.zeros(6)
_AT_THE_END = 1.0 + 1e-9  # as far as rounding of times goes
