"""Values as bytes, at the borders of processes: named tensors, with their kind in the header.

Messages are in safetensors format, which holds named tensors and no code. The kind is the only
entry of the header's metadata. Within a process, values are passed as they are.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import isqrt
from typing import Any, get_args

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from fleet_merging.errors import MessageError
from fleet_merging.moments.gate import RowGate
from fleet_merging.moments.measurement import Moments, Target
from fleet_merging.moments.mixture import StateMixture
from fleet_merging.queries.query import LossAnswer, LossQuery, MixtureQuery, MomentQuery

Tensors = dict[str, torch.Tensor]

_MODEL, _GRADIENT = "model.", "gradient."
_TEACHER, _BESIDE, _GATE = "teacher.", "beside.", "gate."
_INPUTS, _TARGETS = "inputs.", "targets."
_METADATA, _KIND = "__metadata__", "kind"


@dataclass(frozen=True)
class Codec:
    """Encoding of the values of a type, which have a kind in messages.

    `pack` returns the content of a value by name; tensors may share memory with it. `unpack`
    returns the value of such a content, which it empties, or raises a `MessageError`.
    """

    kind: str
    type: type
    pack: Callable[[Any], Tensors]
    unpack: Callable[[Tensors], Any]


def encode(value: object, codecs: tuple[Codec, ...] | None = None) -> bytes:
    """Returns a value as a message.

    Args:
        value: A value of one of the types of the codecs.
        codecs: The codecs; the ones of queries and their answers if None.
    """
    kind, content = contents(value, codecs)
    return save(content, {_KIND: kind})


def contents(value: object, codecs: tuple[Codec, ...] | None = None) -> tuple[str, Tensors]:
    """Returns the kind of a value, and its content by name, without shared memory."""
    codec = _codec_of(value, codecs)
    return codec.kind, {name: packed(tensor) for name, tensor in codec.pack(value).items()}


def decode(message: bytes, codecs: tuple[Codec, ...] | None = None) -> Any:
    """Returns the value of a message from `encode`.

    Raises:
        MessageError: The bytes are no message, of an unknown kind, or have unexpected content.
    """
    kind = _kind_of(message)
    return value_of(kind, unpacked(message, kind), codecs)


def value_of(kind: str, tensors: Tensors, codecs: tuple[Codec, ...] | None = None) -> Any:
    """Returns the value of a kind from its content, which is emptied; see `contents`."""
    known = {codec.kind: codec for codec in codecs or QUERY_CODECS}
    if kind not in known:
        raise MessageError(f"A message is of the kind {kind!r}; known are {', '.join(known)}.")
    value = known[kind].unpack(tensors)
    if tensors:
        raise MessageError(
            f"A message of the kind {kind} holds unexpected tensors: "
            f"{', '.join(sorted(tensors))!r}."
        )
    return value


def size(value: object, codecs: tuple[Codec, ...] | None = None) -> int:
    """Returns the number of bytes of a value's message, without `encode`."""
    codec = _codec_of(value, codecs)
    content = codec.pack(value).items()
    return _size(codec.kind, tuple((name, each.shape, each.dtype) for name, each in content))


@lru_cache
def _size(kind: str, layout: tuple[tuple[str, torch.Size, torch.dtype], ...]) -> int:
    content = {name: torch.empty(shape, dtype=dtype) for name, shape, dtype in layout}
    return len(save(content, {_KIND: kind}))


def _codec_of(value: object, codecs: tuple[Codec, ...] | None) -> Codec:
    for codec in codecs or QUERY_CODECS:
        if type(value) is codec.type:
            return codec
    raise MessageError(f"A {type(value).__name__} is not a message.")


def _kind_of(message: bytes) -> str:
    """Returns the kind in the header: after 8 bytes with its size comes the header, as JSON."""
    length = int.from_bytes(message[:8], "little")
    try:
        return str(json.loads(message[8 : 8 + length])[_METADATA][_KIND])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise MessageError(f"{len(message)} bytes are not a message: {error}.") from None


def unpacked(message: bytes, kind: str) -> Tensors:
    """Returns the tensors of a message; the error message calls it a `kind`."""
    try:
        return load(message)
    except (SafetensorError, KeyError) as error:  # KeyError: a dtype that PyTorch lacks
        raise MessageError(f"{len(message)} bytes are not a {kind}: {error}.") from None


def packed(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a copy that can be stored: safetensors refuses shared memory, as of tied weights."""
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)


def named(prefix: str, tensors: Mapping[str, torch.Tensor]) -> Tensors:
    """Returns tensors with a prefix before their names."""
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def take_named(tensors: Tensors, prefix: str) -> Tensors:
    """Removes tensors with a prefix in their names, and returns them without it."""
    names = [name for name in tensors if name.startswith(prefix)]
    return {name.removeprefix(prefix): tensors.pop(name) for name in names}


def take_scalar(tensors: Tensors, name: str, dtype: torch.dtype) -> torch.Tensor:
    """Removes a scalar from a message's tensors, and returns it.

    Raises a `MessageError` if there is none of this name and type.
    """
    tensor = tensors.pop(name, None)
    if tensor is None or tensor.dim() or tensor.dtype != dtype:
        raise MessageError(f"A message holds no {name!r}, or one that is not a {dtype} scalar.")
    return tensor


def _pack_loss_query(query: LossQuery) -> Tensors:
    seed = -1 if query.seed is None else query.seed
    numbers = {"seed": torch.tensor(seed), "wants_gradient": torch.tensor(query.gradient)}
    return named(_MODEL, query.model) | numbers


def _unpack_loss_query(tensors: Tensors) -> LossQuery:
    seed = int(take_scalar(tensors, "seed", torch.int64))
    gradient = bool(take_scalar(tensors, "wants_gradient", torch.bool))
    return LossQuery(take_named(tensors, _MODEL), None if seed < 0 else seed, gradient)


def _pack_loss(answer: LossAnswer) -> Tensors:
    loss = torch.tensor(answer.loss, dtype=torch.float64)
    return named(_GRADIENT, answer.gradient) | {"loss": loss}


def _unpack_loss(tensors: Tensors) -> LossAnswer:
    loss = float(take_scalar(tensors, "loss", torch.float64))
    return LossAnswer(loss, take_named(tensors, _GRADIENT))


def pack_moment_query(query: MomentQuery) -> Tensors:
    """Returns the content of a query for moments."""
    request: dict[str, Any] = {"maps": query.maps, "target": query.target}
    tensors = named(_MODEL, query.model) | named(_TEACHER, query.teacher or {})
    for index, state in enumerate(query.beside):
        tensors |= named(f"{_BESIDE}{index}.", state)
    if query.gate is not None:
        gate = query.gate
        request["gate"] = {"map": gate.map, "sharpness": gate.sharpness, "reader": gate.reader}
        tensors |= {f"{_GATE}means": gate.means, f"{_GATE}factors": gate.factors}
    text = bytearray(json.dumps(request).encode())
    return tensors | {"moments": torch.frombuffer(text, dtype=torch.uint8)}


def _unpack_moment_query(tensors: Tensors) -> MomentQuery:
    gate = None
    try:
        request = json.loads(bytes(tensors.pop("moments").tolist()))
        maps, target = tuple(request["maps"]), request["target"]
        if target not in get_args(Target) or not all(isinstance(name, str) for name in maps):
            raise ValueError(request)
        if "gate" in request:
            parts, asked = take_named(tensors, _GATE), request["gate"]
            name, sharpness, reader = asked["map"], float(asked["sharpness"]), asked["reader"]
            if not isinstance(name, str) or not math.isfinite(sharpness) or type(reader) is not int:
                raise ValueError(request)
            gate = RowGate(name, parts["means"], parts["factors"], sharpness, reader)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise MessageError(f"A message is not a query for moments: {error!r}.") from None
    teacher, beside = take_named(tensors, _TEACHER), []
    while further := take_named(tensors, f"{_BESIDE}{len(beside)}."):
        beside.append(further)
    model = take_named(tensors, _MODEL)
    query = MomentQuery(model, maps, target, teacher or None, tuple(beside), gate)
    query.require_possible()
    return query


def _pack_moments(moments: Mapping[str, Moments]) -> Tensors:
    """Sends only the upper triangle of moments of inputs, which are symmetric, in float32."""
    tensors: Tensors = {}
    for name, each in moments.items():
        tensors[f"{_INPUTS}{name}"] = triangles_of(each.inputs).float()
        if each.targets.shape[2] > 0:
            tensors[f"{_TARGETS}{name}"] = each.targets.float()
    return tensors


def _unpack_moments(tensors: Tensors) -> dict[str, Moments]:
    targets, moments = take_named(tensors, _TARGETS), {}
    for name, triangle in take_named(tensors, _INPUTS).items():
        target = targets.pop(name, None)
        inputs = symmetric(triangle, name).double()
        if target is not None and (target.dtype != torch.float32 or target.dim() != 3):
            raise MessageError(
                f"A message does not hold float32 matrices as the targets of {name!r}."
            )
        moments[name] = Moments(inputs, inputs[..., :0] if target is None else target.double())
    tensors |= named(_TARGETS, targets)  # of maps without inputs, which `decode` refuses
    return moments


def triangles_of(matrices: torch.Tensor) -> torch.Tensor:
    """Returns the upper triangles of symmetric matrices, (k, n, n), one in each row."""
    upper = torch.triu_indices(*matrices.shape[1:])
    return matrices[:, upper[0], upper[1]]


def symmetric(triangles: torch.Tensor, name: str) -> torch.Tensor:
    """Returns the symmetric matrices of triangles, (k, n, n) float32."""
    entries = triangles.shape[-1] if triangles.dim() == 2 else 0
    size = (isqrt(8 * entries + 1) - 1) // 2
    if entries == 0 or size * (size + 1) // 2 != entries or triangles.dtype != torch.float32:
        raise MessageError(f"A message does not hold a triangle of moments as {name!r}.")
    upper = torch.triu_indices(size, size)
    matrices = torch.zeros(len(triangles), size, size)
    matrices[:, upper[0], upper[1]] = matrices[:, upper[1], upper[0]] = triangles
    return matrices


def _pack_mixture_query(query: MixtureQuery) -> Tensors:
    numbers = {"components": query.components, "seed": query.seed}
    if query.rank:
        numbers["rank"] = query.rank
    if not query.consecutive:
        numbers["consecutive"] = 0
    tensors = {name: torch.tensor(number) for name, number in numbers.items()}
    return tensors | named(_MODEL, query.model or {})


def _unpack_mixture_query(tensors: Tensors) -> MixtureQuery:
    components, seed = (
        int(take_scalar(tensors, name, torch.int64)) for name in ("components", "seed")
    )
    rank, consecutive = (
        int(take_scalar(tensors, name, torch.int64)) if name in tensors else default
        for name, default in (("rank", 0), ("consecutive", 1))
    )
    model = take_named(tensors, _MODEL) or None
    query = MixtureQuery(components, seed, rank, model, bool(consecutive))
    query.require_possible()
    return query


def _pack_mixture(mixture: StateMixture) -> Tensors:
    tensors = {
        "starts": torch.tensor(mixture.starts),
        "weights": mixture.weights,
        "means": mixture.means,
        "covariances": triangles_of(mixture.covariances),
    }
    if not mixture.consecutive:
        tensors["consecutive"] = torch.tensor(0)
    return tensors if mixture.axes is None else tensors | {"axes": mixture.axes}


def _unpack_mixture(tensors: Tensors) -> StateMixture:
    starts = int(take_scalar(tensors, "starts", torch.int64))
    try:
        weights, means, triangles = (
            tensors.pop(name) for name in ("weights", "means", "covariances")
        )
    except KeyError as error:
        raise MessageError(f"A message does not hold {error} of a mixture.") from None
    covariances, axes = symmetric(triangles, "covariances"), tensors.pop("axes", None)
    consecutive = "consecutive" not in tensors or take_scalar(tensors, "consecutive", torch.int64)
    return StateMixture(starts, weights, means, covariances, axes, bool(consecutive))


QUERY_CODECS = (
    Codec("loss query", LossQuery, _pack_loss_query, _unpack_loss_query),
    Codec("loss", LossAnswer, _pack_loss, _unpack_loss),
    Codec("moment query", MomentQuery, pack_moment_query, _unpack_moment_query),
    Codec("moments", dict, _pack_moments, _unpack_moments),
    Codec("mixture query", MixtureQuery, _pack_mixture_query, _unpack_mixture_query),
    Codec("mixture", StateMixture, _pack_mixture, _unpack_mixture),
)
"""Queries to data holders, and their answers."""
