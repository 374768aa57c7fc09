"""The equation of motion of an arm of revolute joints.

R. Featherstone, "Rigid Body Dynamics Algorithms", Springer, 2008: the recursive Newton-Euler and
the composite-rigid-body algorithms (chapters 5 and 6), in world coordinates. Spatial vectors are
stacked rotation first; velocities and moments are those at the world's origin O.
"""

from typing import NamedTuple

import numpy as np

from fleet_tools.utils.straight_line import straight_line
from fleet_tools.utils.symbols import cosine, sine, zeros

Vector = tuple[float, float, float]
Columns = tuple[Vector, Vector, Vector]
"""A matrix by its columns."""


class SerialArm(NamedTuple):
    """n links in a row on a fixed base; link i turns about the z axis of its own frame.

    Attributes:
        R: (n, 3, 3), orientation of each link's frame in the link before it, where its q is 0.
        p: (n, 3), position of the frame there, m.
        mass: (n,), kg.
        com: (n, 3), centre of mass in the link's frame, m.
        inertia: (n, 3, 3), rotational inertia about the centre of mass, in the frame, kg m^2.
        rotor_inertia: (n,), of the motors, reflected to the joints, kg m^2.
        R_LE: (3, 3), orientation of the end effector in the last link.
        p_LE: (3,), its position there, m.
        gravity: Acceleration along the world's -z, m/s^2.
    """

    R: np.ndarray
    p: np.ndarray
    mass: np.ndarray
    com: np.ndarray
    inertia: np.ndarray
    rotor_inertia: np.ndarray
    R_LE: np.ndarray
    p_LE: np.ndarray
    gravity: float


@straight_line
def equation_of_motion(
    arm: SerialArm, q: np.ndarray, v: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns the terms of `fleet_tools.robot.osc.Dynamics`, and X_WE.

    Args:
        arm: The arm.
        q: (n,), joint positions, rad.
        v: (n,), joint velocities, rad/s.

    Returns:
        M (n, n), bias (n,), J (6, n), Jdot_v (6,), and X_WE (3, 4): rotation matrix, position.
    """
    n = q.size
    S, F = zeros(n, 6), zeros(n, 6)  # joint axes; forces that the links' motion needs
    mass, h, I_O = arm.mass.copy(), zeros(n, 3), zeros(n, 3, 3)
    R, p = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)), (0.0, 0.0, 0.0)
    w, u = (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)  # velocity of the present link
    alpha, a = (0.0, 0.0, 0.0), (0.0, 0.0, arm.gravity)  # its acceleration, less gravity
    for i in range(n):
        p = _sum(p, _times(R, _row(arm.p, i)))
        x, y, z = _product(R, arm.R[i])
        c, s = cosine(q[i]), sine(q[i])
        R = (_sum(_scaled(c, x), _scaled(s, y)), _sum(_scaled(c, y), _scaled(-s, x)), z)
        z_O = _cross(p, z)
        _set(S, i, z, z_O)
        w, u = _sum(w, _scaled(v[i], z)), _sum(u, _scaled(v[i], z_O))
        alpha = _sum(alpha, _scaled(v[i], _cross(w, z)))
        a = _sum(a, _scaled(v[i], _sum(_cross(u, z), _cross(w, z_O))))
        r = _sum(p, _times(R, _row(arm.com, i)))
        _set_inertia(h, I_O, i, mass[i], r, R, _product(R, arm.inertia[i]))
        moment, force = _momentum(mass, h, I_O, i, alpha, a)
        angular, linear = _momentum(mass, h, I_O, i, w, u)
        moment = _sum(moment, _sum(_cross(w, angular), _cross(u, linear)))
        _set(F, i, moment, _sum(force, _cross(w, linear)))
    M, bias = zeros(n, n), zeros(n)
    for i in range(n - 1, -1, -1):
        if i < n - 1:  # the links from here on, as one body
            mass[i] += mass[i + 1]
            for k in range(6):
                F[i, k] += F[i + 1, k]
            for k in range(3):
                h[i, k] += h[i + 1, k]
                for m in range(3):
                    I_O[i, k, m] += I_O[i + 1, k, m]
        moment, force = _momentum(mass, h, I_O, i, _row(S, i), (S[i, 3], S[i, 4], S[i, 5]))
        for j in range(i + 1):
            for k in range(3):
                M[i, j] += S[j, k] * moment[k] + S[j, 3 + k] * force[k]
            M[j, i] = M[i, j]
        M[i, i] += arm.rotor_inertia[i]
        for k in range(6):
            bias[i] += S[i, k] * F[i, k]
    p_E = _sum(p, _times(R, (arm.p_LE[0], arm.p_LE[1], arm.p_LE[2])))
    R_E = _product(R, arm.R_LE)
    J, Jdot_v, X_WE = zeros(6, n), zeros(6), zeros(3, 4)
    a = _sum(_sum(a, _cross(alpha, p_E)), _cross(w, _sum(u, _cross(w, p_E))))
    for k in range(3):
        for i in range(3):
            X_WE[k, i] = R_E[i][k]
        X_WE[k, 3] = p_E[k]
        Jdot_v[k], Jdot_v[3 + k] = alpha[k], a[k]
    Jdot_v[5] -= arm.gravity
    for i in range(n):
        z = _row(S, i)
        at_E = _sum((S[i, 3], S[i, 4], S[i, 5]), _cross(z, p_E))
        for k in range(3):
            J[k, i], J[3 + k, i] = z[k], at_E[k]
    return M, bias, J, Jdot_v, X_WE


def _set_inertia(
    h: np.ndarray,
    I_O: np.ndarray,
    i: int,
    mass: float,
    r: Vector,
    R: Columns,
    turned: Columns,
) -> None:
    """Sets a link's first moment and inertia about O.

    Args:
        h: (n, 3), first moments, kg m.
        I_O: (n, 3, 3), inertias, kg m^2.
        i: Index of the link.
        mass: Its mass, kg.
        r: Its centre of mass, m.
        R: Its orientation.
        turned: R times its inertia about the centre of mass.
    """
    for k in range(3):
        h[i, k] = mass * r[k]
        for m in range(3):
            entry = -mass * r[k] * r[m]
            for j in range(3):
                entry += turned[j][k] * R[j][m]
            I_O[i, k, m] = entry
        I_O[i, k, k] += mass * (r[0] * r[0] + r[1] * r[1] + r[2] * r[2])


def _momentum(
    mass: np.ndarray, h: np.ndarray, I_O: np.ndarray, i: int, w: Vector, u: Vector
) -> tuple[Vector, Vector]:
    """Returns a link's inertia times a motion: the angular part about O, and the linear part."""
    h_i = _row(h, i)
    I_w = (
        I_O[i, 0, 0] * w[0] + I_O[i, 0, 1] * w[1] + I_O[i, 0, 2] * w[2],
        I_O[i, 1, 0] * w[0] + I_O[i, 1, 1] * w[1] + I_O[i, 1, 2] * w[2],
        I_O[i, 2, 0] * w[0] + I_O[i, 2, 1] * w[1] + I_O[i, 2, 2] * w[2],
    )
    return _sum(I_w, _cross(h_i, u)), _sum(_scaled(mass[i], u), _cross(w, h_i))


def _set(rows: np.ndarray, i: int, first: Vector, second: Vector) -> None:
    for k in range(3):
        rows[i, k], rows[i, 3 + k] = first[k], second[k]


def _row(rows: np.ndarray, i: int) -> Vector:
    return rows[i, 0], rows[i, 1], rows[i, 2]


def _product(R: Columns, A: np.ndarray) -> Columns:
    """Returns R A."""
    return (
        _times(R, (A[0, 0], A[1, 0], A[2, 0])),
        _times(R, (A[0, 1], A[1, 1], A[2, 1])),
        _times(R, (A[0, 2], A[1, 2], A[2, 2])),
    )


def _times(R: Columns, x: Vector) -> Vector:
    """Returns R x."""
    return _sum(_sum(_scaled(x[0], R[0]), _scaled(x[1], R[1])), _scaled(x[2], R[2]))


def _sum(x: Vector, y: Vector) -> Vector:
    return x[0] + y[0], x[1] + y[1], x[2] + y[2]


def _scaled(s: float, x: Vector) -> Vector:
    return s * x[0], s * x[1], s * x[2]


def _cross(x: Vector, y: Vector) -> Vector:
    return x[1] * y[2] - x[2] * y[1], x[2] * y[0] - x[0] * y[2], x[0] * y[1] - x[1] * y[0]
