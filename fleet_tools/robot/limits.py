"""Joint limits of the arm, and the control law that respects them.

The end effector is slowed along its way and not pushed off it. A motion that is too fast for a
joint is shortened as a whole (`motion_scale`). A joint acceleration is done as far as a limit
allows, along the line from braking all joints alike (`limited_torque`).
"""

from typing import NamedTuple

import numpy as np

from fleet_tools.utils.straight_line import straight_line
from fleet_tools.utils.symbols import larger, smaller, where, zeros

SPEED_SHARE = 0.9
"""Share of the declared joint speeds that the control uses; the rest is room for impacts."""

MOTION_SHARE = 0.85
"""Share of the declared joint speeds that a motion may need; the rest is for catching up."""

APPROACH_RATE = 5.0
"""Largest speed towards a position limit over the distance from it, 1/s."""

SETTLING_RATE = 60.0
"""Largest acceleration towards a speed limit over the distance from it, 1/s."""

BRAKING_RATE = 10.0
"""Deceleration of all joints over their speed when nothing else is allowed, 1/s."""


class JointLimits(NamedTuple):
    """The declared limits of n joints.

    Attributes:
        lower, upper: (n,), positions, rad.
        speed: (n,), rad/s.
        effort: (n,), torques, N m.
    """

    lower: np.ndarray
    upper: np.ndarray
    speed: np.ndarray
    effort: np.ndarray


@straight_line
def motion_scale(v: np.ndarray, q: np.ndarray, limits: JointLimits) -> float:
    """Returns the largest scale, at most 1, with which a motion keeps joint speeds and positions.

    Args:
        v: (n,), joint velocities of the motion, rad/s.
        q: (n,), joint positions, rad.
        limits: Limits of the joints.
    """
    scale = 1.0
    for i in range(v.size):
        distance = where(v[i] > 0.0, limits.upper[i] - q[i], q[i] - limits.lower[i])
        allowed = smaller(MOTION_SHARE * limits.speed[i], APPROACH_RATE * larger(distance, 0.0))
        speed = abs(v[i])
        scale = where(speed > allowed, smaller(scale, allowed / speed), scale)
    return scale


@straight_line
def acceleration_bounds(
    q: np.ndarray, v: np.ndarray, limits: JointLimits
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the smallest and the largest joint accelerations that keep speeds and positions.

    Args:
        q: (n,), joint positions, rad.
        v: (n,), joint velocities, rad/s.
        limits: Limits of the joints.
    """
    lowest, highest = zeros(v.size), zeros(v.size)
    for i in range(v.size):
        speed = SPEED_SHARE * limits.speed[i]
        v_min = -smaller(speed, APPROACH_RATE * (q[i] - limits.lower[i]))
        v_max = smaller(speed, APPROACH_RATE * (limits.upper[i] - q[i]))
        lowest[i], highest[i] = SETTLING_RATE * (v_min - v[i]), SETTLING_RATE * (v_max - v[i])
    return lowest, highest


@straight_line
def limited_torque(
    vdot: np.ndarray,
    M: np.ndarray,
    bias: np.ndarray,
    q: np.ndarray,
    v: np.ndarray,
    limits: JointLimits,
) -> np.ndarray:
    """Returns the torques for a joint acceleration, as far as the limits allow it.

    They are M x + bias with the x nearest to vdot, on the line from x0 to vdot, that is within
    `acceleration_bounds` and the limits of torque. The start x0 is the braking of all joints with
    one rate, clipped to the bounds; by it the end effector slows down without turning aside. If
    torques do not suffice for it, x0 is as large a part of it as they allow.

    Args:
        vdot: (n,), desired joint acceleration, rad/s^2.
        M: (n, n), joint-space mass matrix, kg m^2.
        bias: (n,), torques for which joints do not accelerate, N m.
        q: (n,), joint positions, rad.
        v: (n,), joint velocities, rad/s.
        limits: Limits of the joints.

    Returns:
        (4 n,): torques, N m; then 1 for the limit that binds and 0 for all others, first of the
        joints' positions, then of their speeds, then of their torques.
    """
    n = v.size
    lowest, highest = acceleration_bounds(q, v, limits)
    x0, lowest_torque = zeros(n), zeros(n)
    for i in range(n):
        lowest_torque[i] = -limits.effort[i]
        x0[i] = smaller(larger(-BRAKING_RATE * v[i], lowest[i]), highest[i])
    tau0, tau = _torques(M, bias, x0), _torques(M, bias, vdot)
    part, _ = _within(bias, tau0, lowest_torque, limits.effort)
    for i in range(n):
        x0[i] = part * x0[i]
        tau0[i] = bias[i] + part * (tau0[i] - bias[i])
    scale, joint = _within(x0, vdot, lowest, highest)
    scale_of_torque, torque_joint = _within(tau0, tau, lowest_torque, limits.effort)
    scale = smaller(scale, scale_of_torque)
    by_torque, by_joint = (scale_of_torque == scale) & (scale < 1.0), scale < scale_of_torque
    result = zeros(4 * n)
    for i in range(n):
        # Without limits they are the torques for vdot to the last bit.
        limited = where(scale == 1.0, tau[i], tau0[i] + scale * (tau[i] - tau0[i]))
        # For rounding, and for a bias that is beyond the limits by itself.
        result[i] = smaller(larger(limited, lowest_torque[i]), limits.effort[i])
        binds, ahead = where(by_joint & (joint == i), 1.0, 0.0), vdot[i] > x0[i]
        distance = where(ahead, limits.upper[i] - q[i], q[i] - limits.lower[i])
        near = APPROACH_RATE * distance < SPEED_SHARE * limits.speed[i]
        result[n + i], result[2 * n + i] = where(near, binds, 0.0), where(near, 0.0, binds)
        result[3 * n + i] = where(by_torque & (torque_joint == i), 1.0, 0.0)
    return result


def _torques(M: np.ndarray, bias: np.ndarray, vdot: np.ndarray) -> np.ndarray:
    """Returns M vdot + bias."""
    tau = zeros(vdot.size)
    for i in range(vdot.size):
        for j in range(vdot.size):
            tau[i] += M[i, j] * vdot[j]
        tau[i] += bias[i]
    return tau


def _within(
    start: np.ndarray, end: np.ndarray, lowest: np.ndarray, highest: np.ndarray
) -> tuple[float, float]:
    """Returns which part of the way from start to end is within bounds, and the entry that ends it.

    An entry that starts out of bounds may come back, and goes no further out.
    """
    part, binding = 1.0, 0.0
    for i in range(start.size):
        above = end[i] > larger(start[i], highest[i])
        below = end[i] < smaller(start[i], lowest[i])
        bound = where(above, highest[i], lowest[i])
        reachable = larger(0.0, (bound - start[i]) / (end[i] - start[i]))
        nearest = (above | below) & (reachable < part)
        part, binding = where(nearest, reachable, part), where(nearest, float(i), binding)
    return part, binding
