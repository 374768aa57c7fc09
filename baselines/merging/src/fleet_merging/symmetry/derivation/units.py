"""Unknown axes and their relations by operations: a union-find of products and sums.

`Units` are the entries along an axis, with the permutations that may act on them. An operation
unifies the axes that it sums over together, or fixes an axis. It may also split an axis into a
product (outer units, each with inner units) or a sum (a range of entries beside another).

Inner units may be permuted separately inside each outer one, which is their `within`. An operation
that treats all outer units alike, as a sum over heads does, removes this. If the outer units are
split into ranges, such as queries, keys and values, the inner ones become a `family`, with one
member for each range.

Every step leaves a subgroup of the permutations before it. So a lack of knowledge about an
operation costs freedom, never correctness.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import prod


class Units:
    """Units along an axis.

    Attributes:
        size: Number of units.
        fixed: Why no permutation acts on them; None if one may.
        within: Outer units; in each of them, these have a separate permutation.
        product: Their factors, in row-major order.
        sum: Ranges that follow one another.
        family: These units within each range of some outer units.
    """

    def __init__(
        self,
        size: int,
        fixed: str | None = None,
        within: Iterable["Units"] = (),
        product: Sequence["Units"] = (),
        sum: Sequence["Units"] = (),
    ) -> None:
        self.size, self.fixed, self.within = size, fixed, set(within)
        self.product, self.sum = list(product), list(sum)
        self.family: list[tuple[Units, Units]] = []
        self._same: Units | None = None

    @property
    def leaf(self) -> bool:
        """Whether their structure is unknown."""
        return not (self.product or self.sum or self.family)

    def become(self, other: "Units") -> None:
        """Makes these the same units as others, without further consequences."""
        self._same = other

    def root(self) -> "Units":
        """Returns the representative of equal units, with `within` up to date."""
        unit = self
        while unit._same is not None:
            unit = unit._same
        if self is not unit:
            self._same = unit
        if unit.within and unit.leaf:
            if unit.fixed:
                unit.within = set()
            elif any(u._same or u.size == 1 or not u.leaf for u in unit.within):
                unit._refresh()
        return unit

    def _refresh(self) -> None:
        outer = [factor for unit in self.within for factor in factors(unit) if factor.size > 1]
        self.within = {unit for unit in outer if unit.leaf}
        for unit in (unit for unit in outer if unit.sum):
            self.within |= {u for u in outer if u is not unit}
            parts = ((part, {restrict(u, part) for u in self.within}) for part in ranges(unit))
            self.family = [(p, Units(self.size, self.fixed, {*within, p})) for p, within in parts]
            return


def product(units: Sequence[Units]) -> Units:
    """Returns the row-major product of units."""
    proper = [unit for unit in units if unit.size > 1]
    if len(proper) == 1:
        return proper[0]
    return Units(prod(unit.size for unit in proper), product=proper)


def concatenation(units: Sequence[Units]) -> Units:
    """Returns units that follow one another."""
    return units[0] if len(units) == 1 else Units(sum(u.size for u in units), sum=units)


def family(outer: Sequence[Units], members: Sequence[Units]) -> Units:
    """Returns units that are the given members within ranges of outer units."""
    unit = Units(members[0].size)
    unit.family = list(zip(outer, members, strict=True))
    return unit


def factors(unit: Units) -> list[Units]:
    """Returns the factors of units that are no products themselves."""
    unit = unit.root()
    return [f for part in unit.product for f in factors(part)] if unit.product else [unit]


def ranges(unit: Units) -> list[Units]:
    """Returns the ranges of units that are no sums themselves."""
    unit = unit.root()
    if unit.sum:
        return [part for each in unit.sum for part in ranges(each)]
    first, *rest = factors(unit)
    if rest and first.sum:
        return [product([part, *(restrict(each, part) for each in rest)]) for part in ranges(first)]
    return [unit]


def restrict(unit: Units, part: Units) -> Units:
    """Returns these units within one range of their outer units."""
    unit, part = unit.root(), part.root()
    if unit.product:
        return product([restrict(each, part) for each in unit.product])
    if unit.sum:
        return concatenation([restrict(each, part) for each in unit.sum])
    members = [restrict(member, part) for key, member in unit.family if part in parts_of(key)]
    for other in members[1:]:
        unify(members[0], other)
    return members[0].root() if members else unit


def parts_of(unit: Units) -> list[Units]:
    """Returns units and all their parts."""
    unit = unit.root()
    below = [*unit.product, *unit.sum, *(member for _, member in unit.family)]
    return [unit, *(part for each in below for part in parts_of(each))]


def fix(unit: Units, reason: str) -> None:
    """Fixes units, and all their parts."""
    for part in parts_of(unit):
        part.fixed = part.fixed or reason


def is_fixed(unit: Units) -> bool:
    """Whether no permutation acts on any of the units."""
    return all(p.fixed or p.size == 1 for p in parts_of(unit) if p.leaf)


def tie(unit: Units) -> Units:
    """Makes all members of a family the same, and returns the units."""
    unit = unit.root()
    if not unit.family:
        return unit
    (_, first), *others = unit.family
    for _, other in others:
        unify(first, other)
    unit.family = []
    unit.become(first)
    return unit.root()


def confine(unit: Units, outer: Iterable[Units]) -> None:
    """Lets units have separate permutations only within the given ones, and within each other."""
    unit = unit.root()
    allowed = {u.root() for u in outer} | set(parts_of(unit))
    if unit.family:
        if not any(key.root() in allowed for key, _ in unit.family):
            confine(tie(unit), outer)
            return
        for _, member in unit.family:
            confine(member, allowed)
    for part in (*unit.product, *unit.sum):
        confine(part, allowed)
    if unit.leaf:
        unit.within &= allowed


def confine_to_each_other(units: Sequence[Units]) -> None:
    """Applies `confine` to the axes of a tensor: separate units need their outer ones there."""
    count = Counter(part for unit in units for part in parts_of(unit))
    once = {part for part, times in count.items() if times == 1}
    for unit in units:
        confine(unit, once)


def unify(one: Units, other: Units) -> None:
    """Makes two axes of the same length the same units."""
    one, other = one.root(), other.root()
    if one is other:
        return
    if not one.leaf:
        one, other = other, one  # a leaf first, if there is one
    if one.leaf:
        other = tie(other)  # its members may be the leaf itself; other families are families
        if one is other:
            return
        confine(other, one.within)
        if one.fixed:
            fix(other, one.fixed)
        one.become(other.root())
    elif one.family and other.family:
        _unify_families(one, other)
    elif one.family or other.family:
        unify(tie(one), tie(other))
    elif one.sum and other.sum:
        _unify_sums(one, other)
    else:
        _unify_products(one, other)


def _unify_families(one: Units, other: Units) -> None:
    keys = [key.root() for key, _ in one.family]
    if keys != [key.root() for key, _ in other.family]:
        unify(tie(one), tie(other))
        return
    for (_, member), (_, another) in zip(one.family, other.family, strict=True):
        unify(member, another)
    other.become(one)


def _unify_sums(one: Units, other: Units) -> None:
    ends = {end for u in (one, other) for end in accumulate(part.size for part in ranges(u))}
    for end in sorted(ends):
        for unit in (one, other):
            cut(unit, 0, end)
    left, right = ranges(one), ranges(other)
    if [part.size for part in left] != [part.size for part in right]:
        fix(one, "ranges that cut units")
        fix(other, "ranges that cut units")
        return
    for part, another in zip(left, right, strict=True):
        unify(part, another)


def _unify_products(one: Units, other: Units) -> None:
    left, right = factors(one), factors(other)
    while left and right:
        a, b = left.pop(0).root(), right.pop(0).root()
        if a.product or b.product:  # split meanwhile
            left, right = [*factors(a), *left], [*factors(b), *right]
        elif a.size == b.size:
            unify(a, b)
        elif a.size > b.size and a.size % b.size == 0:
            left[:0] = split(a, b.size)
            right.insert(0, b)
        elif b.size % a.size == 0:
            right[:0] = split(b, a.size)
            left.insert(0, a)
        else:
            for unit in (a, b, *left, *right):
                fix(unit, "a reshape across units")
            return


def split(unit: Units, outer: int) -> tuple[Units, Units]:
    """Splits units, no product, into a product of outer units, of this number, and the rest."""
    unit = tie(unit)
    inner = unit.size // outer
    if unit.product:
        first, second = regroup(factors(unit), [outer, inner], "a reshape across units")
        return first, second
    if unit.sum:
        parts = ranges(unit)
        if all(part.size % inner == 0 for part in parts):
            pairs = [regroup(factors(part), [part.size // inner, inner], "") for part in parts]
            first = concatenation([pair[0] for pair in pairs])
            second = family(*zip(*pairs, strict=True))
            unit.sum, unit.product = [], [first, second]
            return first, second
        _flatten(unit, "a reshape across concatenated units")
    first = Units(outer, unit.fixed, unit.within)
    unit.product = [first, Units(inner, unit.fixed, {*unit.within, first})]
    return first, unit.product[1]


def regroup(units: Sequence[Units], sizes: Sequence[int], reason: str) -> list[Units]:
    """Reshapes: returns axes of the given lengths that hold the same entries in the same order.

    If the lengths do not divide one another, all are fixed for a reason.
    """
    rest = [factor for unit in units for factor in factors(unit) if factor.size > 1]
    result = []
    for size in sizes:
        taken: list[Units] = []
        while size > 1:
            unit = rest.pop(0).root()
            if unit.product:
                rest[:0] = factors(unit)
            elif size % unit.size == 0:
                taken.append(unit)
                size //= unit.size
            elif unit.size % size == 0:
                rest[:0] = split(unit, size)
            else:
                for each in units:
                    fix(each, reason)
                return [Units(size, reason) for size in sizes]
        result.append(product(taken))
    return result


def cut(unit: Units, start: int, stop: int) -> list[Units]:
    """Returns the ranges of units between two positions; splits ranges at the positions."""
    for position in (start, stop):
        offset = 0
        for part in ranges(unit):
            if offset < position < offset + part.size:
                _cut_once(part, position - offset)
            offset += part.size
    found, offset = [], 0
    for part in ranges(unit):
        if start <= offset and offset + part.size <= stop:
            found.append(part)
        offset += part.size
    if sum(part.size for part in found) == stop - start:
        return found
    fix(unit, "a range that cuts units")
    return [Units(stop - start, "a range that cuts units")]


def _cut_once(unit: Units, position: int) -> None:
    unit = tie(unit)
    first, *rest = factors(unit)
    inner = unit.size // first.size
    if rest and position % inner == 0:
        _cut_once(first, position // inner)
        return
    if rest:
        _flatten(unit, "a range that cuts units")
    unit.sum = [Units(size, unit.fixed, unit.within) for size in (position, unit.size - position)]


def _flatten(unit: Units, reason: str) -> None:
    fix(unit, reason)
    unit.fixed, unit.product, unit.sum = reason, [], []
