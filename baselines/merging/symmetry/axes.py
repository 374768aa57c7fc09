"""Axis strings: which permutation acts on which axis of a parameter, as text.

A string names a parameter's axes in order, separated by spaces, such as `"h1 h1"`:

    h             a free axis: its units may be reordered, by the permutation called `h`
    _in           a fixed axis: its order means something (observations, gates, pixels, ...)
    (c _hw:4)     a product, flattened in row-major order: every unit of c is 4 entries long
    (a | b)       a sum: a's entries, then b's (concatenated features, Q beside K beside V)
    h:64          says a size, where shapes alone do not tell it
    (head:4 k@head)  a permutation of its own, of `k`, inside each unit of `head`

The empty string is a scalar's. A free name means the same permutation wherever it stands; a fixed
name only lends a readable label, and one size within its axis. Products are `einops`' patterns and
free names git-re-basin's "axes to permutation" (Ainsworth et al. 2023); sums and owners are ours.
"""

import re
from dataclasses import dataclass

from fleet_tools.baselines.merging.errors import AxisSyntaxError

_TOKEN = re.compile(r"[()|]|[^\s()|]+")
_FACTOR = re.compile(
    r"(?P<name>_\w*|[A-Za-z][\w.]*)(?:@(?P<owner>[A-Za-z][\w.]*))?(?::(?P<n>\d+))?"
)


@dataclass(frozen=True)
class Factor:
    """One name of a product.

    Args:
        name: Of the permutation; with a leading `_` where the axis is fixed.
        size: How many units, or None where the shapes are to tell.
        owner: The free axis each of whose units has a permutation of its own of this one.
    """

    name: str
    size: int | None = None
    owner: str | None = None

    @property
    def fixed(self) -> bool:
        """Whether no permutation acts here."""
        return self.name.startswith("_")

    def __str__(self) -> str:
        owner = f"@{self.owner}" if self.owner else ""
        size = f":{self.size}" if self.size is not None else ""
        return self.name + owner + size


Product = tuple[Factor, ...]
Axis = tuple[Product, ...]
"""The products that follow one another along an axis; one, but for sums."""


def parse_axes(text: str) -> tuple[Axis, ...]:
    """Reads an axis string, such as `"(_gate:4 h) _in"`.

    Raises:
        AxisSyntaxError: It cannot be read; the message shows where.
    """
    tokens = [(match.group(), match.start()) for match in _TOKEN.finditer(text)]
    axes: list[Axis] = []
    while tokens:
        token, at = tokens.pop(0)
        if token == "(":
            axes.append(_parse_sum(tokens, text, at))
        elif token in (")", "|"):
            raise _unreadable(text, at, f"`{token}` stands outside of parentheses")
        else:
            axes.append(((_parse_factor(token, text, at),),))
    _check_names(axes, text)
    return tuple(axes)


def format_axes(axes: tuple[Axis, ...]) -> str:
    """The inverse of `parse_axes`, up to spaces and needless parentheses."""
    return " ".join(map(_format_axis, axes))


def _format_axis(axis: Axis) -> str:
    text = " | ".join(" ".join(map(str, product)) for product in axis)
    return text if len(axis) == len(axis[0]) == 1 else f"({text})"


def _parse_sum(tokens: list[tuple[str, int]], text: str, opened_at: int) -> Axis:
    products: list[list[Factor]] = [[]]
    while tokens:
        token, at = tokens.pop(0)
        if token == "(":
            raise _unreadable(text, at, "parentheses are not nested; write (a b c | d)")
        if token in (")", "|"):
            if not products[-1]:
                raise _unreadable(text, at, f"a name is missing before `{token}`")
            if token == ")":
                return tuple(map(tuple, products))
            products.append([])
        else:
            products[-1].append(_parse_factor(token, text, at))
    raise _unreadable(text, opened_at, "the parenthesis is never closed")


def _parse_factor(token: str, text: str, at: int) -> Factor:
    match = _FACTOR.fullmatch(token)
    if match is None:
        raise _unreadable(text, at, f"{token!r} is no axis; write h, h:64, _in, _hw:4 or k@head:16")
    name, owner = match["name"], match["owner"]
    size = None if match["n"] is None else int(match["n"])
    if size == 0:
        raise _unreadable(text, at, f"{token!r} is empty; a size is at least 1")
    if owner and name.startswith("_"):
        raise _unreadable(text, at, f"{name!r} is fixed, so nothing in {owner!r} permutes it")
    return Factor(name, size, owner)


def _check_names(axes: list[Axis], text: str) -> None:
    earlier: set[str] = set()  # axes; an owner in a sum is there for part of the axis only
    for axis in axes:
        for product in axis:
            here: set[str] = set()
            for factor in (factor for factor in product if factor.name != "_"):
                if factor.name in here:
                    raise _unreadable(text, 0, f"{factor.name!r} stands twice in one product")
                if factor.owner and factor.owner not in earlier | here:
                    remedy = f"the owner comes first, as in ({factor.owner} {factor})"
                    raise _unreadable(text, 0, f"{str(factor)!r} has no owner before it; {remedy}")
                here.add(factor.name)
        if len(axis) == 1:
            earlier |= {factor.name for factor in axis[0]}


def _unreadable(text: str, at: int, why: str) -> AxisSyntaxError:
    return AxisSyntaxError(f"The axes {text!r} cannot be read (character {at + 1}): {why}.")
