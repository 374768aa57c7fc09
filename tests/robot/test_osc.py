"""The law of operational-space control, on the arm and on random dynamics."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydrake.math import RotationMatrix
from pydrake.multibody.tree import SpatialInertia, UnitInertia

from fleet_tools.robot.arm_model import ArmModel
from fleet_tools.robot.osc import (
    Dynamics,
    critically_damped,
    external_wrench,
    operational_space_torque,
    task_inertia,
)
from fleet_tools.robot.panda import END_EFFECTOR
from fleet_tools.robot.pose_delta import rotation_vector

ARM = ArmModel()
LOWER, UPPER = ARM.plant.GetPositionLowerLimits(), ARM.plant.GetPositionUpperLimits()
NO_LIMIT = np.full(7, np.inf)

seeds = st.integers(0, 2**32 - 1)
sources = st.sampled_from(["panda", "panda with a tool", "synthetic"])


def random_configuration(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Returns positions and velocities of the arm that are not near a singularity."""
    while True:
        q, v = rng.uniform(LOWER, UPPER), rng.uniform(-1.5, 1.5, 7)
        ARM.set_state(np.r_[q, v])
        if np.linalg.cond(ARM.jacobian()) < 50:
            return q, v


def random_payload(rng: np.random.Generator) -> SpatialInertia:
    """Returns the spatial inertia, about E, of a body with the central inertia of a solid box."""
    box = UnitInertia.SolidBox(*rng.uniform(0.02, 0.4, 3))
    R = RotationMatrix.MakeXRotation(rng.uniform(-3, 3))
    inertia = SpatialInertia.MakeFromCentralInertia(
        rng.uniform(0.1, 2.0), rng.uniform(-0.2, 0.2, 3), (rng.uniform(0.1, 2.0) * box)
    )
    return inertia.ReExpress(R)


def random_dynamics(source: str, rng: np.random.Generator) -> Dynamics:
    if source == "synthetic":
        square = rng.normal(size=(7, 7))
        J = np.linalg.qr(rng.normal(size=(7, 6)))[0].T * rng.uniform(0.3, 2.0, 6)[:, None]
        return Dynamics(
            M=square @ square.T / 7 + 0.1 * np.eye(7),
            bias=rng.normal(size=7),
            J=J,
            Jdot_v=rng.normal(size=6),
        )
    ARM.set_payload(random_payload(rng) if "tool" in source else SpatialInertia.Zero())
    random_configuration(rng)
    return ARM.dynamics()


def forward(dynamics: Dynamics, tau: np.ndarray) -> np.ndarray:
    """Returns the joint acceleration that the equation of motion gives."""
    return np.linalg.solve(dynamics.M, tau - dynamics.bias)


@given(sources, seeds)
def test_the_end_effector_has_the_desired_acceleration(source, seed):
    rng = np.random.default_rng(seed)
    dynamics = random_dynamics(source, rng)
    A, vdot_posture = rng.normal(size=6), rng.normal(size=7)
    vdot = forward(dynamics, operational_space_torque(dynamics, A, vdot_posture, NO_LIMIT))
    np.testing.assert_allclose(dynamics.J @ vdot + dynamics.Jdot_v, A, atol=1e-7)


@given(sources, seeds)
def test_the_posture_accelerates_nothing_at_the_end_effector(source, seed):
    rng = np.random.default_rng(seed)
    dynamics = random_dynamics(source, rng)
    A = rng.normal(size=6)
    without, with_posture = (
        operational_space_torque(dynamics, A, vdot, NO_LIMIT)
        for vdot in (np.zeros(7), rng.normal(size=7))
    )
    posture = np.linalg.solve(dynamics.M, with_posture - without)
    np.testing.assert_allclose(dynamics.J @ posture, 0.0, atol=1e-7)


@given(sources, seeds)
def test_in_the_null_space_the_arm_has_the_acceleration_of_its_posture(source, seed):
    # Gauss: of all accelerations that move the end effector as desired, the nearest in M.
    rng = np.random.default_rng(seed)
    dynamics = random_dynamics(source, rng)
    desired = rng.normal(size=7)
    vdot = forward(dynamics, operational_space_torque(dynamics, np.zeros(6), desired, NO_LIMIT))
    null = np.linalg.svd(dynamics.J)[2][6]  # J null = 0
    assert abs(null @ dynamics.M @ (vdot - desired)) < 1e-7


@given(sources, seeds, st.floats(0.0, 90.0))
def test_torques_stay_within_their_limits_and_are_untouched_inside(source, seed, limit):
    rng = np.random.default_rng(seed)
    dynamics = random_dynamics(source, rng)
    A = 30.0 * rng.normal(size=6)
    free = operational_space_torque(dynamics, A, np.zeros(7), NO_LIMIT)
    tau = operational_space_torque(dynamics, A, np.zeros(7), np.full(7, limit))
    assert (np.abs(tau) <= limit).all()
    inside = np.abs(free) <= limit
    np.testing.assert_array_equal(tau[inside], free[inside])
    np.testing.assert_array_equal(np.sign(tau[~inside]), np.sign(free[~inside]) * (limit > 0))


@given(sources, seeds)
def test_the_task_inertia_is_symmetric_positive_definite(source, seed):
    dynamics = random_dynamics(source, np.random.default_rng(seed))
    Lambda = task_inertia(dynamics.M, dynamics.J)
    np.testing.assert_allclose(Lambda, Lambda.T, atol=1e-8 * np.abs(Lambda).max())
    assert np.linalg.eigvalsh((Lambda + Lambda.T) / 2).min() > 0.0


@given(sources, seeds)
def test_the_task_inertia_inverts_the_mobility(source, seed):
    dynamics = random_dynamics(source, np.random.default_rng(seed))
    mobility = dynamics.J @ np.linalg.inv(dynamics.M) @ dynamics.J.T
    Lambda = task_inertia(dynamics.M, dynamics.J)
    np.testing.assert_allclose(mobility @ Lambda, np.eye(6), atol=1e-7)


@given(sources, seeds)
def test_a_wrench_at_the_end_effector_is_recovered(source, seed):
    rng = np.random.default_rng(seed)
    J = random_dynamics(source, rng).J
    F = 50.0 * rng.normal(size=6)
    np.testing.assert_allclose(external_wrench(J, J.T @ F), F, atol=1e-8)


@given(seeds, st.booleans())
def test_at_rest_the_torque_is_the_slope_of_the_potential_energy(seed, loaded):
    rng = np.random.default_rng(seed)
    ARM.set_payload(random_payload(rng) if loaded else SpatialInertia.Zero())
    q, _ = random_configuration(rng)
    ARM.set_state(np.r_[q, np.zeros(7)])
    tau = operational_space_torque(ARM.dynamics(), np.zeros(6), np.zeros(7), NO_LIMIT)

    def energy(q):
        ARM.set_state(np.r_[q, np.zeros(7)])
        return ARM.plant.CalcPotentialEnergy(ARM.context)

    np.testing.assert_allclose(tau, slope(energy, q), atol=1e-6)


def slope(
    f: Callable[[np.ndarray], np.ndarray | float], q: np.ndarray, h: float = 1e-5
) -> np.ndarray:
    """Returns central differences of f along every joint, (..., 7)."""
    steps = h * np.eye(7)
    return np.stack([(f(q + dq) - f(q - dq)) / (2 * h) for dq in steps], axis=-1)


@given(seeds)
def test_the_jacobian_is_the_slope_of_forward_kinematics(seed):
    q, v = random_configuration(np.random.default_rng(seed))
    J = ARM.jacobian()
    V_WE = ARM.plant.GetFrameByName(END_EFFECTOR).CalcSpatialVelocityInWorld(ARM.context)
    V_WE = V_WE.get_coeffs().copy()
    R_WE = ARM.pose().rotation()

    def pose_from_here(q):
        ARM.set_state(np.r_[q, np.zeros(7)])
        X_WE = ARM.pose()
        turned = rotation_vector(X_WE.rotation() @ R_WE.inverse())
        return np.concatenate([turned, X_WE.translation()])

    np.testing.assert_allclose(slope(pose_from_here, q), J, atol=1e-8)
    np.testing.assert_allclose(V_WE, J @ v, atol=1e-12)


@given(seeds)
def test_the_bias_acceleration_is_the_slope_of_the_jacobian_along_the_motion(seed):
    q, v = random_configuration(np.random.default_rng(seed))
    Jdot_v = ARM.dynamics().Jdot_v

    def velocity_at(time):
        ARM.set_state(np.r_[q + time * v, v])
        return ARM.jacobian() @ v

    h = 1e-5
    tolerance = 1e-7 * float(1 + v @ v)
    np.testing.assert_allclose((velocity_at(h) - velocity_at(-h)) / (2 * h), Jdot_v, atol=tolerance)


@given(seeds)
def test_a_payload_adds_its_own_inertia(seed):
    rng = np.random.default_rng(seed)
    M_E = random_payload(rng)
    random_configuration(rng)
    ARM.set_payload(SpatialInertia.Zero())
    empty = ARM.dynamics()
    ARM.set_payload(M_E)
    loaded = ARM.dynamics()
    M_W = M_E.ReExpress(ARM.pose().rotation()).CopyToFullMatrix6()
    expected = empty.M + empty.J.T @ M_W @ empty.J
    np.testing.assert_allclose(loaded.M, expected, atol=1e-10)


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


@given(st.floats(1e-3, 1.0), frequencies)
def test_errors_from_rest_decrease_and_never_overshoot(error, frequency):
    times = np.linspace(0.0, 10.0 / frequency, 200)
    e = critical(error, 0.0, frequency, times)[0]
    assert (e > 0).all() and (np.diff(e) < 0).all()


@given(st.floats(1e-2, 1.0), frequencies)
@settings(max_examples=20)
def test_the_law_itself_never_overshoots(error, frequency):
    dt = 1e-3 / frequency
    e, e_dot = np.array(error), np.array(0.0)
    for _ in range(8000):
        e_dot = e_dot - dt * critically_damped(e, e_dot, frequency)
        e = e + dt * e_dot
        assert e > 0.0
    assert e < 0.02 * error


def test_frequencies_may_differ_along_the_axes():
    acceleration = critically_damped(np.ones(6), np.zeros(6), np.array([1, 2, 3, 4, 5, 6.0]))
    np.testing.assert_array_equal(acceleration, [1, 4, 9, 16, 25, 36])


@pytest.mark.parametrize("joint", range(7))
def test_the_limits_are_the_pandas(joint):
    assert ARM.effort_limit[joint] == (87.0 if joint < 4 else 12.0)
