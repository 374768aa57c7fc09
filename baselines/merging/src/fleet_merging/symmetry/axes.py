"""Axis strings: which permutation acts on which axis of a parameter, as text.

A string names a parameter's axes in order, separated by spaces, such as `"h1 h1"`:

    h             a free axis: its units may be reordered, by the permutation called `h`
    _in           a fixed axis: its order has a meaning (observations, gates, pixels, ...)
    (c _hw:4)     a product, flattened in row-major order: every unit of c is 4 entries long
    (a | b)       a sum: a's entries, then b's (concatenated features, Q beside K beside V)
    h:64          a size, where shapes alone do not determine it
    (head:4 k@head)  inside each unit of `head` a separate permutation of `k`

The string of a scalar is empty. A free name stands for the same permutation everywhere. A fixed
name is only a readable label, with one size within its axis. Products are the patterns of `einops`,
and free names are git-re-basin's "axes to permutation" (Ainsworth et al. 2023). Sums and owners are
additions of this package.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from fleet_merging.errors import AxisSyntaxError

_TOKEN = re.compile(r"[()|]|[^\s()|]+")
_FACTOR = re.compile(
    r"(?P<name>_\w*|[A-Za-z][\w.]*)(?:@(?P<owner>[A-Za-z][\w.]*))?(?::(?P<n>\d+))?"
)


@dataclass(frozen=True)
class Factor:
    """A factor of a product.

    Attributes:
        name: Name of the permutation; with a leading `_` if the axis is fixed.
        size: Number of units; None if the shapes determine it.
        owner: Name of a free axis: each of its units has its own permutation of this factor.
    """

    name: str
    size: int | None = None
    owner: str | None = None

    @cached_property
    def fixed(self) -> bool:
        """Whether no permutation acts here."""
        return self.name.startswith("_")

    def __str__(self) -> str:
        """Returns the factor as text."""
        owner = f"@{self.owner}" if self.owner else ""
        size = f":{self.size}" if self.size is not None else ""
        return self.name + owner + size


Product = tuple[Factor, ...]
Axis = tuple[Product, ...]
"""The products along an axis: several for a sum, otherwise one."""


def parse_axes(text: str) -> tuple[Axis, ...]:
    """Returns the axes of an axis string, such as `"(_gate:4 h) _in"`.

    Raises an `AxisSyntaxError` with the position if the string cannot be read.
    """
    tokens = [(match.group(), match.start()) for match in _TOKEN.finditer(text)]
    axes: list[Axis] = []
    while tokens:
        token, position = tokens.pop(0)
        if token == "(":
            axes.append(_parse_sum(tokens, text, position))
        elif token in (")", "|"):
            raise _syntax_error(text, position, f"`{token}` is outside of parentheses")
        else:
            axes.append(((_parse_factor(token, text, position),),))
    _check_names(axes, text)
    return tuple(axes)


def format_axes(axes: tuple[Axis, ...]) -> str:
    """Returns axes as an axis string, from which `parse_axes` makes equal ones."""
    return " ".join(map(_format_axis, axes))


def _format_axis(axis: Axis) -> str:
    text = " | ".join(" ".join(map(str, product)) for product in axis)
    return text if len(axis) == len(axis[0]) == 1 else f"({text})"


def _parse_sum(tokens: list[tuple[str, int]], text: str, opened: int) -> Axis:
    products: list[list[Factor]] = [[]]
    while tokens:
        token, position = tokens.pop(0)
        if token == "(":
            raise _syntax_error(text, position, "parentheses are not nested; write (a b c | d)")
        if token in (")", "|"):
            if not products[-1]:
                raise _syntax_error(text, position, f"a name is missing before `{token}`")
            if token == ")":
                return tuple(map(tuple, products))
            products.append([])
        else:
            products[-1].append(_parse_factor(token, text, position))
    raise _syntax_error(text, opened, "the parenthesis is never closed")


def _parse_factor(token: str, text: str, position: int) -> Factor:
    match = _FACTOR.fullmatch(token)
    if match is None:
        reason = f"{token!r} is not an axis; write h, h:64, _in, _hw:4 or k@head:16"
        raise _syntax_error(text, position, reason)
    name, owner = match["name"], match["owner"]
    size = None if match["n"] is None else int(match["n"])
    if size == 0:
        raise _syntax_error(text, position, f"{token!r} is empty; a size is at least 1")
    if owner and name.startswith("_"):
        reason = f"{name!r} is fixed, so nothing in {owner!r} permutes it"
        raise _syntax_error(text, position, reason)
    return Factor(name, size, owner)


def _check_names(axes: Sequence[Axis], text: str) -> None:
    earlier: set[str] = set()  # without names in sums, which cover only a part of their axis
    for axis in axes:
        for product in axis:
            in_product: set[str] = set()
            for factor in (factor for factor in product if factor.name != "_"):
                if factor.name in in_product:
                    reason = f"{factor.name!r} occurs twice in one product"
                    raise _syntax_error(text, 0, reason)
                if factor.owner and factor.owner not in earlier | in_product:
                    reason = (
                        f"{str(factor)!r} has no owner before it; the owner comes first, as in "
                        f"({factor.owner} {factor})"
                    )
                    raise _syntax_error(text, 0, reason)
                in_product.add(factor.name)
        if len(axis) == 1:
            earlier |= {factor.name for factor in axis[0]}


def _syntax_error(text: str, position: int, reason: str) -> AxisSyntaxError:
    return AxisSyntaxError(
        f"The axes {text!r} cannot be read (character {position + 1}): {reason}."
    )
