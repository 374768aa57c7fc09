"""The step of free bodies: its equation, its energy, and Euler's equations in the limit."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from fleet_tools.sim.free_rotation import (
    Bodies,
    conserving_forces,
    conserving_velocity,
    rotated,
)

H = 0.004
AXES = st.tuples(*[st.floats(-1, 1)] * 3).filter(lambda v: 0.1 < np.linalg.norm(v) < 1)
SPEEDS = st.floats(1e-6, 2000)
SEEDS = st.integers(0, 2**32 - 1)


def drawn_rotation(seed: int) -> Rotation:
    return Rotation.from_quat(np.random.default_rng(seed).normal(size=4))


def norm(v: np.ndarray) -> float:
    return float(np.linalg.norm(v))


def assert_close(value: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    np.testing.assert_allclose(value, expected, rtol=0, atol=tolerance)


@st.composite
def inertias(draw: st.DrawFn) -> np.ndarray:
    """The inertia of a box, (3, 3): from needles and plates to a cube, in any orientation."""
    a, b, c = (10 ** draw(st.floats(-2, 0)) for _ in range(3))
    R = drawn_rotation(draw(SEEDS)).as_matrix()
    return R @ np.diag([b**2 + c**2, a**2 + c**2, a**2 + b**2]) @ R.T


def velocity_after(G: np.ndarray, w: np.ndarray, h: float = H) -> np.ndarray:
    return np.array(conserving_velocity(as_tuples(G), tuple(w.tolist()), h))


def as_tuples(G: np.ndarray) -> tuple:
    return tuple(map(tuple, G.tolist()))


def turn_of_a_step(w: np.ndarray) -> Rotation:
    """The rotation from q to (1 + h/2 [0, w]) q."""
    return Rotation.from_quat(np.r_[H / 2 * w, 1.0])


def of_speed(axis: Sequence[float], speed: float) -> np.ndarray:
    return speed * np.array(axis) / np.linalg.norm(axis)


@given(inertias(), AXES, SPEEDS)
def test_the_angular_momentum_is_conserved_and_energy_does_not_grow(G, axis, speed):
    w = of_speed(axis, speed)
    w1 = velocity_after(G, w)
    R = turn_of_a_step(w1).as_matrix()
    L = G @ w
    assert_close(R @ G @ R.T @ w1, L, 1e-9 * norm(L))
    assert w1 @ R @ G @ R.T @ w1 <= w @ G @ w * (1 + 1e-9)


@given(inertias(), AXES, SPEEDS, SEEDS)
def test_the_step_is_the_same_in_every_frame(G, axis, speed, seed):
    w = of_speed(axis, speed)
    R = drawn_rotation(seed).as_matrix()
    turned = velocity_after(R @ G @ R.T, R @ w)
    assert_close(turned, R @ velocity_after(G, w), 1e-7 * speed)


@given(inertias(), AXES)
def test_small_steps_follow_eulers_equations(G, axis):
    w, h = of_speed(axis, 10.0), 1e-7
    alpha = (velocity_after(G, w, h) - w) / h
    expected = -np.linalg.solve(G, np.cross(w, G @ w))
    assert_close(alpha, expected, 1e-3 * norm(w) ** 2)


@given(inertias(), st.integers(0, 2), st.floats(-2000, 2000))
def test_a_spin_about_a_principal_axis_goes_on(G, k, speed):
    _, axes = np.linalg.eigh(G)
    w = speed * axes[:, k]
    assert_close(velocity_after(G, w), w, 1e-9 * abs(speed))


def test_a_body_at_rest_stays_at_rest():
    assert not velocity_after(np.diag([1.0, 2.0, 3.0]), np.zeros(3)).any()


@pytest.mark.parametrize("G", [np.zeros((3, 3)), np.full((3, 3), np.nan)], ids=["zero", "nan"])
def test_without_a_solution_the_velocity_stays(G):
    w = np.array([1.0, 2.0, 3.0])
    assert velocity_after(G, w).tolist() == w.tolist()


@given(AXES, AXES, SPEEDS)
def test_points_turn_with_the_body(p, axis, speed):
    w = of_speed(axis, speed)
    turned = np.array(rotated(tuple(p), tuple(w.tolist()), H))
    assert_close(turned, turn_of_a_step(w).apply(p), 1e-12)


@given(inertias(), AXES, AXES, SPEEDS, SEEDS, st.floats(1e-3, 1e3))
def test_a_step_with_the_forces_conserves_both_momenta(G, c, axis, speed, seed, length):
    """Drake's step, M (v1 - v) / h + bias = forces, written out in the world frame."""
    m, w, v = 0.3, of_speed(axis, speed), np.array([0.1, -0.2, 0.3])
    rotation = drawn_rotation(seed)
    R, q = rotation.as_matrix(), length * rotation.as_quat()[[3, 0, 1, 2]]
    inertia = np.r_[m, 0.1 * np.array(c), G.ravel()][None]
    x = np.r_[9.0, q, [1.0, 2.0, 3.0], 8.0, w, v]  # a joint's q and v before the body's
    tau = conserving_forces(x, inertia, (Bodies((1,), (1,), 7, H),))
    assert tau[0] == 0.0
    I_W, c_W = m * R @ G @ R.T, R @ (0.1 * np.array(c))
    force = tau[4:]
    moment_cm = tau[1:4] - np.cross(c_W, force)
    w1 = w + H * np.linalg.solve(I_W, moment_cm - np.cross(w, I_W @ w))
    v_cm1_at_start = v + np.cross(w, c_W) - H * np.cross(w, np.cross(w, c_W)) + H * force / m
    v1 = v_cm1_at_start - np.cross(w1, c_W)
    turn = turn_of_a_step(w1)
    L = I_W @ w
    R1 = turn.as_matrix()
    scale = max(1.0, H * speed) ** 2
    assert_close(R1 @ I_W @ R1.T @ w1, L, 1e-7 * scale * norm(L))
    v_cm = v + np.cross(w, c_W)
    assert_close(v1 + np.cross(w1, turn.apply(c_W)), v_cm, 1e-9 * scale * (1 + speed))
