"""The affine maps of a model, as values: the parameters of the matrix that multiplies inputs.

An affine map computes [x, 1] M for its input rows x, with a matrix M of shape (inputs + 1,
outputs). The last row of M is the bias. Covered are layers that read and write only such rows:

    Linear                  x: the input
    Conv1d to Conv3d        x: a patch of the input, (channels, kernel ...) flattened, by group
    RNN, LSTM               x: the input and the hidden state of the step before, [x, h]
    GRU                     two maps, of the input and of the hidden state, since the reset gate
                            multiplies the output of the second one
    MultiheadAttention      four maps: of queries, keys and values, and of the output

All others are averaged: norms, embeddings, transposed convolutions, and bidirectional recurrent
modules. So are matrices computed from other parameters (such as by a weight norm), and tied
weights, where one matrix serves several maps.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from fleet_merging.errors import MergeError
from fleet_merging.modules import tied_to
from fleet_merging.symmetry.table import State

LARGEST_MOMENTS_GB = 1.0
"""Largest size of the second moments of one map that are measured: of 11,180 inputs."""

RECURRENT = (nn.RNN, nn.LSTM, nn.GRU)
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True)
class ParameterBlock:
    """Rows of a parameter that are a part of an affine map.

    Attributes:
        parameter: Name in the state dict.
        start, stop: First row and the one after the last; all rows if `stop` is None.
    """

    parameter: str
    start: int = 0
    stop: int | None = None

    def of(self, state: State) -> torch.Tensor:
        """Returns the rows, a view."""
        return state[self.parameter][self.start : self.stop]


@dataclass(frozen=True)
class AffineMap:
    """An affine map of a model.

    Attributes:
        name: Name of the map; its module's, with a suffix if the module has several.
        weights: Weights (out, in, ...), with inputs one after another.
        biases: Biases (out,), which are added.
        groups: Number of groups of inputs and outputs, each with its own matrix.
        parts: Number of equal parts of its outputs, one after another. Labels have a weight for
            each; see `measurement.LabelledBatch`.
    """

    name: str
    weights: tuple[ParameterBlock, ...]
    biases: tuple[ParameterBlock, ...]
    groups: int = 1
    parts: int = 1

    def matrix(self, state: State) -> torch.Tensor:
        """Returns the matrices M, float64, shape (groups, in + 1, out); a missing bias is zero."""
        weights = [weight.of(state).double().flatten(1) for weight in self.weights]
        weight = torch.cat(weights, 1).unflatten(0, (self.groups, -1))
        bias = weight.new_zeros(weight.shape[:2])
        for each in self.biases:
            bias = bias + each.of(state).double().unflatten(0, (self.groups, -1))
        return torch.cat([weight, bias.unsqueeze(2)], 2).transpose(1, 2)

    def with_matrix(self, state: State, matrix: torch.Tensor) -> dict[str, torch.Tensor]:
        """Returns a model with another matrix; of several biases, the first one takes the change.

        Args:
            state: The model, which is not changed.
            matrix: Shape (groups, in + 1, out). The last row is ignored if the map has no bias.
        """
        changed = dict(state)
        rows = matrix.transpose(1, 2).flatten(0, 1)  # (out, in + 1)
        first = 0
        for weight in self.weights:
            shape = weight.of(state).shape
            width = shape[1:].numel()
            part = rows[:, first : first + width].reshape(shape)
            changed[weight.parameter] = _written(changed, weight, part)
            first += width
        if self.biases:
            own, *others = self.biases
            rest = sum((each.of(state).double() for each in others), start=torch.zeros(()))
            changed[own.parameter] = _written(changed, own, rows[:, -1] - rest)
        return changed

    @property
    def parameters(self) -> list[str]:
        """Names of its parameters."""
        return [block.parameter for block in (*self.weights, *self.biases)]


def affine_maps(model: nn.Module) -> dict[str, AffineMap]:
    """Returns the affine maps of a model by name, in the order of its modules."""
    found: dict[str, AffineMap] = {}
    inside: set[nn.Module] = set()  # of attention, which does not call them
    for name, module in model.named_modules():
        if module in inside:
            continue
        if isinstance(module, nn.MultiheadAttention):
            inside.add(module.out_proj)
        found |= {each.name: each for each in _maps_of(name, module)}
    untied = {name for name, names in tied_to(model).items() if len(names) == 1}
    return {name: each for name, each in found.items() if untied.issuperset(each.parameters)}


def require_measurable(maps: Iterable[AffineMap], state: State) -> None:
    """Raises a `MergeError` if the second moments of a map exceed `LARGEST_MOMENTS_GB`."""
    for each in maps:
        inputs = sum(weight.of(state)[0].numel() for weight in each.weights) + 1
        if (size := 8e-9 * each.groups * inputs**2) > LARGEST_MOMENTS_GB:
            raise MergeError(
                f"The second moments of the inputs of the affine map {each.name!r} need {size:.1f} "
                f"GB for each model; at most {LARGEST_MOMENTS_GB:g} GB are measured. Give this "
                "layer fewer inputs (for instance by pooling), or choose a method without moments."
            )


def _maps_of(name: str, module: nn.Module) -> list[AffineMap]:
    prefix = f"{name}." if name else ""
    if isinstance(module, nn.Linear):
        return [_plain(name, prefix, module.bias is not None)]
    if isinstance(module, CONVOLUTIONS) and module.padding_mode == "zeros":
        return [_plain(name, prefix, module.bias is not None, module.groups)]
    if isinstance(module, RECURRENT) and not (module.bidirectional or module.proj_size):
        return _recurrent_maps(name, prefix, module)
    if isinstance(module, nn.MultiheadAttention) and module.bias_k is None:
        return _attention_maps(name, prefix, module)
    return []


def _plain(name: str, prefix: str, bias: bool, groups: int = 1) -> AffineMap:
    biases = (ParameterBlock(f"{prefix}bias"),) if bias else ()
    return AffineMap(name, (ParameterBlock(f"{prefix}weight"),), biases, groups)


def _recurrent_maps(name: str, prefix: str, module: nn.RNNBase) -> list[AffineMap]:
    maps = []
    for layer in range(module.num_layers):
        parts = {
            part: AffineMap(
                f"{name}.l{layer}.{part}",
                (ParameterBlock(f"{prefix}weight_{part}_l{layer}"),),
                (ParameterBlock(f"{prefix}bias_{part}_l{layer}"),) if module.bias else (),
            )
            for part in ("ih", "hh")
        }
        if isinstance(module, nn.GRU):
            maps += parts.values()
        else:
            weights = tuple(weight for part in parts.values() for weight in part.weights)
            biases = tuple(bias for part in parts.values() for bias in part.biases)
            maps.append(AffineMap(f"{name}.l{layer}", weights, biases))
    return maps


def _attention_maps(name: str, prefix: str, module: nn.MultiheadAttention) -> list[AffineMap]:
    width, maps = module.embed_dim, []
    for number, part in enumerate(("query", "key", "value")):
        rows = (number * width, (number + 1) * width)
        packed = module.in_proj_weight is not None
        weight = (
            ParameterBlock(f"{prefix}in_proj_weight", *rows)
            if packed
            else ParameterBlock(f"{prefix}{part[0]}_proj_weight")
        )
        biases = (
            (ParameterBlock(f"{prefix}in_proj_bias", *rows),)
            if module.in_proj_bias is not None
            else ()
        )
        maps.append(AffineMap(f"{name}.{part}", (weight,), biases))
    has_bias = module.out_proj.bias is not None
    return [*maps, _plain(f"{name}.out_proj", f"{prefix}out_proj.", has_bias)]


def _written(
    state: Mapping[str, torch.Tensor], block: ParameterBlock, rows: torch.Tensor
) -> torch.Tensor:
    tensor = state[block.parameter].clone()
    tensor[block.start : block.stop] = rows.to(tensor)
    return tensor
