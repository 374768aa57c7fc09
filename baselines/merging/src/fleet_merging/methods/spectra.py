"""Methods on the matrices of task vectors: their singular vectors, and the spaces of their rows.

Each weight with two axes or more is a matrix (outputs, inputs), with flattened kernels. Tensors
with one axis, such as biases, are averaged, as in all sources. No method needs data.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch

from fleet_merging.average import weighted_sum
from fleet_merging.errors import MergeError
from fleet_merging.methods.facts import BASE, method
from fleet_merging.methods.task_vectors import (
    DENSITY,
    TaskVector,
    add_to_base,
    require_finite,
    task_vectors,
    ties_mean,
)
from fleet_merging.moments.measurement import Moments, solve
from fleet_merging.problem import MergeProblem, MergeResult

Combine = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""combine(D, shares): one matrix (outputs, inputs) from the matrices of n models, (n, outputs,
inputs). Shares are n times their averaging weights, all 1 for equal weights."""


_ISOTROPIC_SCALE, _RIDGE = 3.0, 0.1
"""Chosen on validation images of digits, see `benchmarks/merging_methods.py`."""


@method("iso_c", "Iso-C", source="Marczak et al. 2025", needs=BASE)
def iso_c(problem: MergeProblem, *, scale: float = _ISOTROPIC_SCALE) -> MergeResult:
    """Adds the sum of the task vectors to the base, each matrix with equal singular values.

    Iso-C: Marczak et al., "No Task Left Behind: Isotropic Model Merging with Common and
    Task-Specific Subspaces", 2025 (arXiv 2502.04959). The sum of the models' differences is
    D = U S V^T; with the mean s of its singular values, the base changes by alpha s U V^T.

    Args:
        problem: The models and their base.
        scale: alpha times the number of models, so that it does not depend on that number. With 1,
            each matrix has the mean task vector's sum of singular values. The source chooses alpha
            on validation data; 3 is the choice for five networks on digits.

    Raises:
        MergeError: There is no base, or `scale` is not finite.
    """
    return _merged(problem, _isotropic_sum, scale / len(problem.models))


@method("tsv_m", "TSV-Merge", source="Gargiulo et al. 2025", needs=BASE)
def tsv_m(problem: MergeProblem, *, scale: float = 1.0) -> MergeResult:
    """Adds low-rank parts of the task vectors to the base, after making them orthogonal.

    TSV-Merge: Gargiulo et al., "Task Singular Vectors: Reducing Task Interference in Model
    Merging", 2025 (arXiv 2412.00081), Algorithm 1. Of the r singular vectors of each of n models'
    differences, r / n are kept. Side by side, U and V of all models are replaced by the nearest
    matrices with orthogonal columns (Procrustes), and U S V^T is added.

    Args:
        problem: The models and their base.
        scale: Multiple of the sum, alpha; 1 in the source.

    Raises:
        MergeError: There is no base, or `scale` is not finite.
    """
    return _merged(problem, _orthogonal_sum, scale)


@method("wudi", "WUDI", source="Cheng et al. 2025", needs=BASE)
def wudi(problem: MergeProblem, *, ridge: float = _RIDGE) -> MergeResult:
    """Adds the change to the base that disturbs the models least, by their task vectors.

    WUDI: Cheng et al., "Whoever Started the Interference Should End It: Guiding Data-Free Model
    Merging via Task Vectors", 2025 (arXiv 2503.08099). Rows of a difference D_i are combinations of
    the training inputs of model i, and stand for them. The change D minimizes the sum of `norm((D -
    D_i) D_i^T)**2 / norm(D_i)**2` over all i. The source descends by Adam from the sum of all D_i.
    The minimum has a closed form, D sum_i G_i = sum_i D_i G_i with `G_i = D_i^T D_i /
    norm(D_i)**2`. This is RegMean with second moments of the rows of D_i in place of the inputs'. A
    ridge is added, as noise would determine directions that hardly occur; a descent hardly moves
    along them.

    Args:
        problem: The models and their base.
        ridge: Weight of the distance from the sum, relative to the mean of the diagonal of sum_i
            G_i.

    Raises:
        MergeError: There is no base, or `ridge` is not above 0.
    """
    if not 0 < ridge < float("inf"):
        raise MergeError(f"The ridge of WUDI is {ridge}. Give a number above 0, such as {_RIDGE}.")
    return _merged(problem, partial(_undisturbed, ridge), 1.0)


COMBINATIONS = ("average", "ties", "iso_c", "tsv_m", "wudi")
"""Ways in which `combined` aggregates several task vectors."""


def combined(vectors: Sequence[TaskVector], weights: Sequence[float], by: str) -> TaskVector:
    """Returns one task vector, in float64, from several, by the defaults of a method."""
    count = len(vectors)
    ways: dict[str, tuple[Combine, float]] = {
        "iso_c": (_isotropic_sum, _ISOTROPIC_SCALE / count),
        "tsv_m": (_orthogonal_sum, 1.0),
        "wudi": (partial(_undisturbed, _RIDGE), 1.0),
    }
    if by == "average":
        return weighted_sum(vectors, weights).terms
    if by == "ties":
        return ties_mean(vectors, weights, DENSITY)
    if by not in ways:
        raise MergeError(f"Changes are combined by {by!r}; known are {', '.join(COMBINATIONS)}.")
    return _by_matrix(vectors, weights, *ways[by])


def _merged(problem: MergeProblem, combine: Combine, scale: float) -> MergeResult:
    """Returns the base plus a multiple of the models' combined matrices."""
    require_finite(scale)
    weights = problem.normalized_weights.tolist()
    return add_to_base(problem, _by_matrix(task_vectors(problem), weights, combine, scale), 1.0)


def _by_matrix(
    vectors: Sequence[TaskVector], weights: Sequence[float], combine: Combine, scale: float
) -> TaskVector:
    mean, count = weighted_sum(vectors, weights).terms, len(vectors)
    change = dict(mean)
    for name, tensor in mean.items():
        if tensor.dim() > 1 and tensor.numel():
            D = torch.stack([vector[name].flatten(1) for vector in vectors])
            shares = count * torch.tensor(weights).to(D)
            change[name] = scale * combine(D, shares).reshape(tensor.shape)
    return change


def _sum(D: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    return (shares[:, None, None] * D).sum(0)


def _isotropic_sum(D: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    U, values, V = _decomposed(_sum(D, shares))
    return values.sum() / max(len(values), 1) * U @ V


def _orthogonal_sum(D: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    kept = max(1, min(D.shape[1:]) // len(D))
    parts = [(U[:, :kept], S[:kept], V[:kept].T) for U, S, V in map(_decomposed, D)]
    lefts, values, rights = zip(*parts, strict=True)
    scaled = [share * each for share, each in zip(shares, values, strict=True)]
    return _orthogonal(lefts) * torch.cat(scaled) @ _orthogonal(rights).T


def _decomposed(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns U, S and V of a matrix U S V with no more singular values than its rank.

    Vectors of singular values of 0 are arbitrary; adapters of low rank have many.
    """
    U, values, V = torch.linalg.svd(matrix, full_matrices=False)
    rank = int((values > 1e-10 * float(values[:1].sum())).sum())
    return U[:, :rank], values[:rank], V[:rank]


def _orthogonal(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns the nearest matrix to columns side by side with singular values of 1 (or 0)."""
    U, _, V = _decomposed(torch.cat(list(parts), 1))
    return U @ V


def _undisturbed(ridge: float, D: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    """Returns the least disturbing change; a difference of 0 does not count."""
    squares, begin = D.square().sum((1, 2)), _sum(D, shares)
    factors = shares / squares.where(squares > 0, torch.ones_like(squares))
    G = factors[:, None, None] * (D.transpose(1, 2) @ D)
    if not bool(G.any()):
        return begin
    moments = Moments(G.sum(0)[None], (G @ D.transpose(1, 2)).sum(0)[None])
    return solve(moments, begin.T[None], ridge)[0].T
