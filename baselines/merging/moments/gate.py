"""A gate: how much each of several models knows about what is read at present, by densities."""

from dataclasses import dataclass

import torch

from fleet_tools.baselines.merging.errors import MergeError


def density_weights(
    state: torch.Tensor, means: torch.Tensor, factors: torch.Tensor, sharpness: float
) -> torch.Tensor:
    """Returns weights of models in proportion to powers of Gaussian densities.

    Args:
        state: Shape (..., n).
        means: Means of the states that each model has learned from, (models, n).
        factors: Lower triangular factors of the inverse covariances, (models, n, n).
        sharpness: Power of the densities.

    Returns:
        Weights that sum to 1, (..., models).
    """
    centred = state.unsqueeze(-2) - means  # (..., models, n)
    whitened = torch.einsum("...mi,mij->...mj", centred, factors)
    determinants = factors.diagonal(dim1=1, dim2=2).log().sum(1)
    logarithms = determinants - whitened.square().sum(-1) / 2
    return torch.softmax(sharpness * logarithms, -1)


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

    def weights(self, read: torch.Tensor) -> torch.Tensor:
        """Returns the weights of the models for each row that the map reads, (rows, models).

        Args:
            read: The rows, shape (1, rows, inputs).

        Raises:
            MergeError: The map reads fewer numbers, or in groups.
        """
        size = self.means.shape[1]
        if len(read) != 1 or read.shape[2] < size:
            raise MergeError(
                f"The gate knows states of {size} numbers, and {self.map!r} reads rows of "
                f"{read.shape[2]} in {len(read)} group(s). Name the first affine map of the model."
            )
        means, factors = self.means.to(read), self.factors.to(read)
        return density_weights(read[0, :, :size], means, factors, self.sharpness)
