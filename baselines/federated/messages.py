"""What crosses between the driver and a robot that trains: weights and a few counts, as bytes.

Safetensors, as in `merging.wire`, whose questions and answers are the only others. An answer with
another name, shape or dtype in it than the network's weights have, or with numbers that are not
finite, is refused, so no observation or action can travel in one by oversight.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from fleet_tools.baselines.merging.errors import MessageError
from fleet_tools.baselines.merging.queries.wire import packed, unpacked
from fleet_tools.baselines.policies.errors import CheckpointError
from fleet_tools.baselines.policies.weights import require_weights
from fleet_tools.baselines.training.state import Tensors

_WEIGHTS = "weights."


@dataclass(frozen=True, eq=False)
class Request:
    """What a robot is to do.

    Args:
        round: Which this is, from 1.
        epoch: How many epochs the fleet has behind it.
        epochs: How many to train now.
        weights: Where to begin; None at the robot's own initialization.
    """

    round: int
    epoch: int
    epochs: int
    weights: Tensors | None


@dataclass(frozen=True, eq=False)
class Reply:
    """What a robot says when it has done so.

    Args:
        round: That it was asked for.
        steps: Of its data, from which it learned in each epoch.
        loss: The mean over them in the last epoch.
        weights: To which it came.
    """

    round: int
    steps: int
    loss: float
    weights: Tensors


def encode_request(request: Request) -> bytes:
    """A request's bytes."""
    counts = {name: getattr(request, name) for name in ("round", "epoch", "epochs")}
    return _encode(counts, request.weights or {})


def is_request(message: bytes) -> bool:
    """Whether a message is one to train, and not a question as in `merging.wire`.

    Raises:
        MessageError: These are no message's bytes.
    """
    return "round" in unpacked(message, "message")


def decode_request(message: bytes) -> Request:
    """The inverse of `encode_request`.

    Raises:
        MessageError: These are no request's bytes.
    """
    tensors = unpacked(message, "request")
    counts = {name: _count(tensors, name, torch.int64) for name in ("round", "epoch", "epochs")}
    return Request(**counts, weights=_weights(tensors) or None)


def encode_reply(reply: Reply) -> bytes:
    """A reply's bytes."""
    counts = {name: getattr(reply, name) for name in ("round", "steps", "loss")}
    return _encode(counts, reply.weights)


def decode_reply(message: bytes, number: int, expected: Mapping[str, torch.Tensor]) -> Reply:
    """The inverse of `encode_reply`, for a reply that holds only what was asked for.

    Args:
        message: The bytes.
        number: Of the round.
        expected: The network's state dict; its numbers do not matter.

    Raises:
        MessageError: These are no reply's bytes, or one to another round; there is something else
            in them, or a number that is not finite.
    """
    tensors = unpacked(message, "reply")
    loss = _count(tensors, "loss", torch.float64)
    counts = {name: _count(tensors, name, torch.int64) for name in ("round", "steps")}
    weights = _weights(tensors)
    try:
        require_weights(expected, weights)
    except CheckpointError as error:
        raise MessageError(str(error)) from None
    if counts["round"] != number or counts["steps"] < 1 or not loss >= 0 or loss == float("inf"):
        raise MessageError(
            f"A robot replies to round {counts['round']} with {counts['steps']} steps and the loss "
            f"{loss:g}, when it is asked for round {number}, and for a loss that is finite."
        )
    in_order = {name: weights[name] for name in expected}  # the format has them at random
    return Reply(**counts, loss=loss, weights=in_order)


def _encode(counts: Mapping[str, int | float], weights: Tensors) -> bytes:
    from safetensors.torch import save

    scalars = {
        name: torch.tensor(count, dtype=torch.int64 if isinstance(count, int) else torch.float64)
        for name, count in counts.items()
    }
    return save(scalars | {f"{_WEIGHTS}{name}": packed(each) for name, each in weights.items()})


def _count(tensors: dict[str, torch.Tensor], name: str, dtype: torch.dtype) -> int | float:
    tensor = tensors.pop(name, None)
    if tensor is None or tensor.dim() or tensor.dtype != dtype:
        raise MessageError(f"A message holds no {name!r}, or one that is no {dtype} scalar.")
    return tensor.item()


def _weights(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    for name in tensors:
        if not name.startswith(_WEIGHTS):
            raise MessageError(f"A message holds {name!r}, which is none of its parts.")
    return {name.removeprefix(_WEIGHTS): tensor for name, tensor in tensors.items()}
