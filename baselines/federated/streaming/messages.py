"""Messages of streaming rounds: requests for changes, and changes as vectors.

As all messages of fleets they are safetensors, and hold nothing else.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from fleet_tools.baselines.federated.messages import (
    CHANGE,
    LocalUpdate,
    LocalUpdateRequest,
    int64,
    named,
    result_numbers,
    save,
    take_integer,
    take_request,
    take_result,
    tensor_names,
    tensors_of_request,
)
from fleet_tools.baselines.federated.streaming.quantization import dequantize, pack, unpack
from fleet_tools.baselines.federated.streaming.vectors import split
from fleet_tools.baselines.merging.errors import MessageError
from fleet_tools.baselines.merging.queries.wire import unpacked
from fleet_tools.baselines.training.state import Tensors

_REFERENCE = "reference."


@dataclass(frozen=True, eq=False)
class ChangeRequest:
    """Request to train, to align with a reference, and to send the difference from it.

    Attributes:
        training: Request to train.
        reference: The reference; None for the weights with which training begins.
        session: Number of this exchange, by which rounding and alignment are drawn.
    """

    training: LocalUpdateRequest
    reference: Tensors | None
    session: int


def encode_change_request(request: ChangeRequest) -> bytes:
    """Returns a request as bytes."""
    return save(
        {
            **tensors_of_request(request.training),
            **named(_REFERENCE, request.reference or {}),
            CHANGE: int64(request.session),
        }
    )


def is_change_request(message: bytes) -> bool:
    """Whether a message is a request of this kind.

    Raises:
        MessageError: The bytes are not a message.
    """
    return CHANGE in tensor_names(message, "message")


def decode_change_request(message: bytes) -> ChangeRequest:
    """Returns the request that `encode_change_request` encoded.

    Raises:
        MessageError: The bytes are not such a request.
    """
    tensors = unpacked(message, "request")
    session = take_integer(tensors, CHANGE)
    reference = {
        name.removeprefix(_REFERENCE): tensors.pop(name)
        for name in list(tensors)
        if name.startswith(_REFERENCE)
    }
    return ChangeRequest(take_request(tensors), reference or None, session)


@dataclass(frozen=True, eq=False)
class Change:
    """A robot's reply: how its policy differs from the reference.

    Attributes:
        steps: Number of steps that it learned from.
        loss: Mean loss over them in the last epoch.
        vector: The difference, shape (n,), float32.
    """

    steps: int
    loss: float
    vector: np.ndarray


def encode_vector(update: LocalUpdate, vector: np.ndarray) -> bytes:
    """Returns a difference, shape (n,), float32, as a reply."""
    return save({**result_numbers(update), "vector": torch.from_numpy(vector)})


def encode_rounded(
    update: LocalUpdate, integers: np.ndarray, largest: np.ndarray, bits: int
) -> bytes:
    """Returns a rounded difference as a reply.

    Args:
        update: The robot's result.
        integers: Shape (n,), as `quantization.quantize` returns them.
        largest: Largest change of each tensor, float32.
        bits: Number of bits of each integer.
    """
    packed = torch.from_numpy(np.frombuffer(pack(integers, bits), np.uint8).copy())
    return save({**result_numbers(update), "rounded": packed, "largest": torch.from_numpy(largest)})


def decode_vector(reply: bytes, round_number: int, size: int) -> Change:
    """Returns what `encode_vector` encoded.

    Raises:
        MessageError: The bytes are not such a reply to the round, hold something else, or a number
            that is not finite.
    """
    tensors = unpacked(reply, "reply")
    steps, loss = take_result(tensors, round_number)
    vector = _take_array(tensors, "vector", torch.float32, (size,))
    _require_empty(tensors)
    return Change(steps, loss, vector)


def decode_rounded(reply: bytes, round_number: int, counts: list[int], bits: int) -> Change:
    """Returns what `encode_rounded` encoded, as float32.

    Args:
        reply: The bytes.
        round_number: Number of the round.
        counts: Number of entries of each tensor.
        bits: Number of bits of each integer.

    Raises:
        MessageError: See `decode_vector`.
    """
    tensors = unpacked(reply, "reply")
    steps, loss = take_result(tensors, round_number)
    largest = _take_array(tensors, "largest", torch.float32, (len(counts),))
    data = _take_array(tensors, "rounded", torch.uint8, None).tobytes()
    _require_empty(tensors)
    parts = split(unpack(data, bits, sum(counts)), counts)
    vector = [dequantize(part, float(top), bits) for part, top in zip(parts, largest, strict=True)]
    return Change(steps, loss, np.concatenate(vector))


def _take_array(
    tensors: dict[str, torch.Tensor], name: str, dtype: torch.dtype, shape: tuple[int, ...] | None
) -> np.ndarray:
    """Removes an array from a message's tensors, and returns it.

    Args:
        tensors: The tensors.
        name: Name of the array.
        dtype: Its type.
        shape: Its shape; None for any vector.

    Raises:
        MessageError: It is missing, of another type or shape, or not finite.
    """
    tensor = tensors.pop(name, None)
    fits = tensor is not None and tensor.dtype == dtype and tensor.dim() == 1
    if tensor is None or not fits or shape not in (None, tuple(tensor.shape)):
        found = "nothing" if tensor is None else f"{tensor.dtype} {tuple(tensor.shape)}"
        expected = f"{dtype} {'vector' if shape is None else shape}"
        raise MessageError(f"A message holds {found} as {name!r}; expected: {expected}.")
    if not torch.isfinite(tensor).all():
        raise MessageError(f"A message holds numbers in {name!r} that are not finite.")
    return tensor.numpy()


def _require_empty(tensors: Mapping[str, torch.Tensor]) -> None:
    """Raises an error if a message holds more than what was taken from it.

    Raises:
        MessageError: It does.
    """
    if tensors:
        raise MessageError(f"A message holds {', '.join(sorted(tensors))}, which none has.")
