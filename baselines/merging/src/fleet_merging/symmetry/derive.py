"""Automatic tables of axes, derived from the operations of a model.

`torch.export` records a model's computation for an example. Each operation has a rule. It says
which
axes have the same units, since they are added, or summed over together. It says which are products
or sums of others, and which are fixed: inputs, outputs, and all axes of an operation without a
rule.
The remaining free axes are the permutations of the table. `check` verifies the result.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import torch

from fleet_merging.errors import DerivationError, SymmetryWarning, WithoutEffectError, listed
from fleet_merging.modules import first_line, tensors_of, tied_to
from fleet_merging.symmetry.check import CheckReport, check
from fleet_merging.symmetry.derivation import layer_rules  # noqa: F401 (registers)
from fleet_merging.symmetry.derivation.naming import written
from fleet_merging.symmetry.derivation.recording import PREFIX, REMEDY, record
from fleet_merging.symmetry.derivation.rules import (
    RULES,
    WITHOUT_RULE,
    Axes,
    Call,
    Shape,
    axes_in,
    fixed,
    uniform,
    unknown,
)
from fleet_merging.symmetry.derivation.shape_rules import elementwise
from fleet_merging.symmetry.derivation.units import Units, fix, is_fixed, parts_of, unify
from fleet_merging.symmetry.table import Symmetry

_UNIFORM = ("full", "zeros", "ones", "empty", "new_zeros", "new_ones", "new_full", "new_empty",
            "zeros_like", "ones_like", "full_like", "empty_like", "scalar_tensor")  # fmt: skip

AN_INPUT, AN_OUTPUT = "an input", "an output"
WITHOUT_EFFECT = "without effect on the outputs"
"""Why units without effect on the outputs are fixed."""


@dataclass(frozen=True)
class Derivation:
    """A derived table, and the reasons of its fixed axes.

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
    """Derives the table of axes of a model; see `explain`, which also returns its fixed axes."""
    return explain(model, example, output=output, draws=draws).symmetry


def explain(
    model: torch.nn.Module,
    example: Any,
    *,
    output: Callable[[Any], Any] = lambda outputs: outputs,
    draws: int = 3,
) -> Derivation:
    """Derives the table of axes of a model, with the reasons for its fixed axes.

    Axes of unknown operations are fixed, so a table may have fewer permutations than there are. The
    arguments are as in `check`, which tests the table.

    Raises:
        DerivationError: `torch.export` cannot record the model, or it reads learned parameters
            outside of its state dict. The message names the module and the operation.
        MergeError: The model is quantized or has no values, or cannot be copied.
        NotInvariantError: The table did not pass `check`, or the example does not prove it.

    Warns:
        SymmetryWarning: No axis of hidden units is free, or operations without a rule fix some.
            Methods that align models would average these as they are.
    """
    program = record(model, example, output)
    parameters, aliases = _parameters(model)
    read = _run(program, parameters)
    read = {aliases.get(name, name) for name in read}
    for name, axes in parameters.items():
        if aliases.get(name, name) not in read:
            for unit in axes:
                fix(unit, "not read for this example")
    rows = {name: parameters[aliases.get(name, name)] for name in tensors_of(model)}
    with warnings.catch_warnings():  # also in the notes
        warnings.simplefilter("ignore", SymmetryWarning)
        symmetry, report = _checked(
            rows, partial(check, output=output, draws=draws), model, example
        )
    notes = _notes(rows)
    cautions = [*_without_rule(notes), *_without_effect(notes)]
    if not report.sizes and {*chain(*notes.values())} - {AN_INPUT, AN_OUTPUT}:
        cautions += report.cautions[:1]  # not of a linear model, which has no hidden units
    for caution in cautions:
        warnings.warn(caution, SymmetryWarning, stacklevel=3)
    return Derivation(symmetry, notes)


def _checked(
    rows: Mapping[str, Axes],
    check: Callable[..., CheckReport],
    model: torch.nn.Module,
    example: Any,
) -> tuple[Symmetry, CheckReport]:
    """Returns the table of axes that passes a check, without units that nothing depends on."""
    while True:
        table, units = written(rows)
        symmetry = Symmetry(table)
        symmetry.owners()
        try:
            return symmetry, check(symmetry, model, example)
        except WithoutEffectError as error:  # such as deviations beside the mean that is returned
            for name in error.names:
                fix(units[name], WITHOUT_EFFECT)


def _run(program: torch.export.ExportedProgram, parameters: Mapping[str, Axes]) -> set[str]:
    """Runs a program on axes, which unifies its parameters'; returns the names that it reads."""
    signature = program.graph_signature
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    mutated = {**signature.buffers_to_mutate, **getattr(signature, "parameters_to_mutate", {})}
    renewed = {node: name.removeprefix(PREFIX) for node, name in mutated.items()}
    values: dict[torch.fx.Node, Any] = {}
    read: set[str] = set()
    needed = _needed(program.graph)
    for node in program.graph.nodes:
        if node not in needed:
            continue
        if node.op == "placeholder":
            name = names.get(node.name, "").removeprefix(PREFIX)
            if name in parameters:
                values[node] = parameters[name]
                read.add(name)
            else:
                values[node] = _fixed(node, AN_INPUT)
        elif node.op == "output":
            for result in node.args[0]:  # type: ignore[union-attr]
                own = parameters.get(renewed.get(getattr(result, "name", ""), ""))
                for axes in axes_in(_evaluated(result, values)):
                    for unit, former in zip(axes, own or axes, strict=True):
                        if own is None:
                            fix(unit, AN_OUTPUT)
                        else:  # such as a statistic, measured anew
                            unify(unit, former)
        elif node.op == "call_function":
            values[node] = _of_node(node, values)
        else:
            values[node] = _fixed(node, "a constant")
    return read


def _of_node(node: torch.fx.Node, values: Mapping[torch.fx.Node, Any]) -> Any:
    """Returns the axes of a node's results.

    Raises a `DerivationError` if their number or sizes depend on numbers, or for no operation.
    """
    try:
        return _call(node, values)
    except Exception as error:  # unknown arguments of a rule, or of PyTorch
        modules = [path for path, _ in node.meta.get("nn_module_stack", {}).values()]
        module = (modules or [""])[-1].removeprefix(PREFIX.rstrip(".")).removeprefix(".")
        raise DerivationError(
            f"No table can be derived: nothing is known of {node.target} in "
            f"{module or 'the model'}, such as of the size of its result "
            f"({type(error).__name__}: {first_line(error)}). {REMEDY}"
        ) from error


def _call(node: torch.fx.Node, values: Mapping[torch.fx.Node, Any]) -> Any:
    if _is_getitem(node):
        sequence, index = node.args
        return values[sequence][index]  # type: ignore[index]
    arguments = _evaluated(list(node.args), values), _evaluated(dict(node.kwargs), values)
    tensors = list(axes_in(arguments))
    schema = getattr(node.target, "_schema", None)
    name = schema.name.partition("::")[2] if schema is not None else str(node.target)
    if name in _UNIFORM:
        return _Uniform(_shapes(node)[0])
    repeats = name in ("expand", "expand_as", "broadcast_to", "repeat", "repeat_interleave")
    if not repeats and all(is_fixed(unit) for axes in tensors for unit in axes):
        # It computes constants, or numbers in a known order.
        return _fixed(node, AN_INPUT)
    if schema is None:
        call = Call(name, {"all": tensors}, _shapes(node))
        return _results(unknown(call), node)
    bound = {argument.name: argument.default_value for argument in schema.arguments}
    bound |= dict(zip(bound, arguments[0], strict=False)) | arguments[1]
    used: list[Any] = [user.args[1] for user in node.users if user.users and _is_getitem(user)]
    call = Call(name, bound, _shapes(node), used or [0])
    pointwise = torch.Tag.pointwise in getattr(node.target, "tags", ())
    default = elementwise if pointwise else unknown
    rule = RULES.get(name, default) if schema.name.startswith("aten::") else unknown
    try:
        return _results(rule(call), node)
    except (KeyError, IndexError, TypeError, ValueError):  # a variant that a rule does not know
        return _results(unknown(call), node)


def _is_getitem(node: torch.fx.Node) -> bool:
    return getattr(node.target, "__name__", "") == "getitem"


class _Uniform:
    """A tensor of equal entries: each use of it has separate axes."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape


def _evaluated(value: Any, values: Mapping[torch.fx.Node, Any]) -> Any:
    if isinstance(value, torch.fx.Node):
        found = values[value]
        return Axes(uniform(found.shape)) if isinstance(found, _Uniform) else found
    if isinstance(value, Mapping):
        return {name: _evaluated(item, values) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_evaluated(item, values) for item in value]
    return value


def _needed(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """Returns the nodes on which the outputs depend."""
    needed: set[torch.fx.Node] = set()
    pending = [node for node in graph.nodes if node.op == "output"]
    while pending:
        node = pending.pop()
        if node not in needed:
            needed.add(node)
            pending += node.all_input_nodes
    return needed


def _shapes(node: torch.fx.Node) -> list[Shape]:
    value = node.meta["val"]
    values = value if isinstance(value, list | tuple) else [value]
    return [tuple(map(int, each.shape)) if hasattr(each, "shape") else () for each in values]


def _results(results: Sequence[Sequence[Units]], node: torch.fx.Node) -> Any:
    shapes = _shapes(node)
    for axes, shape in zip(results, shapes, strict=False):
        found = tuple(unit.size for unit in axes)
        if found != shape:
            raise ValueError(f"{node.target} gave {found}, not {shape}")
    if isinstance(node.meta["val"], list | tuple):
        return [Axes(axes) for axes in results]
    return Axes(results[0])


def _fixed(node: torch.fx.Node, reason: str) -> Any:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) and not isinstance(value, list | tuple):
        return value
    rows = [Axes(fixed(shape, reason)) for shape in _shapes(node)]
    return rows if isinstance(value, list | tuple) else rows[0]


def _without_rule(notes: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Yields a caution on operations without a rule, if there are any."""
    found: dict[str, list[str]] = {}
    for name, reasons in notes.items():
        for reason in reasons:
            if reason.endswith(WITHOUT_RULE):
                module = name.rpartition(".")[0] or "the model"
                found.setdefault(reason.removesuffix(WITHOUT_RULE), []).append(module)
    if found:
        operations = (f"{name} ({', '.join(dict.fromkeys(found[name]))})" for name in found)
        yield (
            "These operations have no rule, so axes of the modules in parentheses are fixed and "
            f"models are averaged there without alignment: {'; '.join(operations)}. If their units "
            "have no order, write the axes by hand, see `symmetry.table`."
        )


def _without_effect(notes: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Yields a caution on units that no output depends on, if there are any."""
    idle = [name for name, reasons in notes.items() if WITHOUT_EFFECT in reasons]
    if idle:
        yield (
            f"For this example, no output depends on some units of {listed(idle)}, so "
            "they are fixed and averaged without alignment. To align them, give an example that "
            "reaches them, or select more with `output`."
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
