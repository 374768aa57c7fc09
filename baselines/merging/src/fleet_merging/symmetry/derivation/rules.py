"""Rules: the effect of one ATen operation on the axes of its arguments and results.

Rules of single operations are in `shape_rules` and `layer_rules`.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleet_merging.symmetry.derivation.units import (
    Units,
    concatenation,
    confine_to_each_other,
    cut,
    fix,
    parts_of,
    restrict,
    unify,
)


class Axes(list[Units]):
    """The axes of a tensor."""


Shape = tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """One operation.

    Attributes:
        name: Name of the operation, such as "linear".
        arguments: Arguments by their names in PyTorch's schema, with `Axes` for tensors.
        shapes: Shapes of the results.
        used: Indices of the used results.
    """

    name: str
    arguments: Mapping[str, Any]
    shapes: Sequence[Shape]
    used: Collection[int] = (0,)

    def __getitem__(self, name: str) -> Any:
        """Returns an argument."""
        return self.arguments[name]

    @property
    def reason(self) -> str:
        """Why units are fixed here."""
        return f"aten.{self.name}"

    @property
    def tensors(self) -> list[Axes]:
        """All tensors among the arguments."""
        return list(axes_in(self.arguments))

    def dim(self, value: int | None, axes: Sequence[Units]) -> int:
        """Returns an index of an axis that is not negative."""
        return (value or 0) % max(len(axes), 1)

    def dims(self, name: str, axes: Sequence[Units]) -> list[int]:
        """Returns indices of axes, all of them if none is given."""
        value = self.arguments.get(name)
        if value is None or value == []:
            return list(range(len(axes)))
        return [self.dim(v, axes) for v in ([value] if isinstance(value, int) else value)]


WITHOUT_RULE = ", which has no rule"
"""End of the reason for fixed units that might be free."""

Rule = Callable[[Call], Sequence[Sequence[Units]]]
RULES: dict[str, Rule] = {}
"""Rules by the names of operations."""


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule for operations."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def fixed(shape: Shape, reason: str) -> list[Units]:
    """Returns fixed axes."""
    return [Units(size, reason) for size in shape]


def uniform(shape: Shape) -> list[Units]:
    """Returns the axes of a tensor of equal entries, on which any permutation may act."""
    axes: list[Units] = []
    for size in shape:
        axes.append(Units(size, within=axes))
    return axes


def unknown(call: Call) -> list[list[Units]]:
    """Fixes all inputs and outputs of an operation without a rule."""
    reason = f"{call.reason}{WITHOUT_RULE}"
    for axes in call.tensors:
        for unit in axes:
            fix(unit, reason)
    return [fixed(shape, reason) for shape in call.shapes]


def broadcast(tensors: Sequence[Sequence[Units]]) -> list[Units]:
    """Unifies axes from the last one on, as elementwise operations do."""
    result: list[Units] = []
    for back in range(max(map(len, tensors)), 0, -1):
        aligned = [axes[-back] for axes in tensors if len(axes) >= back]
        proper = [unit for unit in aligned if unit.size > 1]
        for other in proper[1:]:
            unify(proper[0], other)
        result.append(proper[0] if proper else aligned[0])
    confine_to_each_other(result)
    return result


def contract(letters: str, *tensors: Sequence[Units]) -> list[Units]:
    """Unifies and sums as `torch.einsum` does: "...i,oi->...o"."""
    inputs, _, output = letters.partition("->")
    ellipsis: list[Sequence[Units]] = []
    named: dict[str, list[Units]] = {}
    read: list[set[str]] = []
    for term, axes in zip(inputs.split(","), tensors, strict=True):
        before, dots, after = term.partition("...")
        rest = len(axes) - len(after)
        ellipsis.append(axes[len(before) : rest] if dots else [])
        ends = [*axes[: len(before)], *axes[rest:]] if dots else axes
        pairs = list(zip(before + after, ends, strict=True))
        read.append({letter for letter, unit in pairs if unit.size > 1})
        for letter, unit in pairs:
            named.setdefault(letter, []).append(unit)
    batch = broadcast(ellipsis) if any(ellipsis) else []
    common = [
        unit
        for back, unit in zip(range(len(batch), 0, -1), batch, strict=True)
        if all(len(axes) >= back and axes[-back].size > 1 for axes in ellipsis)
    ]
    units: dict[str, Units] = {}
    for letter in sorted(named, key=lambda letter: letter not in output):  # outer units first
        proper = [unit for unit in named[letter] if unit.size > 1] or named[letter][:1]
        for other in proper[1:]:
            unify(proper[0], other)
        units[letter] = proper[0]
    for letter in units:
        if letter not in output:
            shared = set.intersection(*(each for each in read if letter in each), {*units})
            confine_to_each_other([*common, *(units[each] for each in {*shared, letter})])
    before, dots, after = output.partition("...")
    result = [units[x] for x in before] + (batch if dots else []) + [units[x] for x in after]
    confine_to_each_other(result)
    return result


def mix(axes: Sequence[Units], dims: Sequence[int], keep: bool = False) -> list[Units]:
    """Treats all units along some axes alike, as a mean or a softmax does.

    With `keep`, the result has these axes, unlike a sum's.
    """
    confine_to_each_other([unit for dim, unit in enumerate(axes) if dim not in dims])
    return list(axes) if keep else [Units(1) if i in dims else unit for i, unit in enumerate(axes)]


def sliced(axes: Sequence[Units], dim: int, start: int, stop: int) -> list[Units]:
    """Returns the axes of a range of entries along one axis."""
    unit = axes[dim].root()
    if (start, stop) == (0, unit.size):
        return list(axes)
    if unit.leaf and unit.fixed:
        result = [Units(stop - start, unit.fixed or "a fixed axis") if i == dim else each
                  for i, each in enumerate(axes)]  # fmt: skip
    else:
        found = cut(unit, start, stop)
        result = [concatenation(found) if i == dim else each for i, each in enumerate(axes)]
        if len(found) == 1:
            for part in parts_of(found[0]):
                result = [
                    each if i == dim else restrict(each, part) for i, each in enumerate(result)
                ]
    confine_to_each_other(result)
    return result


def fix_dims(axes: Sequence[Units], dims: Sequence[int], call: Call) -> list[Units]:
    """Fixes axes with a meaningful order of entries, and gives them their new lengths."""
    for dim in dims:
        fix(axes[dim], call.reason)
    sizes = call.shapes[0]
    return [Units(sizes[i], call.reason) if i in dims else unit for i, unit in enumerate(axes)]


def axes_in(value: Any) -> Iterator[Axes]:
    """Yields the axes of all tensors in nested mappings, lists and tuples."""
    if isinstance(value, Axes):
        yield value
    elif isinstance(value, Mapping):
        yield from axes_in(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from axes_in(item)
