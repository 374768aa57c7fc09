"""Modules as they come: with computed weights, tied ones, extra state, statistics, or compiled."""

import contextlib
import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import torch
from torch import nn

from fleet_tools.baselines.merging.symmetry.table import State

Module = TypeVar("Module", bound=nn.Module)


def copied(model: Module) -> Module:
    """Returns a copy of a module in evaluation mode.

    Weights that hooks have computed, such as by `torch.nn.utils.weight_norm`, are copied as
    constants until they are computed again; `copy.deepcopy` by itself refuses them.
    """
    held = (tensor for module in model.modules() for tensor in tensors_in(vars(module)))
    constants = {id(each): each.detach().clone() for each in held if not each.is_leaf}
    return copy.deepcopy(model, constants).eval()


@contextlib.contextmanager
def uncompiled() -> Iterator[None]:
    """Runs compiled models as they were written: for one run of a copy, compilation is no gain."""
    with torch.compiler.set_stance("force_eager"):
        yield


def as_arguments(example: Any) -> tuple[Any, ...]:
    """Returns the arguments of a model, given as a tuple or, if there is one, by itself."""
    return example if isinstance(example, tuple) else (example,)


def keeps_statistics(module: nn.Module) -> bool:
    """Whether a module is a BatchNorm with running statistics, which averages do not have."""
    return isinstance(module, nn.modules.batchnorm._BatchNorm) and module.track_running_stats


@torch.no_grad()
def recompute(
    model: torch.nn.Module, state: State, batches: Iterable[Any]
) -> dict[str, torch.Tensor]:
    """Returns the same weights with running means and variances measured on data.

    The activations of an averaged model have another variance than the models', so the
    averaged statistics fit no model (Jordan et al. 2023). All batches count the same.

    Args:
        model: The architecture; a copy of it is run.
        state: The weights.
        batches: For each batch the model's argument, or a tuple of its arguments. Without batches,
            or without layers that track statistics, the state is copied as it is.

    Returns:
        A new state dict.
    """
    trial = copied(model)
    load_tensors(trial, state)
    norms: list[Any] = list(filter(keeps_statistics, trial.modules()))
    batches = list(batches) if norms else []
    for norm in norms if batches else []:
        norm.reset_running_stats()
        norm.momentum = None  # the mean over batches
        norm.train()
    with uncompiled():
        for batch in batches:
            trial(*as_arguments(batch))
    return {name: tensor.clone() for name, tensor in tensors_of(trial).items()}


def tensors_of(model: nn.Module, keep_vars: bool = False) -> dict[str, torch.Tensor]:
    """Returns a state dict without extra state of other types than tensors."""
    state = model.state_dict(keep_vars=keep_vars)
    return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}


def form_of(tensor: torch.Tensor) -> str:
    """Returns the dtype and the shape of a tensor, for messages."""
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def misfits(model: nn.Module, state: State) -> list[str]:
    """Returns the names of tensors that a module and a state dict do not both have in one shape."""
    own = tensors_of(model)
    return [
        name
        for name in sorted({*own, *state})
        if name not in own or name not in state or own[name].shape != state[name].shape
    ]


def load_tensors(model: nn.Module, state: State) -> None:
    """Loads the tensors of a model; its extra state of other types stays."""
    loaded = model.state_dict()
    others = {name: loaded[name] for name in loaded.keys() - tensors_of(model).keys()}
    model.load_state_dict({**others, **state})


def tied_to(model: nn.Module) -> dict[str, tuple[str, ...]]:
    """Returns for each name all names of the same tensor (tied weights), in the model's order."""
    names: dict[int, list[str]] = {}
    tensors = tensors_of(model, keep_vars=True)
    for name, tensor in tensors.items():
        names.setdefault(id(tensor), []).append(name)
    return {name: tuple(names[id(tensor)]) for name, tensor in tensors.items()}


def with_tied(model: nn.Module, state: State) -> dict[str, torch.Tensor]:
    """Returns weights with all names of tied ones, of which files hold one."""
    found = {
        name: next((state[other] for other in names if other in state), None)
        for name, names in tied_to(model).items()
        if name not in state
    }
    return {**state, **{name: each for name, each in found.items() if each is not None}}


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yields the tensors in nested mappings, tuples and lists."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from tensors_in(item)
