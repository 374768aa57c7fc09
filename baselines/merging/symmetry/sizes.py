"""Numbers of units: one equation for each axis, solved from the shapes of a state dict."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod

from fleet_tools.baselines.merging.errors import AxisSizeError
from fleet_tools.baselines.merging.symmetry.axes import Axis, Factor, Product, format_axes

Axes = Mapping[str, tuple[Axis, ...]]
"""The axes of every parameter."""

Key = str | tuple[str, int, str]
"""A size to resolve: a free name everywhere, or (parameter, axis, fixed name)."""


@dataclass
class Sizes:
    """Sizes that are resolved so far, and the parameters that determined them."""

    resolved: dict[Key, int] = field(default_factory=dict)
    sources: dict[Key, str] = field(default_factory=dict)

    def of(self, product: Product, parameter: str, axis: int, block: int) -> tuple[int, ...]:
        """Returns the sizes of the factors of a product, once `solve` has resolved them.

        Args:
            product: The product.
            parameter: Name of its parameter.
            axis: Index of its axis.
            block: Index of the product along the axis.
        """
        keys = _keys(product, parameter, axis, block)
        return tuple(self.resolved[key] for key in keys)


def solve(axes: Axes, shapes: Mapping[str, tuple[int, ...]]) -> Sizes:
    """Resolves every size from the shapes; the result is shared, and not to be changed.

    An axis with one unknown size determines it: 96 = 4 (2 q + v) with v = 8 gives q = 8.

    Args:
        axes: Axes of every parameter.
        shapes: Shapes of the same parameters.

    Raises:
        AxisSizeError: A parameter has another number of axes, an axis has another length than its
            names have elsewhere, or the shapes do not determine a size.
    """
    for name, parameter_axes in axes.items():
        if len(parameter_axes) != len(shapes[name]):
            raise AxisSizeError(
                f"{name} has the shape {tuple(shapes[name])}, and {format_axes(parameter_axes)!r} "
                f"names {len(parameter_axes)} axes. Name each of its axes, `_` where nothing "
                "permutes it."
            )
    return _solve(tuple(axes.items()), tuple(shapes.items()))


@lru_cache(maxsize=16)  # merging asks for the same sizes again with each of many models
def _solve(
    axes_items: tuple[tuple[str, tuple[Axis, ...]], ...],
    shape_items: tuple[tuple[str, tuple[int, ...]], ...],
) -> Sizes:
    axes, shapes = dict(axes_items), dict(shape_items)
    sizes = _written_sizes(axes)
    pending = [(name, dim) for name, each in axes.items() for dim in range(len(each))]
    while pending:
        rest = [
            (name, dim) for name, dim in pending if not _resolve(sizes, axes, shapes, name, dim)
        ]
        if len(rest) == len(pending):
            raise AxisSizeError(_undetermined(sizes, axes, *rest[0]))
        pending = rest
    return sizes


def _written_sizes(axes: Axes) -> Sizes:
    sizes = Sizes()
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
    sizes: Sizes, axes: Axes, shapes: Mapping[str, tuple[int, ...]], name: str, dim: int
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


def _keys(product: Product, name: str, dim: int, block: int) -> list[Key]:
    def key(position: int, factor: Factor) -> Key:
        if not factor.fixed:
            return factor.name
        # A bare `_` has no name by which to share a size.
        label = factor.name if factor.name != "_" else f"_{block}.{position}"
        return (name, dim, label)

    return [key(position, factor) for position, factor in enumerate(product)]


def _unknown(sizes: Sizes, axis: Axis, name: str, dim: int) -> set[Key]:
    keys = (key for b, product in enumerate(axis) for key in _keys(product, name, dim, b))
    return {key for key in keys if key not in sizes.resolved}


def _misfit(sizes: Sizes, axis: Axis, name: str, dim: int, shape: tuple[int, ...]) -> str:
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


def _undetermined(sizes: Sizes, axes: Axes, name: str, dim: int) -> str:
    unknown = _unknown(sizes, axes[name][dim], name, dim)
    names = sorted(key if isinstance(key, str) else key[2] for key in unknown)
    return (
        f"The shapes do not determine the sizes of {', '.join(names)} in {name}, "
        f"{format_axes(axes[name])!r}. Write all but one of them, as in head:4."
    )
