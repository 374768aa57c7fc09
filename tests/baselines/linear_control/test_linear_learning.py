"""Learning recovers the expert, and gradients agree with finite differences."""

import numpy as np
import pytest
from hypothesis import given, settings
from support.linear_cases import (
    finite_differences,
    random_controller,
    seeds,
)

from fleet_tools.baselines.linear_control.learning import (
    imitation_loss,
    learn_by_gradient,
    learn_static,
)
from fleet_tools.baselines.linear_control.lqg import (
    cost,
    lqr,
    optimal_controller,
    optimal_cost,
    simulate,
)
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


def test_least_squares_refuses_what_the_demonstrations_do_not_determine():
    system = paper_system(outputs=50)
    few = simulate(system, optimal_controller(system), np.random.default_rng(0), steps=20)
    with pytest.raises(LinearControlError, match="Record more episodes"):
        learn_static(few.y, few.u)


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
