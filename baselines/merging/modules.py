"""Modules as they come: with computed weights, tied ones, extra state, or compiled."""

import contextlib
import copy
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import torch
from torch import nn

from fleet_tools.baselines.merging.symmetry.table import State

Module = TypeVar("Module", bound=nn.Module)


def copied(model: Module) -> Module:
    """Returns a copy of a module in evaluation mode.

    Weights that hooks have computed, such as those of `torch.nn.utils.weight_norm`, are copied as
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


def tensors_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """Returns a state dict without extra state of other types than tensors."""
    return _tensors(model.state_dict())


def load_tensors(model: nn.Module, state: State) -> None:
    """Loads the tensors of a model; its extra state of other types stays."""
    loaded = model.state_dict()
    others = {name: loaded[name] for name in loaded.keys() - tensors_of(model).keys()}
    model.load_state_dict({**others, **state})


def tied_to(model: nn.Module) -> dict[str, tuple[str, ...]]:
    """Returns for each name all names of the same tensor (tied weights), in the model's order."""
    names: dict[int, list[str]] = {}
    tensors = _tensors(model.state_dict(keep_vars=True))
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


def _tensors(state: Mapping[str, object]) -> dict[str, torch.Tensor]:
    return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
