"""The cost computed in several ways, and the optimality of the Riccati solution."""

import numpy as np
import pytest
import scipy.linalg
from hypothesis import assume, given, settings
from support.linear_cases import (
    noisy,
    random_controller,
    random_system,
    random_transform,
    seeds,
)

from fleet_tools.baselines.linear_control.lqg import (
    closed_loop,
    cost,
    kalman,
    lqr,
    lyapunov,
    optimal_controller,
    optimal_cost,
    simulate,
    spectral_radius,
)
from fleet_tools.baselines.linear_control.systems import (
    Controller,
    LinearControlError,
    LinearSystem,
    paper_system,
    static_controller,
)


def radius(system: LinearSystem, controller: Controller) -> float:
    """Returns the spectral radius of the closed loop."""
    return spectral_radius(closed_loop(system, controller).F)


@given(seeds)
def test_cost_does_not_depend_on_coordinates(seed):
    rng = np.random.default_rng(seed)
    system = random_system(rng)
    controller = noisy(optimal_controller(system), rng, 0.05)
    assume(radius(system, controller) < 0.999)
    T = random_transform(rng, system.n)
    expected = cost(system, controller)
    assert cost(system, controller.transformed(T)) == pytest.approx(expected, rel=1e-9)


@given(seeds)
@settings(max_examples=50)
def test_cost_is_that_of_scipys_lyapunov_equation_and_of_its_dual(seed):
    rng = np.random.default_rng(seed)
    system = random_system(rng)
    controller = noisy(optimal_controller(system), rng, 0.05)
    assume(radius(system, controller) < 0.999)
    F, G, H, D = closed_loop(system, controller)
    N = G @ scipy.linalg.block_diag(system.W, system.V) @ G.T
    M = scipy.linalg.block_diag(system.Q, np.zeros_like(controller.A)) + H.T @ system.R @ H
    direct = np.trace(system.R @ D @ system.V @ D.T)
    primal = np.trace(M @ scipy.linalg.solve_discrete_lyapunov(F, N, method="direct"))
    dual = np.trace(N @ scipy.linalg.solve_discrete_lyapunov(F.T, M, method="direct"))
    assert cost(system, controller) == pytest.approx(primal + direct, rel=1e-8)
    assert cost(system, controller) == pytest.approx(dual + direct, rel=1e-8)


@pytest.mark.parametrize("outputs", [None, 2, 50])
@pytest.mark.parametrize("disturbance", [0.0, 0.05])
def test_cost_is_the_average_of_long_episodes(outputs, disturbance):
    system = paper_system(unstable=True, outputs=outputs)
    rng = np.random.default_rng(0)
    controller = noisy(optimal_controller(system), rng, disturbance)
    rollouts = simulate(system, controller, rng, episodes=400, steps=300)
    of_states = np.einsum("eti,ij,etj->et", rollouts.x, system.Q, rollouts.x)
    costs = of_states + np.einsum("eti,ij,etj->et", rollouts.u, system.R, rollouts.u)
    averages = costs[:, 100:].mean(axis=1)
    error = averages.std() / np.sqrt(len(averages))
    expected = cost(system, controller)
    assert abs(averages.mean() - expected) < 4 * error and error < 0.03 * expected


@given(seeds)
def test_cost_is_infinite_exactly_where_the_loop_is_unstable(seed):
    rng = np.random.default_rng(seed)
    system = random_system(rng)
    controller = random_controller(rng, system.n, system.p, system.m)
    margin = radius(system, controller) - 1.0
    assume(abs(margin) > 1e-6)
    assert np.isinf(cost(system, controller)) == (margin > 0.0)


@pytest.mark.parametrize("eigenvalue", [1.0, -1.0, 1.0 - 1e-14, 1.0 + 1e-14, 2.0, 1e200])
def test_a_plant_left_alone_on_the_edge_costs_infinitely(eigenvalue):
    one = np.eye(1)
    system = LinearSystem(eigenvalue * one, one, one, one, one, one, one)
    assert cost(system, Controller(0 * one, 0 * one, 0 * one)) == np.inf


def test_an_unstable_state_that_nobody_sees_costs_infinitely():
    system = paper_system()
    K = lqr(system)[0]
    hidden = Controller(
        np.asarray(scipy.linalg.block_diag(np.zeros((4, 4)), 1.1)),
        np.vstack([np.eye(4), np.zeros(4)]),
        np.hstack([K, np.zeros((2, 1))]),
    )
    assert cost(system, hidden) == np.inf
    assert cost(system, static_controller(K)) == pytest.approx(optimal_cost(system), rel=1e-10)


@given(seeds)
def test_lyapunov_solutions_solve_and_are_semidefinite(seed):
    rng = np.random.default_rng(seed)
    F = random_controller(rng).A
    G = rng.standard_normal((len(F), 2))
    X = lyapunov(F, G @ G.T)
    assert X is not None
    scale = np.abs(X).max()
    np.testing.assert_allclose(F @ X @ F.T + G @ G.T, X, rtol=0, atol=1e-12 * scale)
    assert np.linalg.eigvalsh(X).min() > -1e-12 * scale


@given(seeds)
def test_riccati_solutions_solve_with_a_minus(seed):
    system = random_system(np.random.default_rng(seed))
    A, B, C = system.A, system.B, system.C
    K, P = lqr(system)
    inner = B.T @ P @ B + system.R
    right = A.T @ P @ A - A.T @ P @ B @ np.linalg.inv(inner) @ B.T @ P @ A + system.Q
    np.testing.assert_allclose(right, P, rtol=0, atol=1e-7 * np.abs(P).max())
    L, S = kalman(system)
    right = A @ (S - L @ C @ S) @ A.T + system.W
    np.testing.assert_allclose(right, S, rtol=0, atol=1e-7 * np.abs(S).max())
    assert spectral_radius(A + B @ K) < 1.0 and spectral_radius(A - A @ L @ C) < 1.0


@given(seeds)
def test_the_optimum_costs_what_separation_says_and_no_neighbor_costs_less(seed):
    rng = np.random.default_rng(seed)
    system = random_system(rng)
    best = optimal_controller(system)
    value = cost(system, best)
    assert value == pytest.approx(optimal_cost(system), rel=1e-8)
    for level in (1e-3, 1e-2, 1e-1):
        assert cost(system, noisy(best, rng, level)) >= value * (1.0 - 1e-10)


def test_exact_states_give_the_static_law():
    system = paper_system()
    best = optimal_controller(system)
    np.testing.assert_allclose(best.A, 0.0, atol=1e-12)
    np.testing.assert_allclose(best.B, np.eye(4), atol=1e-12)
    np.testing.assert_array_equal(best.C, lqr(system)[0])


def test_a_plant_beyond_control_is_refused():
    one, none = np.eye(1), np.zeros((1, 1))
    with pytest.raises(LinearControlError, match="not stabilizable"):
        optimal_controller(LinearSystem(2 * one, none, one, one, one, one, one))
    with pytest.raises(LinearControlError, match="the plant has 4 and 2"):
        cost(paper_system(), Controller(one, one, one))
