"""Messages about second moments: a query with a model and names of maps, an answer with moments.

Of the moments of inputs, which are symmetric, the upper triangle is sent, in float32. An answer
with any other name or shape is rejected. (Moments carry information about the data; those of a few
rows determine the rows.)
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import torch
from safetensors.torch import save

from fleet_tools.baselines.merging.errors import MessageError
from fleet_tools.baselines.merging.moments.affine_maps import AffineMap
from fleet_tools.baselines.merging.moments.gate import RowGate
from fleet_tools.baselines.merging.moments.measurement import Moments, Target
from fleet_tools.baselines.merging.queries.wire import (
    packed,
    require_prefixes,
    tensor_names,
    unpacked,
)
from fleet_tools.baselines.merging.symmetry.table import State
from fleet_tools.storage.strict_json import loads

_MODEL, _TEACHER, _BESIDE, _GATE = "model.", "teacher.", "beside.", "gate."
_INPUTS, _TARGETS = "inputs.", "targets."


@dataclass(frozen=True, eq=False)
class MomentQuery:
    """A query for moments.

    Attributes:
        model: The model whose inputs are measured.
        maps: Names of its affine maps.
        target: What the inputs are multiplied with, see `measurement.measure_moments`.
        teacher: The model that gives the targets "inputs" and "outputs"; otherwise None.
        beside: Further models, whose inputs are put beside those of the model, one after another.
        gate: Gate that multiplies the inputs of each model, see `measurement.measure_moments`.
    """

    model: State
    maps: tuple[str, ...]
    target: Target = "none"
    teacher: State | None = None
    beside: tuple[State, ...] = ()
    gate: RowGate | None = None

    def size(self, each: AffineMap) -> int:
        """Returns the number of inputs of a map, of all models together and with each 1."""
        own_ones = self.gate is not None
        models = (self.model, *self.beside)
        return 1 + sum(each.matrix(state).shape[1] - 1 + own_ones for state in models)


def encode_moment_query(query: MomentQuery) -> bytes:
    """Returns a query as a message."""
    request: dict[str, Any] = {"maps": query.maps, "target": query.target}
    tensors = {f"{_MODEL}{name}": packed(tensor) for name, tensor in query.model.items()}
    for name, tensor in (query.teacher or {}).items():
        tensors[f"{_TEACHER}{name}"] = packed(tensor)
    for index, state in enumerate(query.beside):
        tensors |= {f"{_BESIDE}{index}.{name}": packed(each) for name, each in state.items()}
    if query.gate is not None:
        request["gate"] = {"map": query.gate.map, "sharpness": query.gate.sharpness}
        tensors[f"{_GATE}means"] = packed(query.gate.means)
        tensors[f"{_GATE}factors"] = packed(query.gate.factors)
    text = bytearray(json.dumps(request).encode())
    return save(tensors | {"moments": torch.frombuffer(text, dtype=torch.uint8)})


def is_moment_query(message: bytes) -> bool:
    """Whether a message is a query for moments.

    Raises:
        MessageError: The bytes are not a message.
    """
    return "moments" in tensor_names(message, "message")


def decode_moment_query(message: bytes) -> MomentQuery:
    """Returns the query of a message from `encode_moment_query`.

    Raises:
        MessageError: The message is no such query.
    """
    tensors = unpacked(message, "query")
    gate = None
    try:
        request = loads(bytes(tensors.pop("moments").tolist()).decode())
        maps, target = tuple(request["maps"]), request["target"]
        if target not in get_args(Target) or not all(isinstance(name, str) for name in maps):
            raise ValueError(request)
        if "gate" in request:
            gate = _gate(request["gate"], _taken(tensors, _GATE))
    except (KeyError, TypeError, ValueError) as error:
        raise MessageError(f"A message is no query for moments: {error!r}.") from None
    require_prefixes(tensors, _MODEL, _TEACHER, _BESIDE, _GATE)
    teacher = _taken(tensors, _TEACHER)
    beside: list[State] = []
    while further := _taken(tensors, f"{_BESIDE}{len(beside)}."):
        beside.append(further)
    if gate is not None and len(gate.means) != 1 + len(beside):
        raise MessageError(f"A gate for {len(gate.means)} models is sent with {1 + len(beside)}.")
    return MomentQuery(_taken(tensors, _MODEL), maps, target, teacher or None, tuple(beside), gate)


def _gate(request: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> RowGate:
    """Returns the gate of a query.

    Raises:
        KeyError, TypeError, ValueError: The query holds no valid gate.
    """
    means, factors = tensors["means"], tensors["factors"]
    if means.dim() != 2 or factors.shape != (*means.shape, means.shape[1]):
        raise ValueError(f"a gate with {tuple(means.shape)} means, {tuple(factors.shape)} factors")
    if not isinstance(request["map"], str) or not float(request["sharpness"]) >= 0:
        raise ValueError(request)
    return RowGate(request["map"], means, factors, float(request["sharpness"]))


def encode_moments(moments: Mapping[str, Moments]) -> bytes:
    """Returns moments as a message, the answer to a query."""
    tensors: dict[str, torch.Tensor] = {}
    for name, each in moments.items():
        upper = torch.triu_indices(*each.inputs.shape[1:])
        tensors[f"{_INPUTS}{name}"] = packed(each.inputs[:, upper[0], upper[1]].float())
        if each.targets.shape[2] > 0:
            tensors[f"{_TARGETS}{name}"] = packed(each.targets.float())
    return save(tensors)


def decode_moments(
    message: bytes, query: MomentQuery, maps: Sequence[AffineMap]
) -> dict[str, Moments]:
    """Returns the moments of a message from `encode_moments`, in float64.

    Args:
        message: The message.
        query: The query to which it is the answer.
        maps: The affine maps of the model, at least those of the query.

    Raises:
        MessageError: The message holds anything but the finite moments that were requested.
    """
    tensors = unpacked(message, "answer")
    known = {each.name: each for each in maps}
    moments = {}
    for name in query.maps:
        groups, _, outputs = known[name].matrix(query.model).shape
        size = query.size(known[name])
        upper = torch.triu_indices(size, size)
        triangle = _required(tensors, f"{_INPUTS}{name}", (groups, upper.shape[1]))
        inputs = torch.zeros(groups, size, size, dtype=torch.float64)
        inputs[:, upper[0], upper[1]] = inputs[:, upper[1], upper[0]] = triangle
        targets = inputs[..., :0]
        if query.target != "none":
            columns = size if query.target == "inputs" else outputs
            targets = _required(tensors, f"{_TARGETS}{name}", (groups, size, columns))
        moments[name] = Moments(inputs, targets)
    if tensors:
        raise MessageError(f"An answer holds {', '.join(tensors)}, which was not requested.")
    return moments


def _required(tensors: dict[str, torch.Tensor], name: str, shape: tuple[int, ...]) -> torch.Tensor:
    tensor = tensors.pop(name, None)
    if tensor is None or tuple(tensor.shape) != shape or tensor.dtype != torch.float32:
        given = "is missing" if tensor is None else f"has {tensor.dtype} {tuple(tensor.shape)}"
        raise MessageError(f"In an answer, {name!r} {given}; expected: float32 {shape}.")
    if not bool(torch.isfinite(tensor).all()):
        raise MessageError(f"In an answer, {name!r} holds NaN or infinity.")
    return tensor.double()


def _taken(tensors: Mapping[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
