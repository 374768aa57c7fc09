"""Weights for the test of a table: a copy's, scaled so that its activations keep their size.

A table holds at all weights, or is false, so the test may choose them. A new network's weights are
a bad choice. A BatchNorm's ones and zeros are the same in any order. In a deep network with
shrinking activations, the outputs hide the effects of early layers. So all weights are changed a
little. Each layer is scaled to outputs of size 1 on the example, as in Mishkin and Matas 2016, "All
you need is a good init".
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from fleet_merging.modules import (
    as_arguments,
    cast,
    copied,
    load_tensors,
    tensors_in,
    tensors_of,
    tied_to,
    uncompiled,
)
from fleet_merging.symmetry.table import State

Outputs = list[torch.Tensor]


@dataclass(frozen=True)
class SymmetryTrial:
    """A copy of a model, in evaluation mode, to be run with other weights.

    Attributes:
        run: Returns the outputs for a state dict.
        sensitive: Returns the names of parameters with a nonzero gradient of the outputs; none if
            the model cannot be differentiated.
        state: State dict for the test.
        aliases: By each name, all names of the same tensor (tied weights).
    """

    run: Callable[[State], Outputs]
    sensitive: Callable[[], set[str]]
    state: dict[str, torch.Tensor]
    aliases: Mapping[str, tuple[str, ...]]


def make_trial(
    model: nn.Module, example: Any, output: Callable[[Any], Any], seed: int = 0
) -> SymmetryTrial:
    """Returns a trial, in float64 if the model supports that; the model itself is not changed.

    The seed is of the change of the weights. Other arguments are as for `check`.
    """
    try:
        return _trial(model, example, output, seed, torch.float64)
    except RuntimeError:  # it computes in its own precision
        return _trial(model, example, output, seed, None)


def redrawn(state: State, seed: int) -> dict[str, torch.Tensor]:
    """Returns a state with all weights and statistics changed a little; variances stay positive."""
    generator = torch.Generator().manual_seed(seed)

    def changed(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_complex():
            return torch.view_as_complex(changed(torch.view_as_real(tensor)))
        if not tensor.is_floating_point():
            return tensor.clone()
        scale, shift = torch.rand((2, *tensor.shape), generator=generator, dtype=torch.float64)
        scale, shift = scale.to(tensor), shift.to(tensor)
        # Relative to the tensor's mean; otherwise a wide layer's sums would saturate its tanh.
        size = float(tensor.abs().mean()) or 1.0
        return tensor * (1 + 0.3 * scale) + 0.1 * min(size, 1.0) * shift

    return {name: changed(tensor) for name, tensor in state.items()}


def _trial(
    model: nn.Module,
    example: Any,
    output: Callable[[Any], Any],
    seed: int,
    dtype: torch.dtype | None,
) -> SymmetryTrial:
    trial = copied(model)
    trial = trial if dtype is None else trial._apply(lambda each: cast(each, dtype))
    arguments = as_arguments(example)
    inputs = [cast(argument, dtype) for argument in arguments]

    @torch.no_grad()
    def run(state: State) -> Outputs:
        load_tensors(trial, state)
        with uncompiled():
            outputs = output(trial(*inputs))
        single = isinstance(outputs, torch.Tensor)
        tensors = [outputs] if single else tensors_in(outputs)
        return [tensor.detach().clone() for tensor in tensors]

    def sensitive() -> set[str]:
        # Not of buffers: BatchNorm's function has no gradient by its statistics.
        leaves = {
            name: value.detach().clone().requires_grad_()
            for name, value in trial.named_parameters(remove_duplicate=False)
        }
        try:
            with uncompiled():
                called = torch.func.functional_call(trial, leaves, tuple(inputs), tie_weights=False)
            total = torch.stack(
                [_projection(tensor) for tensor in tensors_in(output(called))]
            ).sum()
            gradients = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
        except Exception:  # such as "does not require grad", or an operation without a gradient
            return set()
        return {
            name
            for name, value in zip(leaves, gradients, strict=True)
            if value is not None and bool(value.any())
        }

    load_tensors(trial, redrawn(tensors_of(trial), seed))
    with torch.no_grad(), uncompiled():
        _scale_layers(trial, inputs)
    state = {name: value.detach().clone() for name, value in tensors_of(trial).items()}
    return SymmetryTrial(run, sensitive, state, tied_to(trial))


def _scale_layers(model: nn.Module, inputs: list[Any]) -> None:
    """Scales each layer to outputs of size 1, and measures the statistics of each BatchNorm."""
    scaled: set[nn.Module] = set()

    def scale(module: nn.Module, arguments: Any, outputs: torch.Tensor) -> torch.Tensor | None:
        size = float(outputs.abs().square().mean().sqrt()) if outputs.numel() else 0.0
        # Only the first call: another one's scale would undo it.
        if module in scaled or not 0 < size < float("inf"):
            return None
        scaled.add(module)
        for parameter in module._parameters.values():
            if parameter is not None:
                parameter.div_(size)
        return outputs / size

    def measure(module: nn.Module, arguments: tuple[torch.Tensor, ...]) -> None:
        channels = arguments[0].movedim(1, 0).flatten(1)
        variances = channels.var(1, correction=0)
        mean, variance = module._buffers["running_mean"], module._buffers["running_var"]
        if mean is None or variance is None or not 0 < float(variances.mean()) < float("inf"):
            return
        mean.copy_(channels.mean(1))
        # Rounding errors of a channel that hardly varies on the example must not be amplified.
        variance.copy_(variances + 0.1 * variances.mean())

    handles = []
    for module in model.modules():
        # A parametrized weight is computed, so scaling it would have no effect.
        if isinstance(module, nn.Linear | nn.modules.conv._ConvNd):
            if "weight" in module._parameters:
                handles.append(module.register_forward_hook(scale))
        elif isinstance(module, nn.modules.batchnorm._BatchNorm):
            handles.append(module.register_forward_pre_hook(measure))
    try:
        model(*inputs)
    finally:
        for handle in handles:
            handle.remove()


def _projection(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the sum of a tensor with different factors, since some sums are constant."""
    tensor = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    return (tensor.flatten() * torch.arange(1.0, tensor.numel() + 1).to(tensor)).sum()
