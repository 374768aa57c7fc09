"""Projections: their results, limits and gradients."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from fleet_merging.errors import PermutationError
from fleet_merging.matching.sinkhorn import (
    harden,
    project_hard,
    project_soft,
    soften,
)
from fleet_merging.symmetry.group import PermutationGroup

SEEDS = st.integers(0, 2**32 - 1)
SIZES = st.integers(1, 7)


def scores(seed, *shape):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


@given(SEEDS, SIZES, st.floats(0.2, 20.0))
def test_soft_projections_are_doubly_stochastic(seed, n, tau):
    P = project_soft(scores(seed, 2, n, n), tau, iterations=50_000, tolerance=1e-7)
    assert (P >= 0).all()
    ones = torch.ones(2, n, dtype=P.dtype)
    torch.testing.assert_close(P.sum(-2), ones, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(P.sum(-1), ones, rtol=1e-5, atol=1e-5)


@given(SEEDS, SIZES)
def test_hard_projections_are_the_nearest_permutations(seed, n):
    X = scores(seed, n, n)
    index = project_hard(X)
    assert sorted(index.tolist()) == list(range(n))
    value = X[torch.arange(n), index].sum()
    generator = np.random.default_rng(seed)
    assert all(value >= X[range(n), generator.permutation(n)].sum() - 1e-12 for _ in range(50))


@given(SEEDS, st.integers(2, 6))
def test_the_hard_projection_is_the_limit_of_soft_ones(seed, n):
    X = torch.eye(n, dtype=torch.float64)[np.random.default_rng(seed).permutation(n)]
    X = X + 0.1 * scores(seed, n, n).clamp(-1, 1)  # no two permutations nearly as good
    corner = torch.nn.functional.one_hot(project_hard(X), n).double()
    distances = [
        float((project_soft(X, tau, 500, 1e-9) - corner).abs().max()) for tau in (1.0, 0.1, 0.01)
    ]
    assert distances[2] < 1e-6
    assert distances == sorted(distances, reverse=True)


@given(SEEDS, st.integers(2, 6), st.floats(0.3, 5.0))
def test_soft_projections_maximize_their_objective(seed, n, tau):
    """The paper's eq. (soft_obj): no doubly stochastic matrix does better."""
    X = scores(seed, n, n)
    P = project_soft(X, tau, 20_000, 1e-12)

    def objective(Q):
        return float((X * Q).sum() - tau * torch.special.xlogy(Q, Q).sum())

    generator = np.random.default_rng(seed)
    corners = [torch.eye(n, dtype=X.dtype)[generator.permutation(n)] for _ in range(5)]
    for corner in corners:
        for step in (1e-3, 0.1, 1.0):
            assert objective(P) >= objective((1 - step) * P + step * corner) - 1e-9


@given(SEEDS, st.integers(2, 5), st.floats(0.2, 3.0))
def test_the_implicit_gradient_is_that_of_finite_differences(seed, n, tau):
    X, G = scores(seed, 2, n, n).requires_grad_(), scores(seed + 1, 2, n, n)

    def loss(X):
        return (G * project_soft(X, tau, 20_000, 1e-13)).sum()

    (gradient,) = torch.autograd.grad(loss(X), X)
    direction, step = scores(seed + 2, 2, n, n), 1e-5
    with torch.no_grad():
        slope = (loss(X + step * direction) - loss(X - step * direction)) / (2 * step)
    torch.testing.assert_close((gradient * direction).sum(), slope, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("tau", [1.0, 0.1])
def test_the_gradient_of_large_projections_is_that_of_exact_solutions(tau):
    """The program solves soft ones iteratively and nearly hard ones by factors, the test by SVD."""
    n = 150
    X, G = scores(0, n, n).requires_grad_(), scores(1, n, n)
    P = project_soft(X, tau, 5000, 1e-13)
    (gradient,) = torch.autograd.grad((G * P).sum(), X)
    P = P.detach()
    rows, columns = (torch.diag(P.sum(dim)) for dim in (1, 0))
    system = torch.cat([torch.cat([rows, P], dim=1), torch.cat([P.T, columns], dim=1)])
    right = torch.cat([(P * G).sum(1), (P * G).sum(0)])
    a, b = torch.linalg.lstsq(system, right, driver="gelsd").solution.split(n)
    expected = P * (G - a.unsqueeze(1) - b) / tau
    torch.testing.assert_close(gradient, expected, rtol=1e-7, atol=1e-9)


LARGE = {
    "normal": lambda X: X,
    "a permutation": lambda X: 0.01 * X + torch.eye(len(X))[torch.randperm(len(X))],
    "with ties": lambda X: X.round(),
    "all equal": torch.ones_like,
    "huge": lambda X: 1e30 * X,
    "tiny": lambda X: 1e-30 * X,
    "of far apart rows": lambda X: X + 1e6 * X[:, :1],
    "of one far column": lambda X: torch.cat([X[:, :1] + 1e6, X[:, 1:]], dim=1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", LARGE)
def test_large_assignments_are_as_good_as_plain_ones(kind, dtype):
    """Sinkhorn's potentials, which speed up large assignments, must not change the optimum."""
    X = LARGE[kind](scores(0, 150, 150)).to(dtype)
    rows, plain = linear_sum_assignment(X.double().numpy(), maximize=True)
    index = project_hard(X)
    assert sorted(index.tolist()) == list(range(150))
    exact = X.double()
    expected, found = (exact[rows, columns].sum() for columns in (plain, index))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


@given(SEEDS, st.integers(2, 6))
def test_shifts_of_rows_and_columns_do_not_change_the_projection(seed, n):
    X = scores(seed, n, n)
    shifted = X + scores(seed, n, 1) + scores(seed + 1, 1, n)
    P, Q = (project_soft(Y, 1.0, 5000, 1e-12) for Y in (X, shifted))
    torch.testing.assert_close(P, Q, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1.0, 1e3, 1e5])
def test_large_scores_give_neither_overflow_nor_wild_gradients(dtype, scale):
    X = (scale * scores(0, 30, 30)).to(dtype).requires_grad_()
    P = project_soft(X)
    P.square().sum().backward()
    assert torch.isfinite(P).all() and torch.isfinite(X.grad).all()
    assert P.dtype == dtype


def test_names_are_projected_separately_and_noise_is_removed():
    group = PermutationGroup({"h": (5,), "head": (3,), "k": (3, 4)}, {"k": "head"})
    element = group.random(np.random.default_rng(0))
    noisy = {
        name: matrix + 0.2 * torch.rand_like(matrix)
        for name, matrix in group.matrices(element).items()
    }
    for permutation in (noisy, soften(noisy, 0.1)):
        hard = harden(group, permutation)
        assert all(np.array_equal(hard[name], element[name]) for name in element)


def test_scores_without_a_projection_are_refused():
    with pytest.raises(PermutationError, match="NaN or infinity"):
        project_hard(torch.full((2, 2), torch.nan))
    with pytest.raises(PermutationError, match="NaN or infinity"):
        project_soft(torch.full((2, 2), torch.inf))
    with pytest.raises(PermutationError, match="project_hard for tau = 0"):
        project_soft(torch.eye(2), tau=0.0)


STARTS = {
    "random": lambda X, tau: 10 * X,
    "of trust 0.9": lambda X, tau: X + tau * np.log(9 * (len(X) - 1)) * torch.eye(len(X)),
    "near the identity": lambda X, tau: X + torch.eye(len(X)),
}
"""Scores from which descents begin, made of normal ones of deviation 0.1."""


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize(
    ("n", "tau"), [(32, 1.0), (32, 0.3), (32, 0.1), (32, 0.05), (160, 1.0), (160, 0.05)]
)
def test_gradients_are_exact_to_a_hundredth_whatever_the_entropy(start, n, tau):
    """With 20 iterations alone, the error was up to 85% where tau was small."""
    X = STARTS[start](0.1 * scores(0, n, n), tau)
    G = scores(1, n, n)

    def gradient(dtype, *limits):
        Y = X.to(dtype).requires_grad_()
        return torch.autograd.grad((G.to(dtype) * project_soft(Y, tau, *limits)).sum(), Y)[0]

    exact = gradient(torch.float64, 400, 1e-12)
    # As a fraction of the gradient, or of that of a soft matrix where P is nearly hard.
    size = max(float(exact.norm()), 1e-2 * float(G.norm()) / n / tau)
    for dtype in (torch.float64, torch.float32):
        assert float((gradient(dtype).double() - exact).norm()) <= 0.01 * size


@pytest.mark.parametrize("tau", [0.3, 0.1, 0.05])
def test_newtons_method_ends_where_sinkhorns_iteration_does(tau):
    X = scores(0, 12, 12)
    K = (X / tau).double()
    for _ in range(200_000):
        before, K = K, K - K.logsumexp(1, keepdim=True)
        K = K - K.logsumexp(0, keepdim=True)
        if (K - before).abs().max() < 1e-13:
            break
    torch.testing.assert_close(project_soft(X, tau, 200, 1e-10), K.exp(), rtol=1e-6, atol=1e-9)
