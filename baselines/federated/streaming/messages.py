"""Messages of streaming rounds: requests for changes, and changes as vectors.

As all messages of fleets they are safetensors, and hold nothing else.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

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
from fleet_tools.baselines.federated.privacy.bit_packing import pack, unpack
from fleet_tools.baselines.federated.privacy.modular import centre, reduce
from fleet_tools.baselines.federated.privacy.quantization import dequantize
from fleet_tools.baselines.federated.privacy.seeds import KEY_BYTES
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
        modulus_bits: Number of bits of masked integers; 0 for no masks.
        nonce: A number that is used once, by which masks are drawn.
        public_keys: Public keys of the robots with which masks are shared, by robot number.
    """

    training: LocalUpdateRequest
    reference: Tensors | None
    session: int
    modulus_bits: int = 0
    nonce: int = 0
    public_keys: Mapping[int, bytes] = field(default_factory=dict)


def encode_change_request(request: ChangeRequest) -> bytes:
    """Returns a request as bytes."""
    return save(
        {
            **tensors_of_request(request.training),
            **named(_REFERENCE, request.reference or {}),
            CHANGE: int64(request.session),
            "modulus_bits": int64(request.modulus_bits),
            "nonce": int64(request.nonce),
            **encoded_keys(request.public_keys),
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
    session, bits = take_integer(tensors, CHANGE), take_integer(tensors, "modulus_bits")
    nonce, keys = take_integer(tensors, "nonce"), take_keys(tensors)
    reference = {
        name.removeprefix(_REFERENCE): tensors.pop(name)
        for name in list(tensors)
        if name.startswith(_REFERENCE)
    }
    return ChangeRequest(take_request(tensors), reference or None, session, bits, nonce, keys)


@dataclass(frozen=True, eq=False)
class Change:
    """A robot's reply: how its policy differs from the reference.

    Attributes:
        steps: Number of steps that it learned from.
        loss: Mean loss over them in the last epoch.
        vector: The difference, shape (n,): float32; or integers modulo a power of two, uint64, if
            they are masked.
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
        integers: Shape (n,), as `privacy.quantization.quantize` returns them.
        largest: Largest change of each tensor, float32.
        bits: Number of bits of each integer.
    """
    packed = pack(reduce(integers, bits), bits)
    return save(
        {**result_numbers(update), "rounded": uint8(packed), "largest": torch.from_numpy(largest)}
    )


def encode_masked(update: LocalUpdate, masked: np.ndarray, modulus_bits: int) -> bytes:
    """Returns a masked difference as a reply, with neither steps nor loss of the robot.

    Args:
        update: The robot's result.
        masked: Shape (n,), uint64.
        modulus_bits: Number of bits of each.
    """
    hidden = LocalUpdate(update.round, 1, 0.0, {})
    return save({**result_numbers(hidden), "masked": uint8(pack(masked, modulus_bits))})


def decode_vector(reply: bytes, round_number: int, size: int) -> Change:
    """Returns what `encode_vector` encoded.

    Raises:
        MessageError: The bytes are not such a reply to the round, hold something else, or a number
            that is not finite.
    """
    tensors = unpacked(reply, "reply")
    steps, loss = take_result(tensors, round_number)
    vector = take_array(tensors, "vector", torch.float32, (size,))
    require_empty(tensors)
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
    largest = take_array(tensors, "largest", torch.float32, (len(counts),))
    data = take_array(tensors, "rounded", torch.uint8, None).tobytes()
    require_empty(tensors)
    parts = split(centre(unpack(data, bits, sum(counts)), bits), counts)
    vector = [dequantize(part, float(top), bits) for part, top in zip(parts, largest, strict=True)]
    return Change(steps, loss, np.concatenate(vector))


def decode_masked(reply: bytes, round_number: int, size: int, modulus_bits: int) -> Change:
    """Returns what `encode_masked` encoded.

    Raises:
        MessageError: See `decode_vector`.
    """
    tensors = unpacked(reply, "reply")
    steps, loss = take_result(tensors, round_number)
    data = take_array(tensors, "masked", torch.uint8, None).tobytes()
    require_empty(tensors)
    return Change(steps, loss, unpack(data, modulus_bits, size))


def encoded_keys(keys: Mapping[int, bytes]) -> dict[str, torch.Tensor]:
    """Returns keys or seeds by robot number as they are sent; nothing if there are none."""
    if not keys:
        return {}
    return {"robots": torch.tensor(list(keys)), "keys": uint8(b"".join(keys.values()))}


def take_keys(tensors: dict[str, torch.Tensor]) -> dict[int, bytes]:
    """Removes what `encoded_keys` returned.

    Raises:
        MessageError: There are not as many keys as robots.
    """
    if "robots" not in tensors:
        return {}
    robots = take_array(tensors, "robots", torch.int64, None).tolist()
    data = take_array(tensors, "keys", torch.uint8, (len(robots) * KEY_BYTES,)).tobytes()
    keys = [data[begin : begin + KEY_BYTES] for begin in range(0, len(data), KEY_BYTES)]
    return dict(zip(robots, keys, strict=True))


def take_array(
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


def require_empty(tensors: Mapping[str, torch.Tensor]) -> None:
    """Raises an error if a message holds more than what was taken from it.

    Raises:
        MessageError: It does.
    """
    if tensors:
        raise MessageError(f"A message holds {', '.join(sorted(tensors))}, which none has.")


def uint8(data: bytes) -> torch.Tensor:
    """Returns bytes as they are sent."""
    return torch.from_numpy(np.frombuffer(data, np.uint8).copy())
