"""Soft and hard projections onto the Birkhoff polytope: the paper's eq. (soft_obj).

The soft projection of scores X is argmax over doubly stochastic P of <X, P> + tau H(P). This is
diag(u) exp(X / tau) diag(v), and Sinkhorn's iteration finds u and v (Cuturi 2013). Its gradient is
taken at the fixed point (Eisenberger et al. 2022), so no iteration is kept in memory. For small
tau, Sinkhorn's iteration needs thousands of steps, and Newton's method finishes (Brauer et al.
2017). The hard projection, tau = 0, is a linear assignment.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

from fleet_merging.errors import PermutationError
from fleet_merging.symmetry.group import Permutation, PermutationGroup

_SPREAD = 40.0
"""Largest logarithm of a ratio within a row for which plain exponentials suffice in float32."""

_LONGEST = 5.0
"""Largest change of a potential in a step of Newton's method."""

_FIRST = 20
"""Number of iterations before Newton's method; its steps cost dozens of Sinkhorn's."""

_LARGE = 128
"""Size from which a few products with vectors save more time than they take."""


def project_hard(scores: torch.Tensor) -> torch.Tensor:
    """Returns the index arrays p, (..., n), that maximize the sum of X[i, p[i]], (..., n, n).

    Raises a `PermutationError` if scores are not finite.
    """
    _require_finite(scores)
    matrices = scores.detach().reshape(-1, *scores.shape[-2:])
    columns = np.stack([linear_sum_assignment(_cost(X).cpu().numpy())[1] for X in matrices])
    return torch.from_numpy(columns.reshape(scores.shape[:-1]))


def project_soft(
    scores: torch.Tensor, tau: float = 1.0, iterations: int = 60, tolerance: float = 1e-3
) -> torch.Tensor:
    """Returns the doubly stochastic matrices nearest to scores, with entropy; differentiable.

    Args:
        scores: X, shape (..., n, n).
        tau: Weight of the entropy, positive.
        iterations: Maximum number of iterations, the first 20 Sinkhorn's, the others Newton's.
        tolerance: The iteration ends when all rows sum to 1 within this; columns always sum to 1.
    """
    _require_finite(scores)
    if not tau > 0:
        raise PermutationError(
            f"The soft projection has tau {tau}; it must be positive. Use project_hard for tau = 0."
        )
    return _SoftProjection.apply(scores, tau, iterations, tolerance)


def soften(scores: Mapping[str, torch.Tensor], tau: float = 1.0) -> dict[str, torch.Tensor]:
    """Returns the soft projection of every name's scores; see `project_soft`."""
    return {name: project_soft(value, tau) for name, value in scores.items()}


def harden(group: PermutationGroup, permutation: Permutation) -> dict[str, np.ndarray]:
    """Returns the hard element nearest to a soft one, for each name separately."""
    matrices = group.matrices(permutation)
    return {name: project_hard(matrix).numpy() for name, matrix in matrices.items()}


class _SoftProjection(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, scores: torch.Tensor, tau: float, iterations: int, tolerance: float
    ) -> torch.Tensor:
        matrices = scores.reshape(-1, *scores.shape[-2:])
        projected = torch.stack([_scaled(X / tau, iterations, tolerance) for X in matrices])
        projected = projected.reshape(scores.shape)
        ctx.save_for_backward(projected)
        ctx.tau = tau
        return projected

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        (gradient,) = grad_outputs
        (projected,) = ctx.saved_tensors
        square = projected.shape[-2:]
        # One by one: batched solvers of torch 2.13 are wrong on a CPU with several threads.
        pulled_back = [
            _pull_back(P, G)
            for P, G in zip(
                projected.reshape(-1, *square), gradient.reshape(-1, *square), strict=True
            )
        ]
        return torch.stack(pulled_back).reshape(projected.shape) / ctx.tau, None, None, None


def _cost(X: torch.Tensor) -> torch.Tensor:
    """Returns costs for which the minimum assignment has the largest sum of scores; float64.

    Constants added to columns change no assignment. Sinkhorn's potentials are such constants close
    to the optimal duals, which keep the solver's shortest paths short.
    """
    potential = torch.zeros(len(X), dtype=torch.float64, device=X.device)
    if len(X) >= _LARGE:
        below = X.float()
        below = below - below.amax(dim=1, keepdim=True)
        mean = -float(below.mean())
        for temperature in (mean / 15, mean / 60) if mean > 0 else ():
            kernel = (below / temperature).clamp_(min=-_SPREAD).exp_()
            v = torch.ones_like(kernel[0])
            for _ in range(5):
                v = (kernel.T @ (kernel @ v).reciprocal()).reciprocal()
            change = temperature * v.log()
            potential -= change
            below += change
            below -= below.amax(dim=1, keepdim=True)
    return potential - X


def _scaled(logits: torch.Tensor, iterations: int, tolerance: float) -> torch.Tensor:
    """Returns diag(u) exp(logits) diag(v), with columns that sum to 1 and rows that nearly do."""
    logits = logits - logits.amax(dim=1, keepdim=True)  # u compensates for it
    first = min(iterations, _FIRST)
    if -logits.min() > _SPREAD:
        potentials = _iterate_in_logarithms(logits, first, tolerance)
        return _newton(logits, potentials, iterations - first, tolerance)
    kernel = logits.exp()
    rows = kernel.sum(dim=1)
    u = v = torch.ones_like(rows)
    excess = torch.inf
    for _ in range(first):
        u = rows.reciprocal()
        v = (kernel.T @ u).reciprocal()
        rows = kernel @ v
        excess = float((u * rows - 1).abs().max())
        if excess < tolerance:
            break
    if excess < tolerance or iterations <= first:
        # In place, since new memory costs more than the arithmetic.
        return kernel.mul_(u.unsqueeze(1)).mul_(v)
    return _newton(logits, u.log(), iterations - first, tolerance)


def _iterate_in_logarithms(logits: torch.Tensor, iterations: int, tolerance: float) -> torch.Tensor:
    """Returns the potentials log u of the same iteration for any spread of the logits."""
    potentials = torch.zeros_like(logits[0])
    for _ in range(iterations):
        columns = (logits + potentials.unsqueeze(1)).logsumexp(dim=0)
        before, potentials = potentials, -(logits - columns).logsumexp(dim=1)
        if (before - potentials).abs().max() < tolerance:
            break
    return potentials


def _newton(
    logits: torch.Tensor, potentials: torch.Tensor, iterations: int, tolerance: float
) -> torch.Tensor:
    """Returns the same matrix from potentials a = log u that minimize the dual.

    The dual, sum_j log sum_i exp(logits_ij + a_i) - sum_i a_i, is convex. Its gradient is r - 1,
    where r are the sums of the rows of P, with columns that sum to 1. Its Hessian is diag(r) - P
    P^T. A step is halved until the dual decreases; otherwise the step is Sinkhorn's, -log r.
    """
    a, P, value = potentials, *_dual(logits, potentials)
    for _ in range(iterations):
        excess = P.sum(dim=1) - 1
        largest = excess.abs().max()
        if largest < tolerance:
            break
        step = _solve(P.T, -excess)
        step *= (_LONGEST / step.abs().max()).clamp(max=1.0)
        slope = float(excess @ step)
        for shrink in (1.0, 0.5, 0.25, 0.1, 0.01):
            trial = a + shrink * step
            trial_P, trial_value = _dual(logits, trial)
            # Close to the minimum, the dual changes by less than its rounding.
            halved = (trial_P.sum(dim=1) - 1).abs().max() < largest / 2
            if halved or trial_value < value + 1e-4 * shrink * slope:
                break
        else:
            trial = a - excess.log1p()
            trial_P, trial_value = _dual(logits, trial)
        a, P, value = trial, trial_P, trial_value
    return P


def _dual(logits: torch.Tensor, a: torch.Tensor) -> tuple[torch.Tensor, float]:
    """Returns the matrix of row potentials, with columns that sum to 1, and the dual."""
    shifted = logits + a.unsqueeze(1)
    columns = shifted.logsumexp(dim=0)
    value = columns.double().sum() - a.double().sum()
    return shifted.sub_(columns).exp_(), float(value)


def _pull_back(P: torch.Tensor, G: torch.Tensor) -> torch.Tensor:
    """Returns P * (G - a 1^T - 1 b^T), where a and b preserve the sums of rows and columns.

    With r and c those sums, diag(r) a + P b = (P * G) 1 and P^T a + diag(c) b = (P * G)^T 1.
    Eliminating a leaves b a Schur complement.
    """
    weighted = P * G
    rows, row_sums = P.sum(dim=1), weighted.sum(dim=1)
    b = _solve(P, weighted.sum(dim=0) - P.T @ (row_sums / rows))
    a = (row_sums - P @ b) / rows
    return weighted.sub_((a.unsqueeze(1) + b).mul_(P))


def _solve(P: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Solves (diag(c) - P^T diag(r)^-1 P) x = b, with r and c the sums of rows and columns.

    It is singular along 1 only, and b sums to 0: adding 1 1^T / n makes it regular.
    """
    rows, columns = P.sum(dim=1), P.sum(dim=0)
    x = None
    if len(P) >= _LARGE:
        x = _conjugate_gradients(lambda y: columns * y - P.T @ ((P @ y) / rows) + y.mean(), right)
    if x is None:
        x = _factored(torch.diag(columns) - P.T @ (P / rows.unsqueeze(1)) + 1 / len(P), right)
    return x


def _conjugate_gradients(
    apply: Callable[[torch.Tensor], torch.Tensor], right: torch.Tensor, iterations: int = 16
) -> torch.Tensor | None:
    """Solves A x = b: soft matrices need a few iterations, nearly hard ones too many, for None."""
    x, residual = torch.zeros_like(right), right
    direction, square = residual, float(residual @ residual)
    enough = (10 * torch.finfo(right.dtype).eps) ** 2 * square
    for _ in range(iterations):
        if square <= enough:
            return x
        image = apply(direction)
        curvature = float(direction @ image)
        if not curvature > 0:
            return None
        x = x + square / curvature * direction
        residual = residual - square / curvature * image
        square, before = float(residual @ residual), square
        direction = residual + square / before * direction
    return None


def _factored(complement: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Solves the same system by a Cholesky factorization."""
    # Near a corner of the polytope the complement vanishes, and so do P * (...) and `right`.
    damping = 10 * torch.finfo(right.dtype).eps
    while True:
        damped = complement + damping * torch.eye(
            len(right), dtype=right.dtype, device=right.device
        )
        factor, info = torch.linalg.cholesky_ex(damped)
        if not info:
            return torch.cholesky_solve(right.unsqueeze(1), factor).squeeze(1)
        damping *= 10


def _require_finite(scores: torch.Tensor) -> None:
    if scores.numel() and not all(map(torch.isfinite, torch.aminmax(scores.detach()))):
        raise PermutationError(
            "Scores hold NaN or infinity, so they cannot be projected. The loss may have diverged: "
            "lower the rate, or check the models for NaN."
        )
