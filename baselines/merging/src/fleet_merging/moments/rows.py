"""The rows that affine maps read while a model runs."""

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from fleet_merging.modules import tensors_of, uncompiled
from fleet_merging.moments.affine_maps import CONVOLUTIONS, RECURRENT, AffineMap, affine_maps
from fleet_merging.symmetry.table import State

Rows = Callable[..., dict[str, torch.Tensor]]
"""rows(module, *arguments): the inputs of the module's maps by suffix, (groups, n, in)."""


def applied_maps(model: nn.Module, *arguments: Any) -> tuple[AffineMap, ...]:
    """Returns the affine maps of a model in the order in which it applies them to arguments."""
    maps = affine_maps(model)
    return tuple(maps[name] for name in input_rows(model, tensors_of(model), arguments, maps))


@torch.no_grad()
def input_rows(
    model: nn.Module, state: State, arguments: tuple[Any, ...], names: Collection[str]
) -> dict[str, torch.Tensor]:
    """Returns the inputs of affine maps while a model computes its outputs once, in its mode.

    The rows that each map reads have the shape (groups, n, in), in the order in which the maps are
    applied. Dimensions before the last count as rows, in row-major order; for a convolution, these
    are the patches of all images. A map that is not reached is missing.
    """
    with reading(model, names) as found:
        copies = {name: tensor.clone() for name, tensor in state.items()}
        with uncompiled():
            torch.func.functional_call(model, copies, arguments, tie_weights=False)
    return {name: torch.cat(parts, 1) for name, parts in found.items()}


@contextlib.contextmanager
def reading(model: nn.Module, names: Collection[str]) -> Iterator[Mapping[str, list[torch.Tensor]]]:
    """Records the inputs of affine maps while a model runs within the context.

    It yields the rows by map, one tensor (groups, n, in) for each time that it is applied.
    """
    found: dict[str, list[torch.Tensor]] = {}

    def make_hook(name: str, rows: Rows) -> Callable[..., None]:
        def hook(module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
            for suffix, each in rows(module, *given, **named).items():
                if f"{name}{suffix}" in names:
                    found.setdefault(f"{name}{suffix}", []).append(each)

        return hook

    wanted = {
        name: (module, rows)
        for name, module in model.named_modules()
        if (rows := _rows_of(module)) is not None
        and any(each == name or each.startswith(f"{name}.") for each in names)
    }
    handles = [
        module.register_forward_pre_hook(make_hook(name, rows), with_kwargs=True)
        for name, (module, rows) in wanted.items()
    ]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _rows_of(module: nn.Module) -> Rows | None:
    if isinstance(module, nn.Linear):
        return _linear_rows
    if isinstance(module, CONVOLUTIONS):
        return _patches
    if isinstance(module, RECURRENT):
        return _recurrent_rows
    return _attention_rows if isinstance(module, nn.MultiheadAttention) else None


def _linear_rows(module: nn.Module, given: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"": _flat(given)}


def _patches(module: Any, given: torch.Tensor) -> dict[str, torch.Tensor]:
    """Returns patches as (groups, n, channels / groups * kernel)."""
    if isinstance(module.padding, str):
        padding = module._reversed_padding_repeated_twice
    else:
        padding = [side for size in reversed(module.padding) for side in (size, size)]
    sizes = list(zip(module.kernel_size, module.stride, module.dilation, strict=True))
    given = given.unsqueeze(0) if given.dim() == len(sizes) + 1 else given  # no batch
    patches = nn.functional.pad(given, padding)
    for dim, (size, stride, dilation) in enumerate(sizes, start=2):
        reach = dilation * (size - 1) + 1
        patches = patches.unfold(dim, reach, stride)[..., ::dilation]
    count = len(sizes)  # now (images, channels, positions ..., kernel ...)
    patches = patches.movedim(1, count + 1).flatten(0, count).unflatten(1, (module.groups, -1))
    return {"": patches.flatten(2).transpose(0, 1)}


def _recurrent_rows(
    module: nn.RNNBase, given: torch.Tensor, hidden: Any = None
) -> dict[str, torch.Tensor]:
    """Returns the inputs of all layers, which are computed one after the other."""
    batched = given if given.dim() == 3 else given.unsqueeze(1 - module.batch_first)
    inputs = batched if module.batch_first else batched.transpose(0, 1)  # (B, T, n)
    states: tuple[torch.Tensor, ...] = hidden if isinstance(hidden, tuple) else (hidden,)
    found: dict[str, torch.Tensor] = {}
    for layer in range(module.num_layers):
        shape = (1, len(inputs), module.hidden_size)
        zeros = inputs.new_zeros(shape)
        first = [
            zeros if state is None else state[layer].reshape(shape)
            for state in (states * 2 if hidden is None else states)
        ]
        outputs = _one_layer(module, layer, inputs, first)
        before = torch.cat([first[0].transpose(0, 1), outputs[:, :-1]], 1)
        if isinstance(module, nn.GRU):
            found |= {f".l{layer}.ih": _flat(inputs), f".l{layer}.hh": _flat(before)}
        else:
            found[f".l{layer}"] = _flat(torch.cat([inputs, before], 2))
        inputs = outputs
    return found


def _one_layer(
    module: nn.RNNBase, layer: int, inputs: torch.Tensor, first: list[torch.Tensor]
) -> torch.Tensor:
    """Returns the outputs of a layer, (B, T, width), by a module of one layer."""
    kind: Any = type(module)
    options = {"nonlinearity": module.nonlinearity} if isinstance(module, nn.RNN) else {}
    with torch.device("meta"):
        alone = kind(
            inputs.shape[2], module.hidden_size, bias=module.bias, batch_first=True, **options
        )
    weights = {name: getattr(module, f"{name[:-1]}{layer}") for name in alone.state_dict()}
    state = tuple(first) if isinstance(module, nn.LSTM) else first[0]
    return torch.func.functional_call(alone, weights, (inputs, state))[0]


def _attention_rows(
    module: nn.MultiheadAttention,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *arguments: Any,
    **named: Any,
) -> dict[str, torch.Tensor]:
    """Returns the inputs of the projections, and of the output projection."""
    weights: Mapping[str, torch.Tensor] = dict(module.named_parameters())
    unprojected = dict(weights) | {
        name: torch.eye(len(tensor)).to(tensor) if tensor.dim() == 2 else torch.zeros_like(tensor)
        for name, tensor in weights.items()
        if name.startswith("out_proj.")
    }
    hooks, module._forward_pre_hooks = module._forward_pre_hooks, type(module._forward_pre_hooks)()
    try:
        read = torch.func.functional_call(
            module, unprojected, (query, key, value, *arguments), named
        )[0]
    finally:
        module._forward_pre_hooks = hooks
    inputs = {".query": query, ".key": key, ".value": value, ".out_proj": read}
    return {suffix: _flat(each) for suffix, each in inputs.items()}


def _flat(rows: torch.Tensor) -> torch.Tensor:
    """Returns rows as (1, n, in)."""
    return rows.reshape(1, -1, rows.shape[-1])
