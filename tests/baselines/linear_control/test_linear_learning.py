"""Learning recovers the expert, and gradients agree with finite differences."""

import numpy as np
import pytest
from hypothesis import given, settings
from support.linear_cases import (
    assert_same_law,
    finite_differences,
    noisy,
    random_controller,
    seeds,
)

from fleet_tools.baselines.linear_control.learning import (
    imitation_loss,
    improve_cost,
    learn_by_gradient,
    learn_dynamic,
    learn_static,
    realize,
)
from fleet_tools.baselines.linear_control.lqg import cost, lqr, optimal_controller, optimal_cost
from fleet_tools.baselines.linear_control.rollouts import simulate
from fleet_tools.baselines.linear_control.systems import (
    Controller,
    LinearControlError,
    controller_from_vector,
    paper_system,
    static_controller,
)


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


@pytest.mark.parametrize(("unstable", "outputs"), [(True, 2), (False, 3), (False, 50)])
def test_least_squares_finds_the_dynamic_expert(unstable, outputs):
    system = paper_system(unstable=unstable, outputs=outputs)
    expert = optimal_controller(system)
    rollouts = simulate(system, expert, np.random.default_rng(0), episodes=120, steps=20)
    learned = learn_dynamic(rollouts.y, rollouts.u, system.n)
    assert_same_law(expert, learned, 1e-7)
    assert cost(system, learned) == pytest.approx(optimal_cost(system), rel=1e-9)


@given(seeds)
def test_realization_inverts_the_response(seed):
    rng = np.random.default_rng(seed)
    expert = random_controller(rng, p=4, m=3)
    n = expert.shape[0]
    assert_same_law(expert, realize(expert.responses(2 * n + 1), n), 1e-7)


def test_least_squares_refuses_what_the_demonstrations_do_not_determine():
    system = paper_system(outputs=3)
    few = simulate(system, optimal_controller(system), np.random.default_rng(0), episodes=2)
    with pytest.raises(LinearControlError, match="Record more episodes"):
        learn_dynamic(few.y, few.u, 4)
    with pytest.raises(LinearControlError, match="requires 9 steps"):
        learn_dynamic(few.y[:, :8], few.u[:, :8], 4)
    with pytest.raises(LinearControlError, match="lower order"):
        realize(np.zeros((5, 1, 1)), 2)


@given(seeds)
@settings(max_examples=40)
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


def test_gradients_go_on_from_a_given_start():
    system = paper_system(unstable=True, outputs=3)
    expert, rng = optimal_controller(system), np.random.default_rng(0)
    rollouts = simulate(system, expert, rng, episodes=20, steps=30)
    start = noisy(expert, rng, 0.1)
    before = imitation_loss(start, rollouts.y, rollouts.u)[0]
    learned = learn_by_gradient(rollouts.y, rollouts.u, 3, rng, start=start, iterations=100)
    assert imitation_loss(learned, rollouts.y, rollouts.u)[0] < 1e-6 * before
    stayed = learn_by_gradient(rollouts.y, rollouts.u, 3, rng, start=expert, iterations=100)
    assert_same_law(expert, stayed, 1e-8)


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


@pytest.mark.parametrize("outputs", [None, 3])
def test_descending_the_cost_never_leaves_the_stabilizing_controllers(outputs):
    system = paper_system(unstable=True, outputs=outputs)
    start = noisy(optimal_controller(system), np.random.default_rng(0), 0.1)
    best, before = optimal_cost(system), cost(system, start)
    values = [cost(system, improve_cost(system, start, iterations=i)) for i in (0, 1, 5, 50)]
    assert values[0] == before and values == sorted(values, reverse=True)
    assert best <= values[-1] < best + 0.2 * (before - best)


def test_descending_the_cost_needs_a_stabilizing_start():
    system = paper_system(unstable=True)
    with pytest.raises(LinearControlError, match="unstable"):
        improve_cost(system, static_controller(np.zeros((2, 3))))
