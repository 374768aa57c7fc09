"""Plants and controllers: the action of GL(n), costs and optima, and learning."""

import ast
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
from hypothesis import assume, given
from support.linear_cases import (
    assert_same_controller,
    assert_same_law,
    finite_differences,
    noisy,
    random_controller,
    random_system,
    random_transform,
    seeds,
)

import fleet_tools.baselines.linear_control as linear_control
from fleet_tools.baselines.linear_control.learning import (
    imitation_loss,
    learn_by_gradient,
    learn_static,
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
    A_STABLE,
    A_UNSTABLE,
    Controller,
    LinearControlError,
    LinearSystem,
    controller_from_vector,
    paper_system,
    static_controller,
)


@given(seeds)
def test_transforms_act_as_a_group(seed):
    rng = np.random.default_rng(seed)
    controller = random_controller(rng)
    n = controller.shape[0]
    S, T = random_transform(rng, n), random_transform(rng, n)
    assert_same_controller(controller.transformed(np.eye(n)), controller, 1e-14)
    twice = controller.transformed(S).transformed(T)
    assert_same_controller(twice, controller.transformed(S @ T), 1e-10)
    assert_same_controller(twice.transformed(np.linalg.inv(S @ T)), controller, 1e-10)


@given(seeds)
def test_a_transform_leaves_the_law(seed):
    rng = np.random.default_rng(seed)
    controller = random_controller(rng)
    T = random_transform(rng, controller.shape[0])
    assert_same_law(controller, controller.transformed(T), 1e-11)


@given(seeds)
def test_vectors_and_controllers_are_inverse(seed):
    controller = random_controller(np.random.default_rng(seed))
    again = controller_from_vector(controller.to_vector(), controller.shape)
    assert_same_controller(again, controller, 0.0)


def test_a_static_law_answers_at_once_and_forgets():
    K = np.array([[1.0, 2.0, 3.0], [0.0, -1.0, 5.0]])
    responses = static_controller(K).responses(3)
    np.testing.assert_array_equal(responses[0], K)
    assert not responses[1:].any()


def test_the_papers_plants():
    assert spectral_radius(A_STABLE) < 1.0 < spectral_radius(A_UNSTABLE)
    lqr, lqg = paper_system(), paper_system(outputs=50, alpha=0.1)
    assert (lqr.n, lqr.m, lqr.p) == (4, 2, 4) and not lqr.V.any()
    assert (lqg.n, lqg.m, lqg.p) == (4, 2, 50) and lqg.Q[0, 0] == 0.1
    assert (paper_system(unstable=True).n, paper_system(unstable=True).m) == (3, 2)


def test_values_are_copies_and_cannot_be_written():
    A = np.eye(2)
    controller = Controller(A, np.ones((2, 1)), np.ones((1, 2)))
    A[0, 0] = 7.0
    assert controller.A[0, 0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        controller.A[0, 0] = 7.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"B": np.ones((3, 2))}, "B has shape"),
        ({"Q": np.full((4, 4), np.nan)}, "finite"),
        ({"Q": np.triu(np.ones((4, 4)))}, "not symmetric"),
        ({"W": -np.eye(4)}, "W is not positive semidefinite"),
        ({"R": np.zeros((2, 2))}, "R is not positive definite"),
    ],
)
def test_what_is_no_plant_is_refused(change, message):
    with pytest.raises(LinearControlError, match=message):
        replace(paper_system(), **change)


def test_what_is_no_transform_is_refused():
    controller = random_controller(np.random.default_rng(0), n=2)
    with pytest.raises(LinearControlError, match="singular"):
        controller.transformed(np.zeros((2, 2)))
    with pytest.raises(LinearControlError, match="shape"):
        controller.transformed(np.eye(3))


def test_the_library_needs_numpy_and_scipy_alone():
    allowed = {"numpy", "scipy", "argparse", "collections", "dataclasses", "typing"}
    folder = Path(linear_control.__file__).parent
    for path in set(folder.glob("*.py")) - {folder / "arena.py"}:  # which joins the experiments
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            else:
                continue
            for name in names:
                within = name.startswith(
                    ("fleet_tools.baselines.linear_control", "fleet_tools.errors")
                )
                assert within or name.split(".")[0] in allowed, (path.name, name)


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
    with pytest.raises(LinearControlError, match="the plant has 4 outputs and 2 inputs"):
        cost(paper_system(), Controller(one, one, one))


def answers(controller: Controller, y: np.ndarray) -> np.ndarray:
    """Returns the outputs of a controller, from its impulse response, without recursion."""
    steps = y.shape[1]
    h = controller.responses(steps)
    past = [sum(y[:, t - k] @ h[k].T for k in range(t + 1)) for t in range(steps)]
    return np.stack(past, axis=1)


@given(seeds)
def test_simulated_answers_are_the_convolution_of_what_was_read(seed):
    rng = np.random.default_rng(seed)
    system = paper_system(unstable=True, outputs=2, seed=seed)
    rollouts = simulate(system, optimal_controller(system), rng, episodes=3, steps=20)
    expected = answers(optimal_controller(system), rollouts.y)
    np.testing.assert_allclose(rollouts.u, expected, rtol=0, atol=1e-9 * np.abs(expected).max())


def test_least_squares_finds_the_static_expert():
    system = paper_system()
    K = lqr(system)[0]
    rollouts = simulate(system, static_controller(K), np.random.default_rng(0), steps=50)
    learned = learn_static(rollouts.y, rollouts.u)
    np.testing.assert_allclose(learned.C, K, rtol=0, atol=1e-11)
    assert cost(system, learned) == pytest.approx(optimal_cost(system), rel=1e-10)


def test_least_squares_refuses_what_the_demonstrations_do_not_determine():
    system = paper_system(outputs=50)
    few = simulate(system, optimal_controller(system), np.random.default_rng(0), steps=20)
    with pytest.raises(LinearControlError, match="Record more episodes"):
        learn_static(few.y, few.u)


@given(seeds)
def test_the_gradient_of_imitation_is_that_of_finite_differences(seed):
    rng = np.random.default_rng(seed)
    controller = random_controller(rng)
    _, p, m = controller.shape
    y, u = rng.standard_normal((3, 6, p)), rng.standard_normal((3, 6, m))
    loss, gradient = imitation_loss(controller, y, u)
    assert loss == pytest.approx(np.mean(np.sum((answers(controller, y) - u) ** 2, axis=-1)))

    def of_vector(vector):
        return imitation_loss(controller_from_vector(vector, controller.shape), y, u)[0]

    numeric = finite_differences(of_vector, controller.to_vector())
    scale = 1.0 + np.abs(numeric).max()
    np.testing.assert_allclose(gradient.to_vector(), numeric, rtol=0, atol=1e-7 * scale)


def test_an_overflowing_imitation_costs_infinitely():
    wild = Controller(1e10 * np.eye(2), np.ones((2, 1)), np.ones((1, 2)))
    loss, gradient = imitation_loss(wild, np.ones((1, 100, 1)), np.ones((1, 100, 1)))
    assert loss == np.inf and not gradient.to_vector().any()


@pytest.mark.parametrize(("unstable", "outputs"), [(True, 3), (False, 3), (True, 50)])
def test_gradients_find_the_dynamic_expert(unstable, outputs):
    system = paper_system(unstable=unstable, outputs=outputs)
    rng = np.random.default_rng(0)
    rollouts = simulate(system, optimal_controller(system), rng, episodes=50, steps=100)
    learned = learn_by_gradient(rollouts.y, rollouts.u, system.n, rng, iterations=200)
    assert cost(system, learned) == pytest.approx(optimal_cost(system), rel=1e-3)
