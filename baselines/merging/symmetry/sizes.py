"""How many units each axis has: an equation per axis, solved from the shapes of a state dict."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

from fleet_tools.baselines.merging.errors import AxisSizeError
from fleet_tools.baselines.merging.symmetry.axes import Axis, Factor, Product, format_axes

Axes = Mapping[str, tuple[Axis, ...]]
"""Every parameter's axes."""

Key = str | tuple[str, int, str]
"""A size that is to be known: a free name's, everywhere, or a fixed name's in its axis."""


@dataclass
class Sizes:
    """What is known so far, and which parameter told it."""

    known: dict[Key, int] = field(default_factory=dict)
    told_by: dict[Key, str] = field(default_factory=dict)

    def of(self, product: Product, parameter: str, axis: int, block: int) -> tuple[int, ...]:
        """The size of each factor of a product; all are known once `solve` has returned."""
        keys = _keys(product, parameter, axis, block)
        return tuple(self.known[key] for key in keys)


def solve(axes: Axes, shapes: Mapping[str, tuple[int, ...]]) -> Sizes:
    """Tells every size from the shapes.

    An axis with one unknown size gives it: 96 = 4 (2 q + v) with v = 8 says that q = 8.

    Args:
        axes: Of every parameter.
        shapes: Of every parameter; the same names.

    Raises:
        AxisSizeError: A parameter has another number of axes, an axis another length than its
            names have elsewhere, or shapes alone do not tell a size.
    """
    for name, its_axes in axes.items():
        if len(its_axes) != len(shapes[name]):
            raise AxisSizeError(
                f"{name} has the shape {tuple(shapes[name])}, and {format_axes(its_axes)!r} "
                f"names {len(its_axes)} axes. Name each of its axes, `_` where nothing permutes it."
            )
    sizes = _written(axes)
    pending = [(name, at) for name, its_axes in axes.items() for at in range(len(its_axes))]
    while pending:
        rest = [(name, at) for name, at in pending if not _tell(sizes, axes, shapes, name, at)]
        if len(rest) == len(pending):
            raise AxisSizeError(_untold(sizes, axes, *rest[0]))
        pending = rest
    return sizes


def _written(axes: Axes) -> Sizes:
    sizes = Sizes()
    for name, at, block, product in _products(axes):
        for key, factor in zip(_keys(product, name, at, block), product, strict=True):
            if factor.size is None:
                continue
            if sizes.known.setdefault(key, factor.size) != factor.size:
                raise AxisSizeError(
                    f"{factor.name!r} has {sizes.known[key]} units in {sizes.told_by[key]} and "
                    f"{factor.size} in {name}. Write one size, or give one of them another name."
                )
            sizes.told_by.setdefault(key, name)
    return sizes


def _tell(sizes: Sizes, axes: Axes, shapes: Mapping, name: str, at: int) -> bool:
    """Whether an axis has nothing more to tell, having learned its one unknown where it could."""
    axis, length = axes[name][at], shapes[name][at]
    unknown = _unknown(sizes, axis, name, at)
    if len(unknown) > 1:
        return False
    constant, slope = 0, 0
    for block, product in enumerate(axis):
        keys = _keys(product, name, at, block)
        known = prod(sizes.known[key] for key in keys if key in sizes.known)
        if any(key in unknown for key in keys):
            slope += known
        else:
            constant += known
    if not unknown and constant == length:
        return True
    size, remainder = divmod(length - constant, slope) if slope else (0, 1)
    if remainder or size < 1:
        raise AxisSizeError(_misfit(sizes, axis, name, at, shapes[name]))
    (key,) = unknown
    sizes.known[key], sizes.told_by[key] = size, name
    return True


def _products(axes: Axes) -> Iterator[tuple[str, int, int, Product]]:
    for name, its_axes in axes.items():
        for at, axis in enumerate(its_axes):
            for block, product in enumerate(axis):
                yield name, at, block, product


def _keys(product: Product, name: str, at: int, block: int) -> list[Key]:
    def key(position: int, factor: Factor) -> Key:
        if not factor.fixed:
            return factor.name
        # A bare `_` has no name to share a size by.
        label = factor.name if factor.name != "_" else f"_{block}.{position}"
        return (name, at, label)

    return [key(position, factor) for position, factor in enumerate(product)]


def _unknown(sizes: Sizes, axis: Axis, name: str, at: int) -> set[Key]:
    keys = (key for b, product in enumerate(axis) for key in _keys(product, name, at, b))
    return {key for key in keys if key not in sizes.known}


def _misfit(sizes: Sizes, axis: Axis, name: str, at: int, shape: tuple[int, ...]) -> str:
    parts = []
    for block, product in enumerate(axis):
        for key, factor in zip(_keys(product, name, at, block), product, strict=True):
            if key in sizes.known:
                parts.append(f"{factor.name} has {sizes.known[key]} (told by {sizes.told_by[key]})")
    return (
        f"{name} has the shape {tuple(shape)}, and its axis {at}, {format_axes((axis,))!r}, does "
        f"not come to {shape[at]}: {', '.join(dict.fromkeys(parts)) or 'no size fits'}. "
        "Mend the table, or the model."
    )


def _untold(sizes: Sizes, axes: Axes, name: str, at: int) -> str:
    unknown = _unknown(sizes, axes[name][at], name, at)
    names = sorted(key if isinstance(key, str) else key[2] for key in unknown)
    return (
        f"The shapes alone do not tell the sizes of {', '.join(names)} in {name}, "
        f"{format_axes(axes[name])!r}. Write all but one of them, as in head:4."
    )
