"""Positions of units in the tensors of models, and models with other numbers of units."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import torch

from fleet_merging.errors import MergeError, SymmetryError
from fleet_merging.modules import form_of, tensors_of
from fleet_merging.problem import MergeProblem
from fleet_merging.symmetry.axes import Axis, Factor
from fleet_merging.symmetry.table import State, Symmetry

Place = tuple[str | None, int, tuple[int, ...]]
"""Place of an entry of an axis: its free name, its unit, and its block (such as of an LSTM gate).
Entries of fixed axes have no name, and are numbered."""


def places(axes: Sequence[Axis]) -> list[Place]:
    """Returns the place of each entry of axes, see `Symmetry.sized_axes`, flattened together.

    Raises a `MergeError` if an entry belongs to two units, or to a unit inside of another one.
    """
    parts = [[place for term in axis for place in _places_of_product(term)] for axis in axes]
    found: list[Place] = []
    for entries in product(*parts):
        free = [place for place in entries if place[0] is not None]
        if len(free) > 1:
            raise MergeError("Units of an axis with two free names cannot be selected one by one.")
        blocks = [block if name else (unit,) for name, unit, block in entries]
        block = tuple(number for each in blocks for number in each)
        found.append((free[0][0], free[0][1], block) if free else (None, 0, ()))
    return numbered(found)


def numbered(given: Sequence[Place]) -> list[Place]:
    """Returns distinct places, the same for any number of units.

    Entries of fixed axes are numbered among themselves, as are repeated entries, such as a unit of
    an encoder of two clouds.
    """
    fixed, times = iter(range(len(given))), Counter[Place]()
    found: list[Place] = []
    for place in given:
        name, unit, block = place
        found.append(
            (None, next(fixed), ()) if name is None else (name, unit, (*block, times[place]))
        )
        times[place] += 1
    return found


def _places_of_product(factors: Sequence[Factor]) -> list[Place]:
    free = [number for number, factor in enumerate(factors) if not factor.fixed]
    if len(free) > 1 or any(factors[number].owner for number in free):
        raise MergeError("Units inside other units, such as heads, cannot be selected one by one.")
    indices = np.ndindex(*(factor.size or 1 for factor in factors))
    if not free:
        return [(None, number, ()) for number, _ in enumerate(indices)]
    (own,) = free
    return [(factors[own].name, each[own], each[:own] + each[own + 1 :]) for each in indices]


@dataclass(frozen=True)
class ResultForm:
    """The form of a network of the models' kind, with their or other numbers of units.

    Attributes:
        state: A state dict of this form; with other sizes than the models', zeros.
        axes: Its axes, see `Symmetry.sized_axes`.
        counts: Number of units by free name.
        module: The architecture; None for the models'.
    """

    state: State
    axes: Mapping[str, tuple[Axis, ...]]
    counts: Mapping[str, int]
    module: torch.nn.Module | None

    @classmethod
    def of(cls, problem: MergeProblem, width: int | None) -> "ResultForm":
        """Returns the form of a problem's result.

        Hidden layers have the units of a `width`, or else of `resized`, or of the models.
        Raises a `MergeError` if no architecture of this width is known, or it is of another kind.
        """
        models, symmetry = problem.models, problem.symmetry
        module, counts = problem.resized, _counts(symmetry, models[0])
        own = symmetry.sized_axes(models[0])
        same = cls(models[0], own, counts, None)
        if width is not None:
            most = len(models) * max(counts.values(), default=0)
            if not 1 <= width <= most:
                raise MergeError(
                    f"A network {width} units wide cannot be built: the models have {most} units "
                    f"in their widest layers together. Give a width from 1 to {most}."
                )
            if problem.at_width is None:
                raise MergeError(
                    f"The network {width} units wide cannot be built from these models alone. Give "
                    "it as `model`; in a fleet, give `width` as an option of the last method."
                )
            module = problem.at_width(width)
        if module is None:
            return same
        state = tensors_of(module)
        try:
            table = _of_any_size(symmetry)
            axes, wanted = table.sized_axes(state), _counts(table, state)
        except SymmetryError as error:
            raise MergeError(f"{_OTHER_KIND}: {error} {_REMEDY}") from None
        if differing := [
            f"{name} is {form_of(state[name])} and has to be {form_of(models[0][name])} but for "
            "widths"
            for name in own
            if state[name].dtype != models[0][name].dtype or _fixed(axes[name]) != _fixed(own[name])
        ]:
            raise MergeError(f"{_OTHER_KIND}: {'; '.join(differing[:6])}. {_REMEDY}")
        zeros = {name: torch.zeros_like(state[name]) for name in symmetry.axes}
        form = cls(zeros, axes, wanted, module)
        _require_same_function(problem, form, same)
        return same if wanted == counts else form


_OTHER_KIND = "The new network is not of the models' kind"
_REMEDY = (
    "Build it as the models are built: the same layers, inputs and outputs, with other numbers of "
    "units."
)


def _counts(symmetry: Symmetry, state: State) -> dict[str, int]:
    return {name: sizes[-1] for name, sizes in symmetry.group(state).sizes.items()}


def _of_any_size(symmetry: Symmetry) -> Symmetry:
    """Returns a derived table without its numbers of units."""

    def open_sized(factor: Factor) -> Factor:
        return factor if factor.fixed else replace(factor, size=None)

    return Symmetry(
        {
            name: tuple(tuple(tuple(map(open_sized, p)) for p in axis) for axis in axes)
            for name, axes in symmetry.axes.items()
        }
    )


def _fixed(axes: Sequence[Axis]) -> list[list[list[int | None]]]:
    return [[[each.size if each.fixed else None for each in p] for p in axis] for axis in axes]


def _require_same_function(problem: MergeProblem, form: ResultForm, same: ResultForm) -> None:
    """Raises an error unless both architectures compute the same with their common units.

    Others have weights of zero, so that nothing reads them.
    """
    module, models = form.module, problem.models
    if module is None or problem.module is None or problem.example is None:
        return
    common = {name: min(count, same.counts[name]) for name, count in form.counts.items()}
    alone: list[State] = [
        {name: torch.zeros_like(tensor) for name, tensor in each.items()}
        for each in (models[0], form.state)
    ]
    for name, tensor in models[0].items():
        here, there = (_entries(axes[name], common) for axes in (same.axes, form.axes))
        for state, entries in zip(alone, (here, there), strict=True):
            state[name][entries] = tensor[here]
    outputs = []
    for each, state in zip((problem.module, module), alone, strict=True):
        try:
            outputs.append(problem.outputs(each, state))
        except Exception as error:
            raise MergeError(
                f"{_OTHER_KIND}: it fails on their example ({type(error).__name__}: {error}). "
                f"{_REMEDY}"
            ) from error
    expected, found = outputs
    largest = float(expected.abs().max())
    if found.shape != expected.shape or not torch.allclose(
        found, expected, rtol=1e-3, atol=1e-3 * largest
    ):
        raise MergeError(
            f"{_OTHER_KIND}: with the same units it computes something else, for instance by "
            f"another activation. {_REMEDY}"
        )


def _entries(axes: Sequence[Axis], common: Mapping[str, int]) -> tuple[torch.Tensor, ...]:
    """Returns the indices of entries that belong to the first units along each axis."""
    kept = [
        [i for i, (name, unit, _) in enumerate(places([axis])) if not name or unit < common[name]]
        for axis in axes
    ]
    return torch.meshgrid(*map(torch.tensor, kept), indexing="ij") if kept else ()
