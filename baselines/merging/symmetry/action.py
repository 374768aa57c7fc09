"""How permutations, hard and soft, act on the axes of one tensor."""

from collections.abc import Mapping

import torch

from fleet_tools.baselines.merging.symmetry.axes import Axis, Product

Blocks = tuple[tuple[int, ...], ...]
"""The sizes of the factors of each product along an axis."""


def act(
    tensor: torch.Tensor,
    axes: tuple[Axis, ...],
    sizes: tuple[Blocks, ...],
    permutation: Mapping[str, torch.Tensor],
) -> torch.Tensor:
    """Permutes every free axis of a tensor; a weight W (out, in) becomes P_out W P_in^T.

    Args:
        tensor: Of any shape.
        axes: What each of its axes holds.
        sizes: Of all their factors.
        permutation: As `PermutationGroup.tensors` returns it.

    Returns:
        A new tensor of the same shape, dtype and device.
    """
    for at, axis in enumerate(axes):
        if len(axis) > 1:
            lengths = [_length(block) for block in sizes[at]]
            parts = [
                act(part, _with(axes, at, (product,)), _with(sizes, at, (block,)), permutation)
                for part, product, block in zip(
                    tensor.split(lengths, dim=at), axis, sizes[at], strict=True
                )
            ]
            return torch.cat(parts, dim=at)
    factors: Product = tuple(factor for (product,) in axes for factor in product)
    unfolded = tensor.reshape([size for (block,) in sizes for size in block])
    result = reorder(unfolded, factors, permutation).reshape(tensor.shape)
    return result if any(not factor.fixed for factor in factors) else result.clone()


def unfold(
    tensor: torch.Tensor, axes: tuple[Axis, ...], sizes: tuple[Blocks, ...]
) -> list[tuple[Product, torch.Tensor]]:
    """Cuts a tensor along its sums, and gives every factor a dimension of its own.

    Args:
        tensor: Of any shape.
        axes: What each of its axes holds.
        sizes: Of all their factors.

    Returns:
        For each part the factors of its dimensions, and a view (where strides allow) of the tensor.
    """
    for at, axis in enumerate(axes):
        if len(axis) > 1:
            parts = tensor.split([_length(block) for block in sizes[at]], dim=at)
            return [
                unfolded
                for part, product, block in zip(parts, axis, sizes[at], strict=True)
                for unfolded in unfold(
                    part, _with(axes, at, (product,)), _with(sizes, at, (block,))
                )
            ]
    factors = tuple(factor for (product,) in axes for factor in product)
    return [(factors, tensor.reshape([size for (block,) in sizes for size in block]))]


def reorder(
    unfolded: torch.Tensor, factors: Product, permutation: Mapping[str, torch.Tensor]
) -> torch.Tensor:
    """Permutes the dimensions that a permutation names, and leaves the others as they are.

    Args:
        unfolded: One dimension for each factor.
        factors: What they hold.
        permutation: Values as `PermutationGroup.tensors` returns them, of any of the free names.
    """
    places: dict[str, int] = {}
    for at, factor in enumerate(factors):
        if factor.fixed:
            continue
        if factor.owner is None:
            places[factor.name] = at
        if factor.name not in permutation:
            continue
        value = permutation[factor.name].to(unfolded.device)
        if value.is_floating_point():
            value = value.to(unfolded.dtype)
        if factor.owner is None:
            unfolded = _reorder(unfolded, at, value)
        else:
            unfolded = _reorder_inside(unfolded, places[factor.owner], at, value)
    return unfolded


def _reorder(tensor: torch.Tensor, at: int, value: torch.Tensor) -> torch.Tensor:
    if not value.is_floating_point():
        return tensor.index_select(at, value)
    if at == tensor.dim() - 1:
        return tensor @ value.T
    return (value @ tensor.flatten(at + 1)).reshape(tensor.shape)


def _reorder_inside(tensor: torch.Tensor, owner: int, at: int, value: torch.Tensor) -> torch.Tensor:
    front = tensor.movedim((owner, at), (0, 1))
    if value.is_floating_point():
        moved = torch.bmm(value, front.flatten(2) if front.dim() > 2 else front.unsqueeze(2))
        moved = moved.reshape(front.shape)
    else:
        moved = front[torch.arange(len(value), device=value.device).unsqueeze(1), value]
    return moved.movedim((0, 1), (owner, at))


def _length(block: tuple[int, ...]) -> int:
    length = 1
    for size in block:
        length *= size
    return length


def _with(values: tuple, at: int, value: tuple) -> tuple:
    return (*values[:at], value, *values[at + 1 :])
