"""Validity checks of merged state dicts."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from fleet_merging.buffers import VARIANCE
from fleet_merging.errors import UnsoundMergeError
from fleet_merging.modules import (
    cast,
    copied,
    form_of,
    load_tensors,
    tensors_in,
    tensors_of,
    tied_to,
    uncompiled,
)
from fleet_merging.problem import MergeProblem, MergeResult
from fleet_merging.symmetry.table import State

_MAX_SHOWN = 6


def require_sound(state: State, form: State, maker: str) -> None:
    """Raises an `UnsoundMergeError` if a merged model has `defects`.

    The form is one of the merged models; its numbers do not matter. Messages call the method
    `maker`.
    """
    if found := defects(state, form):
        raise UnsoundMergeError(
            f"{maker} made no usable model: {found}. Give smaller steps or scales if numbers are "
            "too large, or choose another method."
        )


def require_usable(result: MergeResult, problem: MergeProblem, maker: str) -> None:
    """Raises an error unless the members of a merge, after `MergeProblem.finish`, are usable.

    Raises:
        UnsoundMergeError: See `require_sound`; or tied weights of the module differ, or the outputs
            for the example are not finite.
    """
    module = result.module
    form = problem.models[0] if module in (None, problem.module) else tensors_of(module)
    tied = {} if module is None else tied_to(module)
    for member in result.members:
        require_sound(member, form, maker)
        for name, (first, *_) in tied.items():
            if not torch.equal(member[name], member[first]):
                raise UnsoundMergeError(
                    f"{maker} made no usable model: {first} and {name} are tied in the model, and "
                    "differ. Choose a method that treats them alike, such as git_rebasin."
                )
        if module is None or problem.example is None:
            continue
        if faulty := _faulty_output(module, member, problem.example, problem.output):
            raise UnsoundMergeError(
                f"{maker} made no usable model: its outputs ({faulty}) for the example are not "
                "finite. Choose another method, or measure the statistics of layers again by "
                "`finish`."
            )


def defects(state: State, form: State) -> str:
    """Describes the faults of a model by the names of its tensors; empty if it has none.

    Faulty tensors are missing, unknown, not finite, of another shape or dtype than in `form`, or
    negative variances.
    """
    found = [f"{name} is missing" for name in form if name not in state]
    found += [defect for name, value in state.items() if (defect := _defect(name, value, form))]
    more = f"; and {len(found) - _MAX_SHOWN} more" if len(found) > _MAX_SHOWN else ""
    return "; ".join(found[:_MAX_SHOWN]) + more


def _defect(name: str, value: torch.Tensor, form: State) -> str:
    if name not in form:
        return f"{name} does not belong to it"
    if not isinstance(value, torch.Tensor):
        return f"{name} is a {type(value).__name__}"
    if (value.shape, value.dtype) != (form[name].shape, form[name].dtype):
        return f"{name} is {form_of(value)}, not {form_of(form[name])}"
    if not bool(torch.isfinite(value).all()):
        return f"{name} holds NaN or infinity"
    if name.rpartition(".")[2] == VARIANCE and bool((value < 0).any()):
        return f"{name} holds variances below 0"
    return ""


def _faulty_output(
    model: nn.Module, state: State, arguments: tuple[Any, ...], output: Callable[[Any], Any]
) -> str | None:
    """Returns the kind and name of the first module with outputs that are not finite, or None."""
    trial, found = copied(model), list[str]()
    load_tensors(trial, state)

    def run() -> bool:
        with torch.no_grad(), uncompiled():
            try:
                return _finite(output(trial(*arguments)))
            except RuntimeError:  # the example is of another precision, as `check` allows
                exact = (cast(each, torch.float64) for each in arguments)
                return _finite(output(trial.double()(*exact)))

    def note(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, arguments: Any, outputs: Any) -> None:
            if not _finite(outputs):
                found.append(f"the {type(module).__name__} {name}".strip())

        return hook

    if run():
        return None
    for name, module in trial.named_modules():
        module.register_forward_hook(note(name))
    run()
    return (found or ["the model"])[0]


def _finite(outputs: Any) -> bool:
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors_in(outputs))
