"""Numbers of units, and the action of permutations, hard and soft, on the axes of one tensor.

The numbers solve one equation for each axis, from the shapes of a state dict.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

import torch

from fleet_merging.errors import AxisSizeError
from fleet_merging.symmetry.axes import Axis, Factor, Product, format_axes

Blocks = tuple[tuple[int, ...], ...]
"""Sizes of the factors of each product along an axis."""

Axes = Mapping[str, tuple[Axis, ...]]
"""The axes of every parameter."""

_Key = str | tuple[str, int, str]
"""A size to resolve: a free name everywhere, or (parameter, axis, fixed name)."""


@dataclass(frozen=True)
class Layout:
    """Numbers of units of models of one form.

    Attributes:
        sizes: Number of units of each free name.
        blocks: By parameter, the sizes of all factors of each axis.
    """

    sizes: Mapping[str, int]
    blocks: Mapping[str, tuple[Blocks, ...]]


def solve(axes: Axes, shapes: Mapping[str, tuple[int, ...]]) -> Layout:
    """Resolves every size of the axes of all parameters from their shapes.

    An axis with one unknown size determines it: 96 = 4 (2 q + v) with v = 8 gives q = 8.

    Raises an `AxisSizeError` if a parameter has another number of axes, an axis has another length
    than its names elsewhere, or the shapes do not determine a size.
    """
    for name, parameter_axes in axes.items():
        if len(parameter_axes) != len(shapes[name]):
            raise AxisSizeError(
                f"{name} has the shape {tuple(shapes[name])}, and {format_axes(parameter_axes)!r} "
                f"names {len(parameter_axes)} axes. Name each of its axes; write `_` for an axis "
                "that is never permuted."
            )
    sizes = _written_sizes(axes)
    pending = [(name, dim) for name, each in axes.items() for dim in range(len(each))]
    while pending:
        rest = [
            (name, dim) for name, dim in pending if not _resolve(sizes, axes, shapes, name, dim)
        ]
        if len(rest) == len(pending):
            raise AxisSizeError(_undetermined(sizes, axes, *rest[0]))
        pending = rest

    def of(product: Product, name: str, dim: int, block: int) -> tuple[int, ...]:
        return tuple(sizes.resolved[key] for key in _keys(product, name, dim, block))

    free = {key: size for key, size in sizes.resolved.items() if isinstance(key, str)}
    blocks = {
        name: tuple(
            tuple(of(product, name, dim, block) for block, product in enumerate(axis))
            for dim, axis in enumerate(parameter_axes)
        )
        for name, parameter_axes in axes.items()
    }
    return Layout(free, blocks)


@dataclass
class _Sizes:
    """Resolved sizes so far, and the parameters that determined them."""

    resolved: dict[_Key, int] = field(default_factory=dict)
    sources: dict[_Key, str] = field(default_factory=dict)


def _written_sizes(axes: Axes) -> _Sizes:
    sizes = _Sizes()
    for name, dim, block, product in _products(axes):
        for key, factor in zip(_keys(product, name, dim, block), product, strict=True):
            if factor.size is None:
                continue
            if sizes.resolved.setdefault(key, factor.size) != factor.size:
                raise AxisSizeError(
                    f"{factor.name!r} has {sizes.resolved[key]} units in {sizes.sources[key]} and "
                    f"{factor.size} in {name}. Write one size, or give one of them another name."
                )
            sizes.sources.setdefault(key, name)
    return sizes


def _resolve(
    sizes: _Sizes, axes: Axes, shapes: Mapping[str, tuple[int, ...]], name: str, dim: int
) -> bool:
    """Resolves the unknown size of an axis if there is one; returns False if there are more."""
    axis, length = axes[name][dim], shapes[name][dim]
    unknown = _unknown(sizes, axis, name, dim)
    if len(unknown) > 1:
        return False
    constant, slope = 0, 0
    for block, product in enumerate(axis):
        keys = _keys(product, name, dim, block)
        known = prod(sizes.resolved[key] for key in keys if key in sizes.resolved)
        if any(key in unknown for key in keys):
            slope += known
        else:
            constant += known
    if not unknown and constant == length:
        return True
    size, remainder = divmod(length - constant, slope) if slope else (0, 1)
    if remainder or size < 1:
        raise AxisSizeError(_misfit(sizes, axis, name, dim, shapes[name]))
    (key,) = unknown
    sizes.resolved[key], sizes.sources[key] = size, name
    return True


def _products(axes: Axes) -> Iterator[tuple[str, int, int, Product]]:
    for name, parameter_axes in axes.items():
        for dim, axis in enumerate(parameter_axes):
            for block, product in enumerate(axis):
                yield name, dim, block, product


def _keys(product: Product, name: str, dim: int, block: int) -> list[_Key]:
    def key(position: int, factor: Factor) -> _Key:
        if not factor.fixed:
            return factor.name
        # A bare `_` has no name to share a size by.
        label = factor.name if factor.name != "_" else f"_{block}.{position}"
        return (name, dim, label)

    return [key(position, factor) for position, factor in enumerate(product)]


def _unknown(sizes: _Sizes, axis: Axis, name: str, dim: int) -> set[_Key]:
    keys = (key for b, product in enumerate(axis) for key in _keys(product, name, dim, b))
    return {key for key in keys if key not in sizes.resolved}


def _misfit(sizes: _Sizes, axis: Axis, name: str, dim: int, shape: tuple[int, ...]) -> str:
    parts = [
        f"{factor.name} has {sizes.resolved[key]} (from {sizes.sources[key]})"
        for block, product in enumerate(axis)
        for key, factor in zip(_keys(product, name, dim, block), product, strict=True)
        if key in sizes.resolved
    ]
    return (
        f"{name} has the shape {tuple(shape)}, and its axis {dim}, {format_axes((axis,))!r}, does "
        f"not give {shape[dim]}: {', '.join(dict.fromkeys(parts)) or 'no size fits'}. "
        "Correct the table, or the model."
    )


def _undetermined(sizes: _Sizes, axes: Axes, name: str, dim: int) -> str:
    unknown = _unknown(sizes, axes[name][dim], name, dim)
    names = sorted(key if isinstance(key, str) else key[2] for key in unknown)
    return (
        f"The shapes do not determine the sizes of {', '.join(names)} in {name}, "
        f"{format_axes(axes[name])!r}. Write all but one of them, as in head:4."
    )


def act(
    tensor: torch.Tensor,
    axes: tuple[Axis, ...],
    sizes: tuple[Blocks, ...],
    permutation: Mapping[str, torch.Tensor],
) -> torch.Tensor:
    """Permutes every free axis of a tensor; a weight W (out, in) becomes P_out W P_in^T.

    The sizes are of all factors of the axes. The permutation is as `PermutationGroup.tensors`
    returns it. The result is a new tensor of the same shape, dtype and device.
    """
    for dim, axis in enumerate(axes):
        if len(axis) > 1:
            lengths = [prod(block) for block in sizes[dim]]
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

    It returns for each part the factors of its dimensions, and a view (if strides allow).
    """
    for dim, axis in enumerate(axes):
        if len(axis) > 1:
            parts = tensor.split([prod(block) for block in sizes[dim]], dim=dim)
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
    """Permutes only the dimensions that a permutation, of any free names, has.

    The tensor has one dimension for each factor.
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
