"""TIES-merging: only the largest changes count, and only those in the elected direction."""

from collections.abc import Sequence

import torch

from fleet_tools.baselines.merging.errors import MergeError
from fleet_tools.baselines.merging.methods.task_vectors import (
    TaskVector,
    add_to_base,
    task_vectors,
)
from fleet_tools.baselines.merging.problem import MergeProblem, MergeResult


def ties(problem: MergeProblem, *, density: float = 0.2, scale: float = 1.0) -> MergeResult:
    """Trims task vectors, elects the sign of each entry, and averages those that agree with it.

    Yadav et al., "TIES-Merging: Resolving Interference When Merging Models", 2023, Algorithm 1;
    here with averaging weights. The statistics of a BatchNorm are no entries, and are averaged.

    Args:
        problem: The models and their base.
        density: Fraction of each task vector that is kept, the entries that are largest in
            magnitude among all of its tensors; further ones of the smallest kept magnitude, too.
        scale: Multiple of the mean of what agrees, lambda.

    Raises:
        MergeError: There is no base, `density` is not above 0 and at most 1, or `scale` is not
            finite.
    """
    mean = ties_mean(task_vectors(problem), problem.normalized_weights.tolist(), density)
    return add_to_base(problem, mean, scale)


def ties_mean(
    vectors: Sequence[TaskVector], weights: Sequence[float], density: float
) -> TaskVector:
    """Returns the merged task vector, before it is scaled.

    Args:
        vectors: Task vectors.
        weights: Averaging weight of each.
        density: See `ties`.

    Raises:
        MergeError: `density` is not above 0 and at most 1.
    """
    if not 0 < density <= 1:
        raise MergeError(f"The density is {density}. Give a fraction above 0 and at most 1.")
    trimmed = [_trimmed(vector, density) for vector in vectors]
    return {name: _disjoint_mean([each[name] for each in trimmed], weights) for name in vectors[0]}


def _trimmed(vector: TaskVector, density: float) -> TaskVector:
    if not vector:
        return vector
    sizes = torch.cat([tensor.abs().flatten().cpu() for tensor in vector.values()])
    kept = max(1, round(density * len(sizes)))
    smallest = float(sizes.kthvalue(len(sizes) - kept + 1).values)
    return {name: tensor * (tensor.abs() >= smallest) for name, tensor in vector.items()}


def _disjoint_mean(tensors: Sequence[torch.Tensor], weights: Sequence[float]) -> torch.Tensor:
    stacked = torch.stack(list(tensors))
    shares = torch.tensor(weights).to(stacked).reshape(-1, *[1] * tensors[0].dim())
    elected = (shares * stacked).sum(0).sign()
    shares = shares * (stacked.sign() * elected > 0)
    mass = shares.sum(0)
    # Where no entry agrees, all are zero or they cancel out: the base stays.
    return (shares * stacked).sum(0) / mass.where(mass > 0, torch.ones_like(mass))
