"""The mathematics of operational-space control.

O. Khatib, "A unified approach for motion and force control of robot manipulators: the operational
space formulation", IEEE Journal of Robotics and Automation, 1987. Twists and wrenches are stacked
rotation first, as in Drake. Frames: W world, E end effector, D its desired place; all quantities
are expressed in W.
"""

import math
from typing import NamedTuple

import numpy as np

from fleet_tools.utils.straight_line import straight_line
from fleet_tools.utils.symbols import cosine, sine, square_root, where, zeros


class Dynamics(NamedTuple):
    """The terms of M vdot + bias = tau + J^T F at one state.

    Attributes:
        M: (n, n), joint-space mass matrix, kg m^2.
        bias: (n,), Coriolis, centrifugal and gravity terms: the tau for which vdot = 0, N m.
        J: (6, n), Jacobian of the end effector's spatial velocity.
        Jdot_v: (6,), bias acceleration of the end effector, rad/s^2 and m/s^2.
    """

    M: np.ndarray
    bias: np.ndarray
    J: np.ndarray
    Jdot_v: np.ndarray


class Gains(NamedTuple):
    """Natural frequencies of critically damped errors, rad/s."""

    rotation: float
    translation: float
    posture: float


class Path(NamedTuple):
    """A straight path that turns about a fixed axis; K turns x into axis x x.

    Attributes:
        p: (3,), position at its beginning, m.
        dp: (3,), displacement to its end, m.
        R: (3, 3), orientation at its beginning.
        KR, KKR: (3, 3), K R and K K R.
        angle: Angle of the turn, rad.
    """

    p: np.ndarray
    dp: np.ndarray
    R: np.ndarray
    KR: np.ndarray
    KKR: np.ndarray
    angle: float


@straight_line
def pose_along(path: Path, fraction: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns position (3,) and orientation (3, 3) at a fraction of a path.

    Rodrigues: exp(a K) = I + sin(a) K + (1 - cos(a)) K^2.
    """
    p, R = zeros(3), zeros(3, 3)
    turned = fraction * path.angle
    s, versine = sine(turned), 1.0 - cosine(turned)
    for i in range(3):
        p[i] = path.p[i] + fraction * path.dp[i]
        for k in range(3):
            R[i, k] = path.R[i, k] + s * path.KR[i, k] + versine * path.KKR[i, k]
    return p, R


@straight_line
def turning(axis: np.ndarray, R: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns K R and K K R, (3, 3) each, see `Path`.

    Args:
        axis: (3,), axis of the turn.
        R: (3, 3), orientation.
    """
    KR, KKR = zeros(3, 3), zeros(3, 3)
    for product, A in ((KR, R), (KKR, KR)):
        for i in range(3):
            j, m = (i + 1) % 3, (i + 2) % 3
            for k in range(3):
                product[i, k] = axis[j] * A[m, k] - axis[m] * A[j, k]
    return KR, KKR


@straight_line
def tracking_acceleration(
    dynamics: Dynamics,
    gains: Gains,
    q: np.ndarray,
    v: np.ndarray,
    X_WE: np.ndarray,
    path: Path,
    fraction: float,
    V_WD: np.ndarray,
    posture: np.ndarray,
) -> np.ndarray:
    """Returns the joint acceleration by which the end effector follows a reference, (n,), rad/s^2.

    Args:
        dynamics: Terms of the equation of motion at the present state.
        gains: Natural frequencies of the errors.
        q: (n,), joint positions, rad.
        v: (n,), joint velocities, rad/s.
        X_WE: (3, 4), pose of the end effector: rotation matrix, position in m.
        path: Path of the desired pose.
        fraction: Fraction of it, at which the desired pose is.
        V_WD: (6,), desired spatial velocity, rad/s and m/s.
        posture: (n,), joint positions to which the arm returns in the null space, rad.
    """
    p_WD, R_WD = pose_along(path, fraction)
    turn = orientation_error(R_WD, X_WE)
    V_WE = _times(dynamics.J, v)
    A, vdot_posture = zeros(6), zeros(v.size)
    for k in range(3):
        A[k] = critically_damped(turn[k], V_WD[k] - V_WE[k], gains.rotation)
        error = p_WD[k] - X_WE[k, 3]
        A[3 + k] = critically_damped(error, V_WD[3 + k] - V_WE[3 + k], gains.translation)
    for k in range(6):
        A[k] -= dynamics.Jdot_v[k]
    for i in range(v.size):
        vdot_posture[i] = critically_damped(posture[i] - q[i], -v[i], gains.posture)
    return operational_space_acceleration(dynamics.M, dynamics.J, A, vdot_posture)


@straight_line
def operational_space_acceleration(
    M: np.ndarray, J: np.ndarray, A: np.ndarray, vdot_posture: np.ndarray
) -> np.ndarray:
    """Returns the joint acceleration with J vdot = A that is nearest, in M, to a posture's.

    vdot = vdot_posture + M^-1 J^T Lambda (A - J vdot_posture), where Lambda = (J M^-1 J^T)^-1 is
    the task-space inertia. With torques M vdot + bias this is Khatib's control: the posture's part
    of them, (I - J^T Lambda J M^-1) M vdot_posture, does not accelerate the end effector. The same
    holds for velocities.

    Directions in which the end effector cannot move stay without force.

    Args:
        M: (n, n), joint-space mass matrix, kg m^2.
        J: (6, n), Jacobian of the end effector's spatial velocity.
        A: (6,), spatial acceleration less Jdot v, rad/s^2 and m/s^2.
        vdot_posture: (n,), rad/s^2.
    """
    n = vdot_posture.size
    L = _cholesky(M)
    W = zeros(n, 6)  # L^-1 J^T, so that the mobility J M^-1 J^T is W^T W
    for i in range(n):
        for k in range(6):
            rest = J[k, i]
            for j in range(i):
                rest -= L[i, j] * W[j, k]
            W[i, k] = rest / L[i, i]
    mobility, missing = zeros(6, 6), _times(J, vdot_posture)
    for k in range(6):
        missing[k] = A[k] - missing[k]
        for m in range(6):
            for i in range(n):
                mobility[k, m] += W[i, k] * W[i, m]
    F = _solve(mobility, missing)
    vdot = _solve_upper(L, _times(W, F))
    for i in range(n):
        vdot[i] += vdot_posture[i]
    return vdot


def critically_damped(error, error_rate, frequency):
    """Returns the acceleration w^2 e + 2 w edot, which drives an error to zero without overshoot.

    Args:
        error: Desired minus actual; a number or an array.
        error_rate: Its derivative.
        frequency: Natural frequency w, rad/s.
    """
    return frequency * (frequency * error + 2.0 * error_rate)


@straight_line
def orientation_error(R_WD: np.ndarray, R_WE: np.ndarray) -> np.ndarray:
    """Returns the axis times the sine of the angle of the rotation from E to D, in W, (3,).

    Luh, Walker and Paul, "Resolved-acceleration control of mechanical manipulators", IEEE
    Transactions on Automatic Control, 1980. It grows with the angle up to a right angle, six times
    the largest rotation of an action.
    """
    error = zeros(3)  # half the sum of the cross products of E's axes with D's
    for k in range(3):
        for i in range(3):
            j, m = (i + 1) % 3, (i + 2) % 3
            error[i] += 0.5 * (R_WE[j, k] * R_WD[m, k] - R_WE[m, k] * R_WD[j, k])
    return error


@straight_line
def external_wrench(J: np.ndarray, tau_external: np.ndarray) -> np.ndarray:
    """Returns the end-effector wrench that explains external joint torques, (6,), N m and N.

    The least-squares solution of J^T F = tau, as arms with joint torque sensors estimate it. It is
    exact as long as the robot is touched at the end effector or the tool only.

    Args:
        J: (6, n), Jacobian expressed in the frame of the wrench.
        tau_external: (n,), torques of the surroundings on the joints, N m.
    """
    square = zeros(6, 6)  # J J^T, of the normal equations
    for k in range(6):
        for m in range(6):
            for i in range(tau_external.size):
                square[k, m] += J[k, i] * J[m, i]
    return _solve(square, _times(J, tau_external))


def _times(A: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Returns A x."""
    product = zeros(A.shape[0])
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            product[i] += A[i, j] * x[j]
    return product


def _solve(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Returns x with A x = b for a symmetric positive semidefinite A; see `_cholesky`."""
    L = _cholesky(A)
    return _solve_upper(L, _solve_lower(L, b))


def _cholesky(A: np.ndarray) -> np.ndarray:
    """Returns L with L L^T = A, lower triangular.

    Where A is singular to rounding, the pivot is infinite, so that the solution is 0 there.
    """
    L = zeros(*A.shape)
    for j in range(A.shape[0]):
        for i in range(j, A.shape[0]):
            rest = A[i, j]
            for k in range(j):
                rest -= L[i, k] * L[j, k]
            if i > j:
                L[i, j] = rest / L[j, j]
            else:
                regular = rest > _SINGULAR * A[j, j]
                L[j, j] = where(regular, square_root(rest), math.inf)
    return L


def _solve_lower(L: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Returns x with L x = b."""
    x = zeros(b.size)
    for i in range(b.size):
        rest = b[i]
        for j in range(i):
            rest -= L[i, j] * x[j]
        x[i] = rest / L[i, i]
    return x


def _solve_upper(L: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Returns x with L^T x = b."""
    x = zeros(b.size)
    for i in range(b.size - 1, -1, -1):
        rest = b[i]
        for j in range(i + 1, b.size):
            rest -= L[j, i] * x[j]
        x[i] = rest / L[i, i]
    return x


_SINGULAR = 1e-12
