"""The mathematics of operational-space control.

O. Khatib, "A unified approach for motion and force control of robot manipulators: the operational
space formulation", IEEE Journal of Robotics and Automation, 1987. Twists and wrenches are stacked
rotation first, as in Drake. Frames: W world, E end effector; all quantities are expressed in W.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dposv  # pyright: ignore[reportAttributeAccessIssue]


@dataclass(frozen=True)
class Dynamics:
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


def task_inertia(M: np.ndarray, J: np.ndarray) -> np.ndarray:
    """Returns Lambda = (J M^-1 J^T)^-1, (6, 6), the task-space inertia of the end effector."""
    return np.linalg.inv(J @ _solve(M, J.T))


def operational_space_torque(
    dynamics: Dynamics,
    A_WE_desired: np.ndarray,
    vdot_posture: np.ndarray,
    effort_limit: np.ndarray,
) -> np.ndarray:
    """Returns the torques for a task-space acceleration and a null-space joint acceleration.

    tau = J^T Lambda (A - Jdot v) + (I - J^T Jbar^T) M vdot_posture + bias, clipped at the limits,
    with Jbar^T = Lambda J M^-1. The posture torque is dynamically consistent: it does not
    accelerate the end effector.

    Args:
        dynamics: Terms of the equation of motion at the present state.
        A_WE_desired: (6,), desired spatial acceleration, rad/s^2 and m/s^2.
        vdot_posture: (n,), desired joint acceleration in the null space, rad/s^2.
        effort_limit: (n,), torque limits, N m.
    """
    M, J = dynamics.M, dynamics.J
    # Jbar^T M vdot = Lambda J vdot: the posture's effect on the end effector is subtracted
    # together with the drift Jdot v.
    A_missing = A_WE_desired - dynamics.Jdot_v - J @ vdot_posture  # (6,)
    F = _solve(J @ _solve(M, J.T), A_missing)  # (6,), Lambda A
    tau = J.T @ F + M @ vdot_posture + dynamics.bias
    return np.minimum(np.maximum(tau, -effort_limit), effort_limit)


def _solve(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Solves A x = b for a symmetric positive definite A, three times faster than numpy's solve."""
    _, x, failed = dposv(A, b)
    if failed:
        raise np.linalg.LinAlgError("The matrix is not positive definite; is the pose singular?")
    return x


def critically_damped(
    error: np.ndarray, error_rate: np.ndarray, frequency: np.ndarray | float
) -> np.ndarray:
    """Returns the acceleration w^2 e + 2 w edot, which drives an error to zero without overshoot.

    Args:
        error: Desired minus actual.
        error_rate: Its derivative.
        frequency: Natural frequency w, rad/s.
    """
    return frequency * (frequency * error + 2 * error_rate)


def orientation_error(R_WD: np.ndarray, R_WE: np.ndarray) -> np.ndarray:
    """Returns the axis times the sine of the angle of the rotation from E to D, in W, (3,).

    Luh, Walker and Paul, "Resolved-acceleration control of mechanical manipulators", IEEE
    Transactions on Automatic Control, 1980. It grows with the angle up to a right angle, six times
    the largest rotation of an action.
    """
    R = R_WD @ R_WE.T
    return 0.5 * np.array([R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]])


def external_wrench(J: np.ndarray, tau_external: np.ndarray) -> np.ndarray:
    """Returns the end-effector wrench that explains external joint torques, (6,), N m and N.

    The least-squares solution of J^T F = tau, as arms with joint torque sensors estimate it. It is
    exact as long as the robot is touched at the end effector or the tool only.

    Args:
        J: (6, n), Jacobian expressed in the frame of the wrench.
        tau_external: (n,), torques of the surroundings on the joints, N m.
    """
    return np.linalg.lstsq(J.T, tau_external, rcond=None)[0]
