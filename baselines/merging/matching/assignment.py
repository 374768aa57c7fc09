"""Assignment problems of matching: linear, nested inside wholes, and quadratic."""

from collections.abc import Mapping, Sequence

import torch

from fleet_tools.baselines.merging.matching.sinkhorn import project_hard

Pair = tuple[torch.Tensor, torch.Tensor]
"""A reference R and a tensor W, each (n, n, r): r matrices that P permutes on both sides."""


def assign_nested(
    outer: torch.Tensor, inner: Mapping[str, torch.Tensor]
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Assigns wholes, and the units inside each, so that the sum of both scores is largest.

    A pair of wholes is worth its own score and the best assignment of their units.

    Args:
        outer: Scores of whole i of the reference with whole j, shape (m, m).
        inner: For each kind of unit, scores of unit a of whole i with unit b of whole j, shape
            (m, m, n, n), as [i, j, a, b].

    Returns:
        The wholes' index array, shape (m,), and the units' by kind, each of shape (m, n).
    """
    best = {name: project_hard(scores) for name, scores in inner.items()}
    worth = outer.double().cpu()
    for name, scores in inner.items():
        chosen = scores.double().cpu().gather(-1, best[name].unsqueeze(-1))
        worth = worth + chosen.sum(dim=(-2, -1))
    order = project_hard(worth)
    places = torch.arange(len(order))
    return order, {name: index[places, order] for name, index in best.items()}


def assign_quadratic(
    linear: torch.Tensor, pairs: Sequence[Pair], start: torch.Tensor, iterations: int = 60
) -> torch.Tensor:
    """Looks for the P of the largest <L, P> + sum of <R, P W P^T>: never worse than where it began.

    Frank-Wolfe with exact line search over the Birkhoff polytope, then the hard projection (as in
    Vogelstein et al. 2015), from three quarters of the way from `start` to the polytope's middle,
    and from `start`. The plain linearization, P := argmax of <gradient, P>, has no such line search
    and need not climb.

    Args:
        linear: L, shape (n, n).
        pairs: R and W, each (n, n, r).
        start: Index array, shape (n,).
        iterations: At most, from each start.

    Returns:
        Index array, shape (n,).
    """
    best, value = start, _value(linear, pairs, start)
    corner, bent = _matrix(start, linear), quadratic_gradient(pairs, start)
    middle = torch.full_like(corner, 1 / len(corner))
    inside = (corner + 3 * middle) / 4, (bent + 3 * _bent_at_middle(pairs)) / 4
    for P, its_bent in (inside, (corner, bent)):
        found = project_hard(_climb(linear, pairs, P, its_bent, iterations))
        found_value = _value(linear, pairs, found)
        # A real improvement, not one of rounding.
        if found_value > value + 1e-6 * abs(value):
            best, value = found, found_value
    return best


def _climb(linear, pairs, P, bent, iterations) -> torch.Tensor:
    for _ in range(iterations):
        gradient = linear + bent
        index = project_hard(gradient)
        direction = _matrix(index, P) - P
        slope = float((gradient * direction).sum())
        if slope <= 1e-4 * float((gradient * P).sum().abs()):
            break
        towards = quadratic_gradient(pairs, index) - bent
        curvature = float((towards * direction).sum()) / 2
        step = min(1.0, -slope / (2 * curvature)) if curvature < 0 else 1.0
        P, bent = P + step * direction, bent + step * towards
    return P


def quadratic_gradient(pairs: Sequence[Pair], index: torch.Tensor) -> torch.Tensor:
    """Gradient at P of the sum of <R, P W P^T>: the sum of R P W^T + R^T P W, linear in P."""
    total = 0.0
    for R, W in pairs:
        at = index.to(W.device)
        total = total + R.flatten(1) @ W[:, at].flatten(1).T
        total = total + R.transpose(0, 1).flatten(1) @ W[at].transpose(0, 1).flatten(1).T
    return total


def _bent_at_middle(pairs: Sequence[Pair]) -> torch.Tensor:
    """The same where every entry of P is 1 / n."""
    return sum(R.sum(1) @ W.mean(1).T + R.sum(0) @ W.mean(0).T for R, W in pairs)


def _value(linear: torch.Tensor, pairs: Sequence[Pair], index: torch.Tensor) -> float:
    at = index.to(linear.device)
    value = linear.gather(1, at.unsqueeze(1)).sum()
    return float(value + sum((R * W[at][:, at]).sum() for R, W in pairs))


def _matrix(index: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return torch.eye(len(index), dtype=like.dtype, device=like.device)[index.to(like.device)]
