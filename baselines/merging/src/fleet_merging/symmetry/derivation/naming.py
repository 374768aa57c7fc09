"""Tables of derived units: their names, and the permutations that axis strings can express."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count, groupby
from math import prod

from fleet_merging.symmetry.axes import Axis, Factor
from fleet_merging.symmetry.derivation.units import (
    Units,
    factors,
    fix,
    parts_of,
    product,
    ranges,
    restrict,
    tie,
    unify,
)

_NESTED = "nested units, which axis strings cannot express"
Rows = Mapping[str, Sequence[list[list[Units]]]]
"""The axes of each parameter as sums of products of leaves."""


def written(
    parameters: Mapping[str, Sequence[Units]],
) -> tuple[dict[str, tuple[Axis, ...]], dict[str, Units]]:
    """Returns a table of axes by parameter, and its free units by their names.

    It is without permutations that a table cannot express.
    """
    rows, former = _rows(parameters), None
    while former != _signature(rows) or not _settle(rows):
        former, rows = _signature(rows), _rows(parameters)
    names = _names(rows)
    table = {name: tuple(_axis(sums, names) for sums in axes) for name, axes in rows.items()}
    return table, {name: unit for unit, name in names.items()}


def _rows(parameters: Mapping[str, Sequence[Units]]) -> Rows:
    return {name: [_spread(unit) for unit in axes] for name, axes in parameters.items()}


def _signature(rows: Rows) -> list[object]:
    """Returns the free leaves of all axes, and the sizes of the others."""
    return [
        [[leaf if _free(leaf) else leaf.size for leaf in each] for each in sums]
        for axes in rows.values()
        for sums in axes
    ]


def _spread(unit: Units) -> list[list[Units]]:
    """Returns units as a sum of products of leaves; ties or fixes units without such a form."""
    unit = tie(unit)
    first, *rest = [factor for factor in factors(unit) if factor.size > 1] or [unit]
    first = tie(first)
    inner = {leaf for each in rest for leaf in parts_of(each)}
    if first.fixed and first.leaf and any(first in leaf.within for leaf in inner):
        # Heads in a known order, each with units of its own.
        first.sum = [Units(1, first.fixed) for _ in range(first.size)]
    if first.sum or first.product:
        parts = [product([p, *(restrict(each, p) for each in rest)]) for p in ranges(first)]
        if first.product:
            parts = [product([first, *rest])]
        return [each for part in parts for each in _spread(part)]
    if not rest:
        return [[first]]
    inner = _spread(product(rest))
    if len(inner) == 1:
        return [[first, *inner[0]]]
    if first.fixed:
        return inner * first.size
    sizes = {prod(u.size for u in each) for each in inner}
    heads = [product(each) for each in inner]
    if len(sizes) == 1:  # such as queries, keys and values inside each head
        for other in heads[1:]:
            unify(heads[0], other)
        (single,) = _spread(heads[0])
        return [[first, Units(len(inner), _NESTED), *single]]
    for each in heads:
        fix(each, _NESTED)
    return [[first, Units(prod(u.size for u in rest), _NESTED)]]


def _settle(rows: Rows) -> bool:
    """Gives each leaf at most one owner, always before it; returns whether all had one."""
    settled = True
    free = {leaf for leaf, *_ in _occurrences(rows)}
    for leaf in free:
        owners = [unit for unit in leaf.within if unit in free and not unit.within & free]
        chosen = set(owners[:1])
        settled &= leaf.within == chosen
        leaf.within = chosen
    for leaf, before, product_ in _occurrences(rows):
        if product_.count(leaf) > 1:
            fix(leaf, "an axis that has them twice")
            settled = False
        elif not leaf.within <= before:
            leaf.within = set()
            settled = False
    return settled


def _occurrences(rows: Rows) -> Iterator[tuple[Units, set[Units], list[Units]]]:
    """Yields each free leaf with the leaves before it, and its product."""
    for axes in rows.values():
        earlier: set[Units] = set()
        for sums in axes:
            for each in sums:
                for position, leaf in enumerate(each):
                    if _free(leaf):
                        yield leaf, earlier | set(each[:position]), each
            if len(sums) == 1:
                earlier |= set(sums[0])


def _free(leaf: Units) -> bool:
    return leaf.fixed is None and leaf.size > 1


def _axis(sums: list[list[Units]], names: Mapping[Units, str]) -> Axis:
    products = [_product(each, names) for each in sums]
    if len(products) > 1 and all(each == products[0] for each in products):
        products = [_merged((Factor("_", len(products)), *products[0]))]
    merged = []
    for fixed, group in groupby(products, lambda each: all(f.fixed for f in each)):
        rows = list(group)
        size = sum(prod(f.size or 1 for f in row) for row in rows)
        merged += [(Factor("_", size),)] if fixed else rows
    if len(merged) == len(merged[0]) == 1:
        (factor,) = merged[0]
        return ((Factor(factor.name, None, factor.owner),),)
    return tuple(merged)


def _product(leaves: Sequence[Units], names: Mapping[Units, str]) -> tuple[Factor, ...]:
    result = []
    for leaf in leaves:
        if _free(leaf):
            owner = next((names[unit] for unit in leaf.within), None)
            result.append(Factor(names[leaf], leaf.size, owner))
        else:
            result.append(Factor("_", leaf.size))
    return _merged(tuple(result))


def _merged(factors_: tuple[Factor, ...]) -> tuple[Factor, ...]:
    result = []
    for fixed, group in groupby(factors_, lambda factor: factor.fixed):
        row = list(group)
        size = prod(factor.size or 1 for factor in row)
        if not fixed:
            result += row
        elif size > 1:
            result.append(Factor("_", size))
    return tuple(result) or (Factor("_", 1),)


def _names(rows: Rows) -> dict[Units, str]:
    """Names units after the first module that writes them: the first axis of its parameter."""
    owners = {owner for leaf, *_ in _occurrences(rows) for owner in leaf.within}
    names: dict[Units, str] = {}
    places = [
        (dim > 0 and any(map(_free, (u for each in axes[0] for u in each))), name, leaf)
        for name, axes in rows.items()
        for dim, sums in enumerate(axes)
        for leaf in (leaf for each in sums for leaf in each)
        if _free(leaf)
    ]
    taken: set[str] = set()
    for _, parameter, leaf in sorted(places, key=lambda place: place[0]):  # stable
        if leaf in names:
            continue
        name = _module(parameter)
        name += ".group" if leaf in owners else ".inner" if leaf.within else ""
        numbered = (f"{name}_{i}" for i in count(2))
        unique = next(each for each in chain([name], numbered) if each not in taken)
        names[leaf] = unique
        taken.add(unique)
    return names


def _module(parameter: str) -> str:
    """Returns a name for the outputs of a parameter: its module's, as a name of an axis."""
    module, _, last = parameter.rpartition(".")
    cell = re.search(r"_(l\d+(?:_reverse)?)$", last)
    name = ".".join(filter(None, [module or ("" if cell else last), cell and cell[1]]))
    name = re.sub(r"[^\w.]", "_", name)
    return name if re.match(r"[A-Za-z]", name) else f"layer{name.lstrip('_') or ''}"
