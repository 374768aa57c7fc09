"""Models of one vector of parameters, whose losses and merges can be computed by hand."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import nn

from fleet_merging.average import AveragingWeights
from fleet_merging.problem import MergeProblem
from fleet_merging.queries.data_holder import DataHolder, LocalDataHolder
from fleet_merging.symmetry.table import Symmetry

Numbers = Sequence[float] | np.ndarray


class _Vector(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.zeros(size, dtype=torch.float64))

    def forward(self) -> torch.Tensor:
        return self.x


def state_of(numbers: Numbers) -> dict[str, torch.Tensor]:
    """Returns the state dict of a model."""
    return {"x": torch.tensor(np.asarray(numbers), dtype=torch.float64)}


def holder(size: int, loss: Callable[[torch.Tensor, int | None], torch.Tensor]) -> LocalDataHolder:
    """Returns a data holder with a loss of the vector and a seed."""
    return LocalDataHolder(_Vector(size), lambda policy, seed: loss(policy(), seed))


def gaussian(mean: Numbers, precision: Numbers) -> LocalDataHolder:
    """Returns a data holder with the negative logarithm of a Gaussian density of the vector.

    Each draw is one standard deviation above or below the mean, in all numbers at once.

    Args:
        mean: The mean of its data.
        precision: Their inverse variances, which are the diagonal of the loss's Hessian and, at the
            mean, of its Fisher information.
    """
    center, weight = torch.tensor(np.asarray(mean)), torch.tensor(np.asarray(precision))

    def loss(x: torch.Tensor, seed: int | None) -> torch.Tensor:
        side = 0 if seed is None else 2 * (seed % 2) - 1
        return (weight * (x - center - side / weight.sqrt()).square()).sum() / 2

    return holder(len(center), loss)


def vectors(
    models: Sequence[Numbers],
    holders: Sequence[DataHolder] = (),
    weights: AveragingWeights | None = None,
    base: Numbers | None = None,
    seed: int = 0,
) -> MergeProblem:
    """Returns the problem of merging vectors."""
    return MergeProblem(
        Symmetry.of({"x": "_"}),
        [state_of(each) for each in models],
        averaging_weights=weights,
        data_holders=holders,
        base=None if base is None else state_of(base),
        seed=seed,
    )
