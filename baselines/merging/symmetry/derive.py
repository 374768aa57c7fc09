"""Tables of axes by themselves: derived from the operations of a model.

`torch.export` records what a model computes for an example. Each operation says which axes have
the same units (those that are added, or summed over together), which are products or sums of
others, and which are fixed: inputs, outputs, and whatever an operation without a rule touches. What
remains free is a permutation of the table. The result is verified by `check`.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch

from fleet_tools.baselines.merging.errors import SymmetryWarning
from fleet_tools.baselines.merging.modules import tensors_of, tied_to
from fleet_tools.baselines.merging.symmetry.check import check
from fleet_tools.baselines.merging.symmetry.derivation.graph import (
    AN_INPUT,
    AN_OUTPUT,
    export,
    run,
)
from fleet_tools.baselines.merging.symmetry.derivation.naming import written
from fleet_tools.baselines.merging.symmetry.derivation.rules import WITHOUT_RULE, Axes, uniform
from fleet_tools.baselines.merging.symmetry.derivation.units import fix, parts_of
from fleet_tools.baselines.merging.symmetry.table import Symmetry


@dataclass(frozen=True)
class Derivation:
    """A derived table, and why axes in it are fixed.

    Attributes:
        symmetry: The table.
        notes: For each parameter with a fixed axis the reasons, such as "an input" or the name of
            an operation, "aten.sort".
    """

    symmetry: Symmetry
    notes: Mapping[str, tuple[str, ...]]


def derive(
    model: torch.nn.Module,
    example: Any,
    *,
    output: Callable[[Any], Any] = lambda outputs: outputs,
    draws: int = 3,
) -> Symmetry:
    """Derives the table of axes of a model; see `explain`, which also says what it fixed."""
    return explain(model, example, output=output, draws=draws).symmetry


def explain(
    model: torch.nn.Module,
    example: Any,
    *,
    output: Callable[[Any], Any] = lambda outputs: outputs,
    draws: int = 3,
) -> Derivation:
    """Derives the table of axes of a model, with the reasons for its fixed axes.

    Where nothing is known of an operation, the axes that it touches are fixed, so that a table may
    have fewer permutations than there are.

    Args:
        model: A module that runs on the example; it is not changed.
        example: Its argument, or a tuple of its arguments; a batch of a few different ones.
        output: Selects what must not change from what the model returns, see `check`.
        draws: Number of random elements with which `check` tests the table.

    Raises:
        DerivationError: `torch.export` cannot record the model.
        NotInvariantError: The table did not pass `check`, or the example does not show that it is
            right.

    Warns:
        SymmetryWarning: No axis of hidden units is free, or some are fixed since no rule is known
            of an operation, so that methods that align models would average them as they are.
    """
    program = export(model, example, output)
    parameters, aliases = _parameters(model)
    read = run(program, parameters)
    for name, axes in parameters.items():
        if not {name, *(alias for alias, of in aliases.items() if of == name)} & read:
            for unit in axes:
                fix(unit, "not read for this example")
    rows = {name: parameters[aliases.get(name, name)] for name in tensors_of(model)}
    symmetry = Symmetry(written(rows))
    symmetry.owners()
    with warnings.catch_warnings():  # of what the notes say
        warnings.simplefilter("ignore", SymmetryWarning)
        report = check(symmetry, model, example, output=output, draws=draws)
    notes = _notes(rows)
    cautions = list(_without_rule(notes))
    if not report.sizes and {*chain(*notes.values())} - {AN_INPUT, AN_OUTPUT}:
        cautions += report.cautions[:1]  # not of a linear model, which has no hidden units
    for caution in cautions:
        warnings.warn(caution, SymmetryWarning, stacklevel=3)
    return Derivation(symmetry, notes)


def _without_rule(notes: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Yields a caution of the operations without a rule, if there are any."""
    found: dict[str, list[str]] = {}
    for name, reasons in notes.items():
        for reason in reasons:
            if reason.endswith(WITHOUT_RULE):
                module = name.rpartition(".")[0] or "the model"
                found.setdefault(reason.removesuffix(WITHOUT_RULE), []).append(module)
    if found:
        listed = (f"{name} ({', '.join(dict.fromkeys(found[name]))})" for name in found)
        yield (
            "No rule is known of these operations, so that axes of the modules in parentheses are "
            f"fixed and models are averaged there as they are: {'; '.join(listed)}. Where their "
            "units have no order, write the axes by hand, see `symmetry.table_text`."
        )


def _parameters(model: torch.nn.Module) -> tuple[dict[str, Axes], dict[str, str]]:
    """Returns axes by name, the same for tied weights, and the first name of each further one."""
    axes: dict[str, Axes] = {}
    aliases: dict[str, str] = {}
    tied = tied_to(model)
    for name, tensor in tensors_of(model).items():
        original = tied[name][0]
        if original == name:
            axes[name] = Axes(uniform(tuple(tensor.shape)))
        else:
            axes[name], aliases[name] = axes[original], original
    return axes, aliases


def _notes(rows: Mapping[str, Axes]) -> dict[str, tuple[str, ...]]:
    notes = {
        name: tuple(
            dict.fromkeys(
                part.fixed
                for unit in axes
                for part in parts_of(unit)
                if part.fixed and part.leaf and part.size > 1
            )
        )
        for name, axes in rows.items()
    }
    return {name: reasons for name, reasons in notes.items() if reasons}
