"""A gate: how much each of several models knows about what is read at present, by densities."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from fleet_merging.errors import MergeError


def density_weights(
    states: torch.Tensor, means: torch.Tensor, factors: torch.Tensor, sharpness: float
) -> torch.Tensor:
    """Returns weights of models in proportion to powers of Gaussian densities.

    Args:
        states: What each model reads, shape (..., models, n), or (..., 1, n) if it is the same.
        means: Means of the states that each model has learned from, (models, n).
        factors: Lower triangular factors of the inverse covariances, (models, n, n).
        sharpness: Power of the densities.

    Returns:
        Weights that sum to 1, (..., models).
    """
    return torch.softmax(sharpness * log_densities(states, means, factors), -1)


def log_densities(states: torch.Tensor, means: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """Returns logarithms of Gaussian densities less n log(2 pi) / 2, shape (..., models).

    Args:
        states: As in `density_weights`.
        means: As in `density_weights`.
        factors: As in `density_weights`.
    """
    centred = states - means  # (..., models, n)
    whitened = torch.einsum("...mi,mij->...mj", centred, factors)
    determinants = factors.diagonal(dim1=1, dim2=2).log().sum(1)
    return determinants - whitened.square().sum(-1) / 2


@dataclass(frozen=True, eq=False)
class RowGate:
    """Weights for the rows of models that lie side by side, see `density_weights`.

    Attributes:
        map: Name of the affine map whose first n inputs are the state.
        means: As in `density_weights`.
        factors: As in `density_weights`.
        sharpness: As in `density_weights`.
    """

    map: str
    means: torch.Tensor
    factors: torch.Tensor
    sharpness: float

    def weights(self, read: Sequence[torch.Tensor], count: int) -> torch.Tensor:
        """Returns the weights of the models for each row of outputs, (count, models).

        Args:
            read: The rows that the map reads in each model, shape (1, rows, inputs). If it reads
                several for each row of outputs, such as the patches of an image, their logarithms
                of densities are averaged.
            count: Number of rows of outputs.

        Raises:
            MergeError: The map reads fewer numbers, or in groups, or other numbers of rows.
        """
        size = self.means.shape[1]
        groups, rows, inputs = read[0].shape
        if groups != 1 or inputs < size:
            raise MergeError(
                f"The gate knows states of {size} numbers, and {self.map!r} reads rows of "
                f"{inputs} in {groups} group(s). Name the first affine map of the model."
            )
        if not count or rows % count:
            raise MergeError(
                f"{self.map!r} reads {rows} rows for {count} rows of outputs, which have no share "
                "in common. A gate needs the same number for each, such as the patches of an image."
            )
        states = torch.stack([each[0, :, :size] for each in read], 1)
        means, factors = self.means.to(states), self.factors.to(states)
        logarithms = log_densities(states, means, factors)
        if rows != count:
            logarithms = logarithms.unflatten(0, (count, -1)).mean(1)
        return torch.softmax(self.sharpness * logarithms, -1)
