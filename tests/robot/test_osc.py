"""The law of operational-space control, on the arm and on random dynamics."""

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from pydrake.math import RotationMatrix
from pydrake.multibody.tree import SpatialInertia, UnitInertia

from fleet_tools.robot.arm_model import ArmModel
from fleet_tools.robot.osc import (
    Dynamics,
    Gains,
    critically_damped,
    external_wrench,
    operational_space_acceleration,
    orientation_error,
    tracking_acceleration,
)
from fleet_tools.robot.panda import END_EFFECTOR
from fleet_tools.robot.pose_delta import displace, rotation_vector

ARM = ArmModel()
LOWER, UPPER = ARM.plant.GetPositionLowerLimits(), ARM.plant.GetPositionUpperLimits()

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
            # In Drake's order of entries, for which the functions are compiled.
            M=np.asfortranarray(square @ square.T / 7 + 0.1 * np.eye(7)),
            bias=rng.normal(size=7),
            J=np.asfortranarray(J),
            Jdot_v=rng.normal(size=6),
        )
    ARM.set_payload(random_payload(rng) if "tool" in source else SpatialInertia.Zero())
    random_configuration(rng)
    return ARM.dynamics()


@given(sources, seeds)
def test_the_end_effector_has_the_desired_acceleration(source, seed):
    rng = np.random.default_rng(seed)
    M, J = matrices(source, rng)
    A, vdot_posture = rng.normal(size=6), rng.normal(size=7)
    vdot = operational_space_acceleration(M, J, A, vdot_posture)
    np.testing.assert_allclose(J @ vdot, A, atol=1e-7)


def matrices(source: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Returns M and J of random dynamics."""
    dynamics = random_dynamics(source, rng)
    return dynamics.M, dynamics.J


@given(sources, seeds)
def test_the_posture_accelerates_nothing_at_the_end_effector(source, seed):
    rng = np.random.default_rng(seed)
    M, J = matrices(source, rng)
    A = rng.normal(size=6)
    without, with_posture = (
        operational_space_acceleration(M, J, A, vdot) for vdot in (np.zeros(7), rng.normal(size=7))
    )
    np.testing.assert_allclose(J @ (with_posture - without), 0.0, atol=1e-7)


@given(sources, seeds)
def test_of_all_accelerations_it_is_the_nearest_to_the_posture_in_the_mass_matrix(source, seed):
    # Gauss's principle: the difference is M-orthogonal to the motions that leave E at rest.
    rng = np.random.default_rng(seed)
    M, J = matrices(source, rng)
    A, desired = rng.normal(size=6), rng.normal(size=7)
    vdot = operational_space_acceleration(M, J, A, desired)
    null = np.linalg.svd(J)[2][6]  # J null = 0
    assert abs(null @ M @ (vdot - desired)) < 1e-7


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
    singular = J.copy(order="F")
    singular[5] = 0.0
    A = rng.normal(size=6)
    vdot = operational_space_acceleration(M, singular, A, np.zeros(7))
    np.testing.assert_allclose(singular[:5] @ vdot, A[:5], atol=1e-7)


@given(seeds)
def test_on_its_reference_the_arm_only_makes_up_for_its_drift(seed):
    rng = np.random.default_rng(seed)
    ARM.set_payload(SpatialInertia.Zero())
    q, v = random_configuration(rng)
    dynamics, X_WE = ARM.dynamics(), ARM.pose().GetAsMatrix34()
    V_WE = dynamics.J @ v
    gains = Gains(rotation=40.0, translation=30.0, posture=5.0)
    vdot = tracking_acceleration(dynamics, gains, q, v, X_WE, X_WE[:, 3], X_WE[:, :3], V_WE, q)
    np.testing.assert_allclose(dynamics.J @ vdot + dynamics.Jdot_v, 0.0, atol=1e-6)


@given(seeds)
def test_errors_of_the_end_effector_are_critically_damped(seed):
    rng = np.random.default_rng(seed)
    q, v = random_configuration(rng)
    dynamics, X_WE = ARM.dynamics(), ARM.pose()
    X_WD = displace(X_WE, 0.1 * rng.normal(size=6))
    V_WD = rng.normal(size=6)
    gains = Gains(rotation=40.0, translation=30.0, posture=5.0)
    R_WD, p_WD = X_WD.rotation().matrix(), X_WD.translation()
    vdot = tracking_acceleration(
        dynamics, gains, q, v, X_WE.GetAsMatrix34(), p_WD, R_WD, V_WD, rng.normal(size=7)
    )
    turn = orientation_error(R_WD, X_WE.rotation().matrix())
    error = np.concatenate([turn, p_WD - X_WE.translation()])
    expected = critically_damped(error, V_WD - dynamics.J @ v, np.repeat([40.0, 30.0], 3))
    np.testing.assert_allclose(dynamics.J @ vdot + dynamics.Jdot_v, expected, atol=1e-6)


@given(sources, seeds)
def test_a_wrench_at_the_end_effector_is_recovered(source, seed):
    rng = np.random.default_rng(seed)
    J = random_dynamics(source, rng).J
    F = 50.0 * rng.normal(size=6)
    np.testing.assert_allclose(external_wrench(J, J.T @ F), F, atol=1e-8)


@given(seeds, st.booleans())
def test_at_rest_the_bias_is_the_slope_of_the_potential_energy(seed, loaded):
    rng = np.random.default_rng(seed)
    ARM.set_payload(random_payload(rng) if loaded else SpatialInertia.Zero())
    q, _ = random_configuration(rng)
    ARM.set_state(np.r_[q, np.zeros(7)])
    tau = ARM.dynamics().bias

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
        e_dot = e_dot - dt * float(critically_damped(e, e_dot, frequency))
        e = e + dt * e_dot
        assert e > 0.0
    assert e < 0.02 * error


def test_frequencies_may_differ_along_the_axes():
    acceleration = critically_damped(np.ones(6), np.zeros(6), np.array([1, 2, 3, 4, 5, 6.0]))
    np.testing.assert_array_equal(acceleration, [1, 4, 9, 16, 25, 36])
