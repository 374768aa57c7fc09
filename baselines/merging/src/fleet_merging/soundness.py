"""Validity checks of merged state dicts."""

import torch

from fleet_merging.buffers import VARIANCE
from fleet_merging.errors import UnsoundMergeError
from fleet_merging.modules import form_of, tensors_of, tied_to
from fleet_merging.problem import MergeProblem, MergeResult
from fleet_merging.symmetry.table import State
from fleet_merging.symmetry.trial import faulty_output

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
        if faulty := faulty_output(module, member, problem.example, problem.output):
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
