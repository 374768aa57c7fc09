"""Action of permutations, hard and soft, on the axes of one tensor."""

import math
from collections.abc import Mapping

import torch

from fleet_tools.baselines.merging.symmetry.axes import Axis, Product

Blocks = tuple[tuple[int, ...], ...]
"""Sizes of the factors of each product along an axis."""


def act(
    tensor: torch.Tensor,
    axes: tuple[Axis, ...],
    sizes: tuple[Blocks, ...],
    permutation: Mapping[str, torch.Tensor],
) -> torch.Tensor:
    """Permutes every free axis of a tensor; a weight W (out, in) becomes P_out W P_in^T.

    Args:
        tensor: A tensor of any shape.
        axes: Its axes.
        sizes: Sizes of all factors of the axes.
        permutation: An element as `PermutationGroup.tensors` returns it.

    Returns:
        A new tensor of the same shape, dtype and device.
    """
    for dim, axis in enumerate(axes):
        if len(axis) > 1:
            lengths = [math.prod(block) for block in sizes[dim]]
            parts = [
                act(part, _with(axes, dim, (product,)), _with(sizes, dim, (block,)), permutation)
                for part, product, block in zip(
                    tensor.split(lengths, dim=dim), axis, sizes[dim], strict=True
                )
            ]
            return torch.cat(parts, dim=dim)
    factors: Product = tuple(factor for (product,) in axes for factor in product)
    unfolded = tensor.reshape([size for (block,) in sizes for size in block])
    result = reorder(unfolded, factors, permutation).reshape(tensor.shape)
    return result if any(not factor.fixed for factor in factors) else result.clone()


def unfold(
    tensor: torch.Tensor, axes: tuple[Axis, ...], sizes: tuple[Blocks, ...]
) -> list[tuple[Product, torch.Tensor]]:
    """Splits a tensor along its sums, and gives every factor its own dimension.

    Args:
        tensor: A tensor of any shape.
        axes: Its axes.
        sizes: Sizes of all factors of the axes.

    Returns:
        For each part the factors of its dimensions, and a view (if strides allow) of the tensor.
    """
    for dim, axis in enumerate(axes):
        if len(axis) > 1:
            parts = tensor.split([math.prod(block) for block in sizes[dim]], dim=dim)
            return [
                unfolded
                for part, product, block in zip(parts, axis, sizes[dim], strict=True)
                for unfolded in unfold(
                    part, _with(axes, dim, (product,)), _with(sizes, dim, (block,))
                )
            ]
    factors = tuple(factor for (product,) in axes for factor in product)
    return [(factors, tensor.reshape([size for (block,) in sizes for size in block]))]


def reorder(
    unfolded: torch.Tensor, factors: Product, permutation: Mapping[str, torch.Tensor]
) -> torch.Tensor:
    """Permutes the dimensions that a permutation names, and no others.

    Args:
        unfolded: A tensor with one dimension for each factor.
        factors: What its dimensions hold.
        permutation: Values as `PermutationGroup.tensors` returns them, for any free names.
    """
    owner_dims: dict[str, int] = {}
    for dim, factor in enumerate(factors):
        if factor.fixed:
            continue
        if factor.owner is None:
            owner_dims[factor.name] = dim
        if factor.name not in permutation:
            continue
        value = permutation[factor.name].to(unfolded.device)
        if value.is_floating_point():
            value = value.to(unfolded.dtype)
        if factor.owner is None:
            unfolded = _reorder(unfolded, dim, value)
        else:
            unfolded = _reorder_inside(unfolded, owner_dims[factor.owner], dim, value)
    return unfolded


def _reorder(tensor: torch.Tensor, dim: int, value: torch.Tensor) -> torch.Tensor:
    if not value.is_floating_point():
        return tensor.index_select(dim, value)
    if dim == tensor.dim() - 1:
        return tensor @ value.T
    return (value @ tensor.flatten(dim + 1)).reshape(tensor.shape)


def _reorder_inside(
    tensor: torch.Tensor, owner: int, dim: int, value: torch.Tensor
) -> torch.Tensor:
    front = tensor.movedim((owner, dim), (0, 1))
    if value.is_floating_point():
        moved = torch.bmm(value, front.flatten(2) if front.dim() > 2 else front.unsqueeze(2))
        moved = moved.reshape(front.shape)
    else:
        moved = front[torch.arange(len(value), device=value.device).unsqueeze(1), value]
    return moved.movedim((0, 1), (owner, dim))


def _with(values: tuple, index: int, value: tuple) -> tuple:
    return (*values[:index], value, *values[index + 1 :])
