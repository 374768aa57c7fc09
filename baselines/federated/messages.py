"""Messages between the driver and a robot that trains: weights and a few numbers, as bytes.

Messages are safetensors, as those of `merging.queries.wire`, which are the only other ones. A reply
is refused if it holds a name, shape or dtype that the network's weights do not have, or a number
that is not finite, so that no observation or action can be sent by mistake.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from fleet_tools.baselines.merging.errors import MessageError
from fleet_tools.baselines.merging.queries.wire import packed, take_scalar, unpacked
from fleet_tools.baselines.policies.checkpoint import CheckpointError, require_weights
from fleet_tools.baselines.training.state import Tensors
from fleet_tools.storage.strict_json import loads

CHANGE = "change"
"""Name that marks a request for a change (`streaming.messages`), which is also one to train."""

_WEIGHTS = "weights."


@dataclass(frozen=True, eq=False)
class LocalUpdateRequest:
    """Request to train for some epochs.

    Attributes:
        round: Number of the round, from 1.
        epoch: Number of epochs that the fleet has completed.
        epochs: Number of epochs to train.
        weights: Initial weights; None for the robot's own initialization.
    """

    round: int
    epoch: int
    epochs: int
    weights: Tensors | None


@dataclass(frozen=True, eq=False)
class LocalUpdate:
    """Result of a robot's training in a round.

    Attributes:
        round: Number of the round.
        steps: Number of steps that the robot learns from in each epoch.
        loss: Mean loss over them in the last epoch.
        weights: Weights after the last epoch.
    """

    round: int
    steps: int
    loss: float
    weights: Tensors


def encode_request(request: LocalUpdateRequest) -> bytes:
    """Returns a request as bytes."""
    return save(tensors_of_request(request))


def tensors_of_request(request: LocalUpdateRequest) -> dict[str, torch.Tensor]:
    """Returns the content of a request by name."""
    numbers = {name: int64(getattr(request, name)) for name in ("round", "epoch", "epochs")}
    return numbers | named(_WEIGHTS, request.weights or {})


def is_request(message: bytes) -> bool:
    """Whether a message is a `LocalUpdateRequest`, and no other message to robots.

    Raises:
        MessageError: The bytes are not a message.
    """
    names = tensor_names(message, "message")
    return "round" in names and CHANGE not in names


def decode_request(message: bytes) -> LocalUpdateRequest:
    """Returns the request that `encode_request` encoded.

    Raises:
        MessageError: The bytes are not a request.
    """
    return take_request(unpacked(message, "request"))


def take_request(tensors: dict[str, torch.Tensor]) -> LocalUpdateRequest:
    """Returns the request in the content of a message, in which nothing else may be.

    Raises:
        MessageError: It holds something else.
    """
    return LocalUpdateRequest(
        round=take_integer(tensors, "round"),
        epoch=take_integer(tensors, "epoch"),
        epochs=take_integer(tensors, "epochs"),
        weights=_weights(tensors) or None,
    )


def encode_update(update: LocalUpdate) -> bytes:
    """Returns a local update as bytes, a robot's reply."""
    return save(result_numbers(update) | named(_WEIGHTS, update.weights))


def result_numbers(update: LocalUpdate) -> dict[str, torch.Tensor]:
    """Returns what a robot's reply holds beside weights, by name."""
    return {
        "round": int64(update.round),
        "steps": int64(update.steps),
        "loss": torch.tensor(update.loss, dtype=torch.float64),
    }


def decode_update(
    reply: bytes, round_number: int, expected: Mapping[str, torch.Tensor]
) -> LocalUpdate:
    """Returns the local update that `encode_update` encoded, if it holds only what was requested.

    Args:
        reply: The bytes.
        round_number: Number of the round.
        expected: State dict of the network; its numbers do not matter.

    Raises:
        MessageError: The bytes are not a reply, or a reply to another round; they hold something
            else, or a number that is not finite.
    """
    tensors = unpacked(reply, "reply")
    steps, loss = take_result(tensors, round_number)
    weights = _weights(tensors)
    try:
        require_weights(expected, weights)
    except CheckpointError as error:
        raise MessageError(str(error)) from None
    in_order = {name: weights[name] for name in expected}  # a file has them in any order
    return LocalUpdate(round_number, steps, loss, in_order)


def take_result(tensors: dict[str, torch.Tensor], round_number: int) -> tuple[int, float]:
    """Removes what `result_numbers` returned, and returns the number of steps and the loss.

    Raises:
        MessageError: A number is missing or impossible, or of another round.
    """
    loss = take_scalar(tensors, "loss", torch.float64).item()
    number, steps = take_integer(tensors, "round"), take_integer(tensors, "steps")
    if number != round_number or steps < 1 or not loss >= 0 or loss == float("inf"):
        raise MessageError(
            f"A reply to round {round_number} with at least 1 step and a finite loss is expected; "
            f"this one is to round {number}, with {steps} steps and the loss {loss:g}."
        )
    return steps, loss


def named(prefix: str, tensors: Tensors) -> dict[str, torch.Tensor]:
    """Returns tensors as they are sent, with a prefix before their names."""
    return {f"{prefix}{name}": packed(tensor) for name, tensor in tensors.items()}


def save(tensors: Mapping[str, torch.Tensor]) -> bytes:
    """Returns tensors as a message."""
    from safetensors.torch import save as as_bytes

    return as_bytes(dict(tensors))


def int64(number: int) -> torch.Tensor:
    """Returns an integer as it is sent."""
    return torch.tensor(number, dtype=torch.int64)


def take_integer(tensors: dict[str, torch.Tensor], name: str) -> int:
    """Removes an integer of at least 0 from a message's tensors, and returns it.

    Raises:
        MessageError: There is none of this name.
    """
    number = int(take_scalar(tensors, name, torch.int64))
    if number < 0:
        raise MessageError(f"A message holds {number} as {name!r}; expected: at least 0.")
    return number


def _weights(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    require_prefixes(tensors, _WEIGHTS)
    return {name.removeprefix(_WEIGHTS): tensor for name, tensor in tensors.items()}


def tensor_names(message: bytes, kind: str) -> set[str]:
    """Returns the names of a message's tensors, of which none is read.

    In the format, the size of a JSON header comes first, 8 bytes, and then the header, by name.

    Args:
        message: A message of any kind.
        kind: Its kind, for the error message.

    Raises:
        MessageError: It is no message.
    """
    size = int.from_bytes(message[:8], "little")
    try:
        return set(dict(loads(message[8 : 8 + size].decode())))
    except (TypeError, ValueError, RecursionError) as error:
        raise MessageError(f"{len(message)} bytes are no {kind}: {error}.") from None


def require_prefixes(tensors: Mapping[str, torch.Tensor], *prefixes: str) -> None:
    """Checks that a message holds nothing but tensors whose names begin with one of some prefixes.

    Raises:
        MessageError: It holds something else.
    """
    for name in tensors:
        if not name.startswith(prefixes):
            raise MessageError(f"A message holds {name!r}, which no message has.")
