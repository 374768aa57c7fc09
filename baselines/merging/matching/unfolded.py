"""Tensors of two models, unfolded for matching: one dimension for each factor of the axes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from fleet_tools.baselines.merging.symmetry.action import reorder
from fleet_tools.baselines.merging.symmetry.axes import Product
from fleet_tools.baselines.merging.symmetry.table import State, Symmetry

Indices = dict[str, torch.Tensor]
"""Index arrays of free names."""


@dataclass(frozen=True)
class UnfoldedPair:
    """A tensor of the reference and the same tensor of the model, unfolded.

    Attributes:
        factors: What the dimensions hold.
        reference: The reference's tensor, with one dimension for each factor.
        tensor: The model's tensor, of the same shape.
    """

    factors: Product
    reference: torch.Tensor
    tensor: torch.Tensor

    def names(self) -> list[str]:
        """Returns the free names of the factors, each once."""
        return list(dict.fromkeys(factor.name for factor in self.factors if not factor.fixed))

    def dims(self, name: str) -> list[int]:
        """Returns the dimensions that a name permutes."""
        return [dim for dim, factor in enumerate(self.factors) if factor.name == name]

    def with_leading(
        self, names: Sequence[str], permutation: Indices
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns both tensors with the dimensions of `names` first and all others flattened.

        Args:
            names: Names whose dimensions come first.
            permutation: Permutation of the model's tensor, of any of the names.
        """
        leading = [dim for name in dict.fromkeys(names) for dim in self.dims(name)]
        front = list(range(len(leading)))
        permuted = reorder(self.tensor, self.factors, permutation)
        R, W = (tensor.movedim(leading, front) for tensor in (self.reference, permuted))
        shape = (*R.shape[: len(leading)], -1)
        return R.reshape(shape), W.reshape(shape)

    def product(self, permutation: Indices) -> float:
        """Returns the scalar product of the reference's tensor with the permuted one."""
        return float((self.reference * reorder(self.tensor, self.factors, permutation)).sum())


def unfold_models(symmetry: Symmetry, reference: State, model: State) -> list[UnfoldedPair]:
    """Returns all floating-point tensors of two models in pairs."""
    return [
        UnfoldedPair(factors, _at_least_single(R), _at_least_single(W))
        for (factors, R), (_, W) in zip(
            symmetry.unfold(reference), symmetry.unfold(model), strict=True
        )
    ]


def total_product(pairs: Iterable[UnfoldedPair], permutation: Indices) -> float:
    """Returns the sum of the pairs' products, <reference, P(model)>."""
    return sum(pair.product(permutation) for pair in pairs)


def _at_least_single(tensor: torch.Tensor) -> torch.Tensor:
    # Sums in half precision would drift.
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
