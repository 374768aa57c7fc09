"""The gate of a density-gated ensemble: weights of models by densities of the present inputs."""

from dataclasses import dataclass

import torch

from fleet_merging.errors import MergeError


def density_weights(
    states: torch.Tensor, means: torch.Tensor, factors: torch.Tensor, sharpness: float
) -> torch.Tensor:
    """Returns weights of models in proportion to powers of Gaussian densities, (..., models).

    Args:
        states: Inputs of each model, shape (..., models, n), or (..., 1, n) if they are equal.
        means: Means of each model's training states, (models, n).
        factors: Lower triangular factors of the inverse covariances, (models, n, n).
        sharpness: Power of the densities.
    """
    return torch.softmax(sharpness * log_densities(states, means, factors), -1)


def log_densities(states: torch.Tensor, means: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """Returns logarithms of the densities of `density_weights`, less n log(2 pi) / 2."""
    centred = states - means  # (..., models, n)
    whitened = torch.einsum("...mi,mij->...mj", centred, factors)
    determinants = factors.diagonal(dim1=1, dim2=2).log().sum(1)
    return determinants - whitened.square().sum(-1) / 2


def draw(
    mean: torch.Tensor, factor: torch.Tensor, count: int, generator: torch.Generator
) -> torch.Tensor:
    """Returns draws from the Gaussian of one model, (count, n), by its mean and factor."""
    noise = torch.randn(len(mean), count, generator=generator)
    # The covariance is the inverse of factor @ factor.T.
    return mean + torch.linalg.solve_triangular(factor.T, noise, upper=True).T


@dataclass(frozen=True, eq=False)
class RowGate:
    """Weights for the rows of models that lie side by side, see `density_weights`.

    Densities compare only for equal features. So one model, number `reader`, reads the state for
    all, by its encoders if it has some. The state is the first n inputs of its affine map `map`.
    """

    map: str
    means: torch.Tensor
    factors: torch.Tensor
    sharpness: float
    reader: int = 0

    def weights(self, read: torch.Tensor, count: int) -> torch.Tensor:
        """Returns the weights of the models for each of `count` rows of outputs, (count, models).

        The map's input rows in the model `reader` have the shape (1, rows, inputs). If there are
        several for each row of outputs, such as the patches of an image, their logarithms of
        densities are averaged. Several rows of outputs for each, such as draws of noise, follow one
        another.

        Raises a `MergeError` if the map reads fewer numbers, or in groups, or other numbers of
        rows.
        """
        size = self.means.shape[1]
        groups, rows, inputs = read.shape
        if groups != 1 or inputs < size:
            raise MergeError(
                f"The gate has states of {size} numbers, but {self.map!r} reads rows of {inputs} "
                f"in {groups} group(s). Name the first affine map of the model."
            )
        if not rows or not count or (rows % count and count % rows):
            raise MergeError(
                f"{self.map!r} reads {rows} rows for {count} rows of outputs. A gate needs the "
                "same number of input rows for each output row, such as the patches of an image."
            )
        states = read[0, :, None, :size]
        logarithms = log_densities(states, self.means.to(states), self.factors.to(states))
        if rows > count:
            logarithms = logarithms.unflatten(0, (count, -1)).mean(1)
        weights = torch.softmax(self.sharpness * logarithms, -1)
        return weights.repeat_interleave(count // len(weights), 0)
