"""Modules with computed or tied weights, extra state, statistics, or compilation."""

import contextlib
import copy
import traceback
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

from fleet_merging.errors import MergeError
from fleet_merging.symmetry.table import State

Module = TypeVar("Module", bound=nn.Module)


def copied(model: Module) -> Module:
    """Returns a copy of a module in evaluation mode.

    Tensors that a model has computed and keeps, such as the last action or a weight of
    `torch.nn.utils.weight_norm`, are copied as constants. Attributes that cannot be copied, such as
    a lock or an open file, are shared with the model. Raises a `MergeError` if they hold tensors or
    modules.
    """
    shared: dict[int, Any] = {}
    while True:
        try:
            with _Detached():
                return copy.deepcopy(model, dict(shared)).eval()
        except Exception as error:  # objects raise any type
            culprit, owner = _uncopied(error)
            known = culprit is None or id(culprit) in shared or isinstance(error, RecursionError)
            if known or _holds_weights(culprit):
                of = next((n for n, m in model.named_modules() if m is owner), "") or "the model"
                raise MergeError(
                    f"{type(model).__name__} cannot be copied ({type(error).__name__}: "
                    f"{first_line(error)}; a {type(culprit).__name__} of {of}). Remove it from the "
                    "module, or give it a __deepcopy__."
                ) from error
            shared[id(culprit)] = culprit


class _Detached(TorchFunctionMode):
    """Copies results of computations as constants; `copy.deepcopy` by itself refuses them."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__deepcopy__ and not args[0].is_leaf:
            return args[1].setdefault(id(args[0]), args[0].detach().clone())
        return func(*args, **(kwargs or {}))


def _uncopied(error: BaseException) -> tuple[Any, nn.Module | None]:
    """Returns the object at which `copy.deepcopy` failed, and the module around it."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    copying = [f.f_locals.get("x") for f in frames if f.f_code is copy.deepcopy.__code__]
    modules = [each for each in copying if isinstance(each, nn.Module)]
    return (copying or [None])[-1], (modules or [None])[-1]


def _holds_weights(value: Any) -> bool:
    parts = [value, *getattr(value, "__dict__", {}).values()]
    return any(isinstance(p, nn.Module) for p in parts) or any(True for _ in tensors_in(value))


def first_line(error: BaseException) -> str:
    """Returns the beginning of an error's message, or else its type."""
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return line if len(line) <= 160 else f"{line[:160]}..."


def require_dense(state: Mapping[str, Any], what: str = "The model") -> None:
    """Raises a `MergeError` unless all entries of a state dict are numbers that can be averaged.

    They must not be quantized, sparse, sharded or without values. Extra state of other types than
    tensors is ignored. Messages call the model `what`.
    """
    kinds = {name: kind for name, value in state.items() if (kind := _kind(name, value))}
    for name, (kind, remedy) in kinds.items():
        more = f" (and {len(kinds) - 1} more)" if len(kinds) > 1 else ""
        raise MergeError(f"{what} holds {name}{more} as {kind}. {remedy}")


def _kind(name: str, value: Any) -> tuple[str, str] | None:
    floats = "Merge the models in floating point, and quantize the merged one."
    if not isinstance(value, torch.Tensor):
        extra = name.endswith("_extra_state") or isinstance(value, torch.dtype)
        packed = "packed_params" in name
        kind = "packed quantized weights" if packed else f"a {type(value).__name__}, no tensor"
        return None if extra else (kind, floats if packed else "Give state dicts of tensors.")
    if is_lazy(value):
        return "a parameter without a shape", "Run the model once on an example."
    if value.is_meta:
        return "a tensor without values (meta)", "Load the weights before merging."
    if value.is_quantized:
        return "a quantized tensor", floats
    dispatch = "__torch_dispatch__"
    if getattr(type(value), dispatch, None) is not getattr(torch.Tensor, dispatch, None):
        kind = f"a {type(value).__name__}, a tensor of another representation"
        return kind, f"Make plain tensors (`dequantize`, `full_tensor`). {floats}"
    if value.layout != torch.strided:
        return f"a tensor of the layout {value.layout}", "Make it dense by `to_dense`."
    return None


@contextlib.contextmanager
def uncompiled() -> Iterator[None]:
    """Runs compiled models uncompiled: compilation does not pay for one run of a copy."""
    with torch.compiler.set_stance("force_eager"):
        yield


def as_arguments(example: Any) -> tuple[Any, ...]:
    """Returns the arguments of a model, given as a tuple or as a single argument."""
    return example if isinstance(example, tuple) else (example,)


def cast(value: Any, dtype: torch.dtype | None) -> Any:
    """Returns floating-point tensors in mappings, tuples and lists with another dtype, if any."""
    if isinstance(value, torch.Tensor):
        if dtype is None or not (value.is_floating_point() or value.is_complex()):
            return value
        return value.to(dtype.to_complex() if value.is_complex() else dtype)
    if isinstance(value, Mapping):
        return {name: cast(item, dtype) for name, item in value.items()}
    if type(value) in (tuple, list):  # not a named tuple, which has another constructor
        return type(value)(cast(item, dtype) for item in value)
    return value


def keeps_statistics(module: nn.Module) -> bool:
    """Whether a module is a BatchNorm with running statistics, which averages lack."""
    return isinstance(module, nn.modules.batchnorm._BatchNorm) and module.track_running_stats


@torch.no_grad()
def recompute(
    model: torch.nn.Module, state: State, batches: Iterable[Any]
) -> dict[str, torch.Tensor]:
    """Returns the same weights with running means and variances measured on data.

    The activations of an averaged model have another variance than the models', so the averaged
    statistics fit no model (Jordan et al. 2023). All batches count the same. Each is the model's
    argument, or a tuple of its arguments. Without batches, or without layers that track statistics,
    the state is copied as it is.
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
    """Returns the names of tensors that a module and a state dict do not share in one shape."""
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
    """Returns weights with all names of tied ones; files have only one name."""
    found = {
        name: next((state[other] for other in names if other in state), None)
        for name, names in tied_to(model).items()
        if name not in state
    }
    return {**state, **{name: each for name, each in found.items() if each is not None}}


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yields the tensors in nested mappings, tuples, lists and objects, such as distributions."""
    yield from _tensors_in(value, set())


def _tensors_in(value: Any, seen: set[int]) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
        return
    if isinstance(value, Mapping):
        items: Iterable[Any] = value.values()
    elif isinstance(value, tuple | list):
        items = value
    elif isinstance(value, type | nn.Module | ModuleType) or not hasattr(value, "__dict__"):
        return
    else:
        items = vars(value).values()
    if id(value) not in seen:
        seen.add(id(value))
        for item in list(items):
            yield from _tensors_in(item, seen)
