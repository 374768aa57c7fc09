"""Objective of matching, <reference, P(model)>, and linear to quadratic assignment problems."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from fleet_merging.matching.sinkhorn import project_hard
from fleet_merging.symmetry.action import reorder
from fleet_merging.symmetry.axes import Product
from fleet_merging.symmetry.table import State, Symmetry

Indices = dict[str, torch.Tensor]
"""Index arrays of free names."""

Pair = tuple[torch.Tensor, torch.Tensor]
"""A reference R and a tensor W, each (n, n, r): r matrices that P permutes on both sides."""


@dataclass(frozen=True)
class UnfoldedPair:
    """The same tensor of the reference and of the model, with one dimension for each factor."""

    factors: Product
    reference: torch.Tensor
    tensor: torch.Tensor

    @cached_property
    def dims(self) -> dict[str, list[int]]:
        """The dimensions that each free name permutes, by name."""
        dims: dict[str, list[int]] = {}
        for dim, factor in enumerate(self.factors):
            if not factor.fixed:
                dims.setdefault(factor.name, []).append(dim)
        return dims

    def with_leading(
        self, names: Sequence[str], permutation: Indices
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns both tensors with the dimensions of `names` first and all others flattened.

        The permutation acts on the model's tensor, and has any of the names.
        """
        leading = [dim for name in dict.fromkeys(names) for dim in self.dims[name]]
        front = list(range(len(leading)))
        permuted = reorder(self.tensor, self.factors, permutation)
        R, W = (tensor.movedim(leading, front) for tensor in (self.reference, permuted))
        shape = (*R.shape[: len(leading)], -1)
        return R.reshape(shape), W.reshape(shape)


def unfold_models(symmetry: Symmetry, reference: State, model: State) -> list[UnfoldedPair]:
    """Returns all floating-point tensors of two models in pairs."""

    def single(tensor: torch.Tensor) -> torch.Tensor:  # sums in half precision would drift
        return tensor.to(torch.promote_types(tensor.dtype, torch.float32))

    return [
        UnfoldedPair(factors, single(R), single(W))
        for (factors, R), (_, W) in zip(
            symmetry.unfold(reference), symmetry.unfold(model), strict=True
        )
    ]


def total_product(pairs: Iterable[UnfoldedPair], permutation: Indices) -> float:
    """Returns <reference, P(model)>, the sum of the pairs' products."""
    permuted = ((pair, reorder(pair.tensor, pair.factors, permutation)) for pair in pairs)
    return sum(float((pair.reference * tensor).sum()) for pair, tensor in permuted)


def assign_nested(
    outer: torch.Tensor, inner: Mapping[str, torch.Tensor]
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Assigns groups of units, and the units inside each, with the largest sum of scores.

    The score of a pair of groups is its own score plus the score of the best assignment of their
    units. Group i of the reference and j have the score outer[i, j], and for each kind of unit,
    their units a and b have the score inner[kind][i, j, a, b].

    Returns index arrays of the groups, (m,), and of the units by kind, (m, n).
    """
    best = {name: project_hard(scores) for name, scores in inner.items()}
    total = outer.double().cpu()
    for name, scores in inner.items():
        selected = scores.double().cpu().gather(-1, best[name].unsqueeze(-1))
        total = total + selected.sum(dim=(-2, -1))
    order = project_hard(total)
    positions = torch.arange(len(order))
    return order, {name: index[positions, order] for name, index in best.items()}


def assign_quadratic(
    linear: torch.Tensor, pairs: Sequence[Pair], start: torch.Tensor, iterations: int = 60
) -> torch.Tensor:
    """Searches the P that maximizes <L, P> + sum of <R, P W P^T>; never worse than the start.

    Frank-Wolfe with exact line search over the Birkhoff polytope, then the hard projection (as in
    Vogelstein et al. 2015). It starts three quarters of the way from the polytope's center to
    `start`, and at `start`. The plain linearization, P := argmax of <gradient, P>, has no such line
    search and may decrease the objective. P and the start are index arrays, (n,).
    """
    best, value = start, _value(linear, pairs, start)
    identity = torch.eye(len(start), dtype=linear.dtype, device=linear.device)
    corner, corner_gradient = identity[start.to(linear.device)], quadratic_gradient(pairs, start)
    center = torch.full_like(corner, 1 / len(corner))
    inside = (corner + 3 * center) / 4, (corner_gradient + 3 * _gradient_at_center(pairs)) / 4
    for P, gradient in (inside, (corner, corner_gradient)):
        found = project_hard(_frank_wolfe(linear, pairs, P, gradient, iterations))
        found_value = _value(linear, pairs, found)
        # A real improvement, not one of rounding.
        if found_value > value + 1e-6 * abs(value):
            best, value = found, found_value
    return best


def _frank_wolfe(
    linear: torch.Tensor,
    pairs: Sequence[Pair],
    P: torch.Tensor,
    quadratic: torch.Tensor,
    iterations: int,
) -> torch.Tensor:
    """Climbs from P, where the gradient of the quadratic part is `quadratic`."""
    corner: tuple[torch.Tensor, torch.Tensor] | None = None
    for _ in range(iterations):
        gradient = linear + quadratic
        index = project_hard(gradient).to(P.device)
        inner = float((gradient * P).sum())
        slope = float(gradient.gather(1, index.unsqueeze(1)).sum()) - inner
        if slope <= 1e-4 * abs(inner):
            break
        if corner is None:
            corner = index, quadratic_gradient(pairs, index)
        else:
            corner = index, _gradient_after(pairs, *corner, index)
        change = corner[1] - quadratic
        change_inside = float(change.gather(1, index.unsqueeze(1)).sum() - (change * P).sum())
        curvature = change_inside / 2
        step = min(1.0, -slope / (2 * curvature)) if curvature < 0 else 1.0
        P = (1 - step) * P
        P[torch.arange(len(P)), index] += step
        quadratic = quadratic + step * change
    return P


def quadratic_gradient(pairs: Sequence[Pair], index: torch.Tensor) -> torch.Tensor:
    """Returns the gradient at P of the sum of <R, P W P^T>, (n, n), for an index array P, (n,).

    It is the sum of R P W^T + R^T P W, which is linear in P.
    """
    total = torch.zeros(())
    for R, W in pairs:
        columns = index.to(W.device)
        total = total + R.flatten(1) @ W[:, columns].flatten(1).T
        total = total + R.transpose(0, 1).flatten(1) @ W[columns].transpose(0, 1).flatten(1).T
    return total


def _gradient_after(
    pairs: Sequence[Pair], before: torch.Tensor, gradient: torch.Tensor, index: torch.Tensor
) -> torch.Tensor:
    """Returns the same gradient from the gradient at another corner, by the differing rows."""
    moved = (index != before).nonzero().squeeze(1)
    if len(moved) > len(index) // 2:
        return quadratic_gradient(pairs, index)
    old, new = before[moved], index[moved]
    for R, W in pairs:
        gradient = gradient + R[:, moved].flatten(1) @ (W[:, new] - W[:, old]).flatten(1).T
        rows = (W[new] - W[old]).transpose(0, 1).flatten(1)
        gradient = gradient + R[moved].transpose(0, 1).flatten(1) @ rows.T
    return gradient


def _gradient_at_center(pairs: Sequence[Pair]) -> torch.Tensor:
    """Returns the same gradient where every entry of P is 1 / n."""
    terms = (R.sum(1) @ W.mean(1).T + R.sum(0) @ W.mean(0).T for R, W in pairs)
    return sum(terms, start=torch.zeros(()))


def _value(linear: torch.Tensor, pairs: Sequence[Pair], index: torch.Tensor) -> float:
    index = index.to(linear.device)
    value = linear.gather(1, index.unsqueeze(1)).sum()
    terms = ((R * W[index][:, index]).sum() for R, W in pairs)
    return float(value + sum(terms, start=torch.zeros(())))
