"""The law of operational-space control, on the arm and on random dynamics."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from pydrake.math import RigidTransform, RotationMatrix
from pydrake.multibody.tree import SpatialInertia
from support.arms import ARM, random_configuration, random_payload

from fleet_tools.robot.osc import (
    Dynamics,
    Gains,
    Path,
    critically_damped,
    external_wrench,
    operational_space_acceleration,
    orientation_error,
    tracking_acceleration,
)
from fleet_tools.robot.pose_delta import displace

seeds = st.integers(0, 2**32 - 1)
sources = st.sampled_from(["panda", "panda with a tool", "synthetic"])


def random_dynamics(source: str, rng: np.random.Generator) -> Dynamics:
    if source == "synthetic":
        square = rng.normal(size=(7, 7))
        J = np.linalg.qr(rng.normal(size=(7, 6)))[0].T * rng.uniform(0.3, 2.0, 6)[:, None]
        return Dynamics(
            M=square @ square.T / 7 + 0.1 * np.eye(7),
            bias=rng.normal(size=7),
            J=np.ascontiguousarray(J),
            Jdot_v=rng.normal(size=6),
        )
    ARM.set_payload(random_payload(rng) if "tool" in source else SpatialInertia.Zero())
    return ARM.dynamics(*random_configuration(rng))[0]


def matrices(source: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Returns M and J of random dynamics."""
    dynamics = random_dynamics(source, rng)
    return dynamics.M, dynamics.J


@given(sources, seeds)
def test_its_torques_are_those_of_khatib(source, seed):
    rng = np.random.default_rng(seed)
    M, J = matrices(source, rng)
    A, posture = rng.normal(size=6), rng.normal(size=7)
    Lambda = np.linalg.inv(J @ np.linalg.inv(M) @ J.T)
    projector = np.eye(7) - J.T @ Lambda @ J @ np.linalg.inv(M)
    expected = J.T @ Lambda @ A + projector @ M @ posture
    tau = M @ operational_space_acceleration(M, J, A, posture)
    np.testing.assert_allclose(tau, expected, atol=1e-6)


@given(seeds)
def test_where_a_direction_is_lost_the_others_are_not(seed):
    rng = np.random.default_rng(seed)
    M, J = matrices("synthetic", rng)
    singular = J.copy()
    singular[5] = 0.0
    A = rng.normal(size=6)
    vdot = operational_space_acceleration(M, singular, A, np.zeros(7))
    np.testing.assert_allclose(singular[:5] @ vdot, A[:5], atol=1e-7)


def still(X_WD: np.ndarray) -> Path:
    """Returns the path that stays at a pose."""
    R = np.ascontiguousarray(X_WD[:, :3])
    return Path(X_WD[:, 3].copy(), np.zeros(3), R, np.zeros((3, 3)), np.zeros((3, 3)), 0.0)


@given(seeds)
def test_errors_of_the_end_effector_are_critically_damped(seed):
    rng = np.random.default_rng(seed)
    q, v = random_configuration(rng)
    dynamics, X_WE = ARM.dynamics(q, v)
    X_WD = displace(
        RigidTransform(RotationMatrix(X_WE[:, :3]), X_WE[:, 3]), 0.1 * rng.normal(size=6)
    )
    V_WD = rng.normal(size=6)
    gains = Gains(rotation=40.0, translation=30.0, posture=5.0)
    R_WD, p_WD = X_WD.rotation().matrix(), X_WD.translation()
    vdot = tracking_acceleration(
        dynamics, gains, q, v, X_WE, still(X_WD.GetAsMatrix34()), 0.5, V_WD, rng.normal(size=7)
    )
    turn = orientation_error(R_WD, X_WE[:, :3])
    error = np.concatenate([turn, p_WD - X_WE[:, 3]])
    expected = critically_damped(error, V_WD - dynamics.J @ v, np.repeat([40.0, 30.0], 3))
    np.testing.assert_allclose(dynamics.J @ vdot + dynamics.Jdot_v, expected, atol=1e-6)


@given(sources, seeds)
def test_a_wrench_at_the_end_effector_is_recovered(source, seed):
    rng = np.random.default_rng(seed)
    J = random_dynamics(source, rng).J
    F = 50.0 * rng.normal(size=6)
    np.testing.assert_allclose(external_wrench(J, J.T @ F), F, atol=1e-8)


errors, rates, frequencies = st.floats(-1, 1), st.floats(-5, 5), st.floats(1.0, 60.0)


def critical(error: Any, rate: Any, frequency: float, time: Any) -> tuple[Any, Any, Any]:
    """Returns the closed-form solution of e'' + 2 w e' + w^2 e = 0: e, e' and e''."""
    w, slope = frequency, rate + frequency * error
    decay = np.exp(-w * time)
    e = (error + slope * time) * decay
    e_dot = (slope - w * (error + slope * time)) * decay
    e_ddot = (w**2 * (error + slope * time) - 2 * w * slope) * decay
    return e, e_dot, e_ddot


@given(errors, rates, frequencies, st.floats(0.0, 1.0))
def test_errors_follow_the_critically_damped_solution(error, rate, frequency, time):
    e, e_dot, e_ddot = critical(error, rate, frequency, time)
    # The error is desired minus actual, and the desired does not accelerate.
    actual = critically_damped(np.array([e]), np.array([e_dot]), frequency)
    np.testing.assert_allclose(-e_ddot, actual, atol=1e-9 * (1 + frequency**2 + frequency * 5))
