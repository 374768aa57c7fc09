"""A wider model that has the hidden units of several models side by side."""

from collections.abc import Sequence

import torch

from fleet_tools.baselines.merging.errors import MergeError
from fleet_tools.baselines.merging.symmetry.axes import Axis
from fleet_tools.baselines.merging.symmetry.table import State, Symmetry


def concatenate(symmetry: Symmetry, models: Sequence[State]) -> dict[str, torch.Tensor]:
    """Returns the model of the same architecture, N times as wide, whose outputs are the mean.

    Along axes that may be permuted, the models follow one another; units of different models are
    not connected. The outputs are exactly the mean of the models' outputs, for architectures whose
    layers are linear maps and functions of single units (not for layers that normalize).

    Args:
        symmetry: Table of the axes of one model.
        models: The N models.

    Raises:
        MergeError: An axis of a parameter is neither fixed nor a single permutation.
    """
    return {
        name: _side_by_side(name, symmetry.axes[name], [model[name] for model in models])
        for name in models[0]
    }


def _side_by_side(
    name: str, axes: tuple[Axis, ...], tensors: Sequence[torch.Tensor]
) -> torch.Tensor:
    free = [_is_free(name, axis) for axis in axes]
    count, shape = len(tensors), tensors[0].shape
    joined = tensors[0].new_zeros(
        [size * count if moves else size for size, moves in zip(shape, free, strict=True)]
    )
    for index, tensor in enumerate(tensors):
        block = tuple(
            slice(index * size, (index + 1) * size) if moves else slice(None)
            for size, moves in zip(shape, free, strict=True)
        )
        joined[block] += tensor
    # What does not follow units, such as outputs and their biases, is shared by all models.
    return joined if free and free[0] else joined / count


def _is_free(name: str, axis: Axis) -> bool:
    factors = [factor for product in axis for factor in product]
    if all(factor.fixed for factor in factors):
        return False
    if len(factors) == 1 and factors[0].owner is None:
        return True
    raise MergeError(
        f"An axis of {name} joins several permutations, and cannot be made wider. Concatenate "
        "models whose axes are single permutations, such as those of an MLP."
    )
