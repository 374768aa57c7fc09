"""Any PyTorch models with plain data as a merge problem, and their merge.

These are the public functions of `fleet_merging`. They find the needs of a method in the models and
the data: the table of axes, the affine maps, the loss, data holders. All of it is validated before
the merge, and the result afterwards.
"""

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from fleet_merging.average import AveragingWeights
from fleet_merging.buffers import learned_tensors, require_mergeable
from fleet_merging.errors import MergeError, ModelMismatchError, SymmetryWarning
from fleet_merging.loaders import BatchLoss, make_holder, read_data, require_usable_data
from fleet_merging.methods import registry
from fleet_merging.methods.facts import Method
from fleet_merging.methods.options import bound
from fleet_merging.modules import (
    as_arguments,
    cast,
    copied,
    keeps_statistics,
    misfits,
    recompute,
    require_dense,
    tensors_of,
    with_tied,
)
from fleet_merging.moments.rows import applied_maps
from fleet_merging.problem import MergeProblem, MergeResult
from fleet_merging.queries.data_holder import LocalDataHolder
from fleet_merging.symmetry.check import check
from fleet_merging.symmetry.derive import derive
from fleet_merging.symmetry.table import State, Symmetry, require_alike

_EXAMPLES = 8
"""Number of rows of the first batch for deriving and checking tables."""

_RESIZING = ("partition", "structured_compression")
"""Methods with results that may have other numbers of hidden units than the models."""


def merge(
    method: str | Method, models: MergeProblem | Sequence[nn.Module | State], **given: Any
) -> MergeResult:
    """Merges models by a method, and validates the result.

        merged = merge("git_rebasin", [one, other], example=inputs)
        merged = merge("fleet_merge", [one, other], data=[loader_one, loader_other], epochs=5)

    Args:
        method: Name of a method, see `registry.METHODS`; "module:function"; or a function of a
            `MergeProblem` and options.
        models: Modules or state dicts of one architecture; or a `MergeProblem`.
        given: Arguments of `problem_of`, such as `data`, `model` and `example`; all others are
            options of the method, or of its `Descent`.

    Returns:
        The result. Its `model` is a new module in evaluation mode, a network or an ensemble.
        Statistics of BatchNorms are measured on the data, if given.

    Raises:
        UnsoundMergeError: The merged model has another form than the models, or is not usable.
        UnknownChoiceError: There is no such method, or it has no such option.
        MergingError: See `problem_of`, and the method.
    """
    function = registry.find(method) if isinstance(method, str) else method
    known = inspect.signature(problem_of).parameters
    arguments = {name: value for name, value in given.items() if name in known}
    if isinstance(arguments.get("loss"), str):  # an option of `sinkhorn_rebasin`
        del arguments["loss"]
    options = {name: value for name, value in given.items() if name not in arguments}
    options = bound(function, options)
    if not isinstance(models, MergeProblem):
        return registry.merge(method, problem_of(models, method=method, **arguments), **options)
    if arguments:
        raise MergeError(
            f"{', '.join(arguments)} were given together with a merge problem. Set them in the "
            "problem instead."
        )
    return registry.merge(method, models, **options)


def problem_of(
    models: Sequence[nn.Module | State],
    *,
    data: Sequence[Any] | None = None,
    model: nn.Module | None = None,
    example: Any = None,
    loss: BatchLoss | None = None,
    output: Callable[[Any], Any] = lambda outputs: outputs,
    symmetry: Symmetry | Mapping[str, str] | None = None,
    base: nn.Module | State | None = None,
    inputs: Sequence[Any] | None = None,
    averaging_weights: AveragingWeights | None = None,
    seed: int = 0,
    method: str | Method = "naive_average",
) -> MergeProblem:
    """Returns the problem of merging any models, with all needs of a method.

    Args:
        models: Modules or state dicts of one architecture.
        data: Data of each model: an iterable of batches (inputs, labels), such as a `DataLoader`,
            read into memory; or a data holder that answers queries.
        model: The architecture of state dicts. For `partition` and `structured_compression`, the
            result's, if it has other numbers of hidden units than the models.
        example: An argument of the model or a tuple of its arguments, to derive and check the
            table. A batch of a few different ones; by default the first data.
        loss: loss(outputs, labels) of a batch; by default cross entropy for labels that are class
            numbers (integers), otherwise the mean squared error.
        output: Selects a tensor of outputs from the model's result.
        symmetry: Table of axes; derived from the model if None.
        base: Common weights before training, for methods on task vectors.
        inputs: Unlabelled batches, each an argument or a tuple of arguments, for `distillation`.
        averaging_weights: A number for each model, of any positive sum; equal ones if None.
        seed: Seed of all random numbers.
        method: The method; needs of other methods are left out.

    Raises:
        MergeError: There are no models, or the method needs more data. The numbers of data and
            models differ, or a batch or the loss is not usable. Models are quantized, sparse,
            without values (meta), or cannot be copied.
        ModelMismatchError: Models, architecture or base are not of one form.
        DerivationError, SymmetryError: No table can be derived, or it is false.
    """
    if isinstance(models, nn.Module | Mapping) or not models:
        raise MergeError(
            "No models were given. Give a list with at least one module or state dict."
        )
    unwrapped = [_unwrapped(each, f"model {index}") for index, each in enumerate(models)]
    states = [_state_of(each) for each in unwrapped]
    module, resized = _architecture(unwrapped, states, model, method)
    if module is not None:
        states = [with_tied(module, state) for state in states]
    require_alike(states)
    bases = [] if base is None else [_unwrapped(base, "the base")]
    start = _state_of(bases[0]) if bases else None
    if start is not None and module is not None:
        start = with_tied(module, start)
    pools = read_data(data, len(states))
    if example is None:
        example = _example(pools)
    example = example if module is None else _in_precision_of(module, example)
    if module is not None and example is not None:
        _warn_of_buffers(module, [*unwrapped, *bases])
    batches = [batch for pool in pools if isinstance(pool, tuple) for batch in pool]
    plain = bool(pools) and all(isinstance(pool, tuple) for pool in pools)
    if batches and module is None:
        raise MergeError(
            "Data were given, but state dicts cannot be run. Give modules as models, or their "
            "architecture as `model`."
        )
    for pool in pools:
        if module is not None and isinstance(pool, tuple):
            require_usable_data(module, states[0], pool, loss, output)
    table = _table(symmetry, module, states[0], example, output, method)
    maps = ()
    if module is not None and example is not None:
        maps = applied_maps(copied(module), *as_arguments(example))
    last = maps[-1] if maps else None
    holders = [
        make_holder(module, pool, last, loss, output, resized)
        if module is not None and isinstance(pool, tuple)
        else pool
        for pool in pools
    ]
    problem = MergeProblem(
        table,
        states,
        averaging_weights,
        holders,
        affine_maps=maps,
        seed=seed,
        base=start,
        module=module,
        example=example,
        output=output,
        resized=resized,
        inputs=None if inputs is None else partial(_passes, inputs),
    )
    if not plain or module is None:
        return problem
    shared = make_holder(module, batches, last, loss, output)
    problem = replace(problem, shared_data_holder=shared)
    if any(map(keeps_statistics, module.modules())):
        arguments = [batch.arguments for batch in batches]
        problem = replace(problem, finish=partial(recompute, module, batches=arguments))
    return problem


def _warn_of_buffers(module: nn.Module, models: Sequence[nn.Module | State]) -> None:
    """Warns of buffers that differ between models, as statistics do by which these scale."""
    names = learned_tensors(dict(module.named_buffers()))
    own = [dict(m.named_buffers()) if isinstance(m, nn.Module) else m for m in models]
    found = {name: [each[name] for each in own if name in each] for name in names}
    differing = [
        name
        for name, each in found.items()
        if any(not torch.equal(each[0], other) for other in each[1:])
    ]
    if differing:
        warnings.warn(
            f"The buffers {', '.join(differing)} differ between the models, as statistics do by "
            "which models scale their inputs. They are averaged, so that weights lose their "
            "meaning. Train the models with the same statistics.",
            SymmetryWarning,
            stacklevel=3,
        )


def _unwrapped(model: Any, name: str) -> nn.Module | State:
    """Returns the module inside of wrappers that add a prefix to names, or the state dict."""
    if isinstance(model, nn.parallel.DataParallel | nn.parallel.DistributedDataParallel):
        model = model.module
    model = getattr(model, "_orig_mod", model)  # of torch.compile
    if not isinstance(model, nn.Module | Mapping):
        raise MergeError(f"{name} is a {type(model).__name__}. Give a module or a state dict.")
    state = model.state_dict() if isinstance(model, nn.Module) else model
    require_dense(state, name)
    require_mergeable(state)
    return model


def _state_of(model: nn.Module | State) -> dict[str, torch.Tensor]:
    """Returns the tensors of a model, without extra state of other types."""
    if isinstance(model, nn.Module):
        return {name: tensor.detach() for name, tensor in tensors_of(model).items()}
    return {
        name: value.detach() if isinstance(value, torch.Tensor) else value
        for name, value in model.items()
        if isinstance(value, torch.Tensor) or not name.endswith("_extra_state")
    }


def _architecture(
    models: Sequence[nn.Module | State], states: Sequence[State], given: Any, method: str | Method
) -> tuple[nn.Module | None, nn.Module | None]:
    """Returns the models' architecture, and the result's if it has other sizes."""
    module = next((each for each in models if isinstance(each, nn.Module)), None)
    if given is None:
        return module, None
    unwrapped = _unwrapped(given, "`model`")
    if not isinstance(unwrapped, nn.Module):
        raise MergeError("`model` is a state dict. Give a module, the models' architecture.")
    state = with_tied(unwrapped, states[0])
    differing = misfits(unwrapped, state)
    if not differing:
        return _in_precision(unwrapped, state), None
    if method in _RESIZING and module is not None:
        same_names = tensors_of(unwrapped).keys() == state.keys()
        return module, _in_precision(unwrapped, state) if same_names else unwrapped
    more = f" For {method}, give the models as modules." if method in _RESIZING else ""
    raise ModelMismatchError(
        f"`model` has other names or shapes than the models to merge: {', '.join(differing[:6])}. "
        f"Make it with the same sizes.{more}"
    )


def _in_precision(module: nn.Module, state: State) -> nn.Module:
    """Returns a module with the dtypes of a state dict; the module itself if it has them."""
    own = tensors_of(module)
    if all(own[name].dtype == state[name].dtype for name in own):
        return module
    module = copied(module)
    named = (*module.named_parameters(), *module.named_buffers())
    for name, tensor in named:
        if name in state:
            tensor.data = tensor.data.to(state[name].dtype)
    return module


def _in_precision_of(module: nn.Module, example: Any) -> Any:
    """Returns an example in the precision of a module's weights, if they have one."""
    kinds = {each.dtype for each in module.parameters() if each.is_floating_point()}
    return cast(example, kinds.pop()) if len(kinds) == 1 else example


def _example(pools: Sequence[Any]) -> Any:
    for pool in pools:
        if isinstance(pool, tuple):
            return tuple(map(_first_rows, pool[0].arguments))
    for pool in pools:
        if isinstance(pool, LocalDataHolder) and pool.batches is not None:
            return next(iter(pool.batches())).arguments
    return None


def _first_rows(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value[:_EXAMPLES] if value.dim() else value
    return {k: _first_rows(v) for k, v in value.items()} if isinstance(value, Mapping) else value


def _table(
    given: Symmetry | Mapping[str, str] | None,
    module: nn.Module | None,
    state: State,
    example: Any,
    output: Callable[[Any], Any],
    method: str | Method,
) -> Symmetry:
    if given is not None:
        table = given if isinstance(given, Symmetry) else Symmetry.of(given)
        if module is not None and example is not None:
            check(table, module, example, output=output)
        return table
    if not registry.permutes(method):
        # Nothing is permuted, so axes need not be known.
        return Symmetry.of({name: " ".join("_" * each.dim()) for name, each in state.items()})
    if module is None or example is None:
        missing = "architecture (`model`)" if module is None else "example of its inputs"
        raise MergeError(
            f"No table of axes was given, and deriving one needs the models' {missing}. Give "
            "modules or `model`, and `example` or data; or a `symmetry`."
        )
    return derive(module, example, output=output)


def _passes(inputs: Sequence[Any]) -> list[tuple[Any, ...]]:
    return [tuple(each) if isinstance(each, tuple | list) else (each,) for each in inputs]
