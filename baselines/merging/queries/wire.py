"""Messages between merging and data holders: models, losses and gradients as bytes.

Messages are in safetensors format, which holds named tensors and no code. A query holds a model and
a seed; an answer holds a loss and the gradient of that model's parameters. An answer with any other
name or shape is rejected, so that no observation or action is sent by mistake. (Gradients still
carry information about the data: this is no encryption.)
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from fleet_tools.baselines.merging.errors import MessageError
from fleet_tools.baselines.merging.symmetry.table import State
from fleet_tools.storage.strict_json import loads

_MODEL, _GRADIENT = "model.", "gradient."


@dataclass(frozen=True)
class Query:
    """A query to a data holder.

    Attributes:
        model: The model of which the loss is requested.
        seed: Seed of the data holder's draw of a trajectory or batch; None requests all data.
        gradient: Whether the gradient is requested, too.
    """

    model: State
    seed: int | None
    gradient: bool


@dataclass(frozen=True)
class Answer:
    """The answer of a data holder.

    Attributes:
        loss: Loss on its data.
        gradient: Gradient with respect to the model's parameters; empty if it was not requested. A
            missing parameter has the gradient zero.
    """

    loss: float
    gradient: Mapping[str, torch.Tensor]


def encode_query(query: Query) -> bytes:
    """Returns a query as a message."""
    seed = -1 if query.seed is None else query.seed
    return save(
        {f"{_MODEL}{name}": packed(tensor) for name, tensor in query.model.items()}
        | {"seed": torch.tensor(seed), "wants_gradient": torch.tensor(query.gradient)}
    )


def decode_query(message: bytes) -> Query:
    """Returns the query of a message from `encode_query`.

    Raises:
        MessageError: The message is no query.
    """
    tensors = unpacked(message, "query")
    seed = int(take_scalar(tensors, "seed", torch.int64))
    gradient = bool(take_scalar(tensors, "wants_gradient", torch.bool))
    require_prefixes(tensors, _MODEL)
    model = {name.removeprefix(_MODEL): tensor for name, tensor in tensors.items()}
    return Query(model, None if seed < 0 else seed, gradient)


def encode_answer(answer: Answer) -> bytes:
    """Returns an answer as a message."""
    gradient = {f"{_GRADIENT}{name}": packed(value) for name, value in answer.gradient.items()}
    return save(gradient | {"loss": torch.tensor(answer.loss, dtype=torch.float64)})


def decode_answer(message: bytes, query: Query) -> Answer:
    """Returns the answer of a message from `encode_answer`.

    Args:
        message: The message.
        query: The query to which it is the answer.

    Raises:
        MessageError: The message is no answer, or holds something that was not requested.
    """
    tensors = unpacked(message, "answer")
    loss = tensors.pop("loss", None)
    if loss is None or loss.dim() or loss.dtype != torch.float64:
        raise MessageError("An answer holds no loss, or one that is not a float64 scalar.")
    gradient = {}
    for key, tensor in tensors.items():
        name = key.removeprefix(_GRADIENT)
        parameter = query.model.get(name) if key.startswith(_GRADIENT) else None
        if (
            parameter is None
            or not query.gradient
            or not parameter.is_floating_point()
            or tensor.shape != parameter.shape
            or tensor.dtype != parameter.dtype
        ):
            raise MessageError(
                f"An answer holds {key!r} of the shape {tuple(tensor.shape)}, which was not "
                "requested. A data holder answers with a loss and with gradients of the parameters "
                "of the query, in their shapes and dtypes."
            )
        gradient[name] = tensor.to(parameter.device)
    if not all(bool(torch.isfinite(value).all()) for value in (loss, *gradient.values())):
        raise MessageError(
            f"A data holder answers with the loss {float(loss)} or gradients that are not finite. "
            "Check its data and its loss; a lower rate may help."
        )
    # The format has names in random order.
    in_order = {name: gradient[name] for name in query.model if name in gradient}
    return Answer(float(loss), in_order)


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


def unpacked(message: bytes, kind: str) -> dict[str, torch.Tensor]:
    """Returns the tensors of a message.

    Args:
        message: A message of any kind.
        kind: Its kind, for the error message.

    Raises:
        MessageError: It is no message.
    """
    try:
        return load(message)
    except (SafetensorError, KeyError) as error:  # KeyError: a dtype that PyTorch lacks
        raise MessageError(f"{len(message)} bytes are no {kind}: {error}.") from None


def take_scalar(tensors: dict[str, torch.Tensor], name: str, dtype: torch.dtype) -> torch.Tensor:
    """Removes a scalar from a message's tensors, and returns it.

    Raises:
        MessageError: There is none of this name and type.
    """
    tensor = tensors.pop(name, None)
    if tensor is None or tensor.dim() or tensor.dtype != dtype:
        raise MessageError(f"A message holds no {name!r}, or one that is not a {dtype} scalar.")
    return tensor


def require_prefixes(tensors: Mapping[str, torch.Tensor], *prefixes: str) -> None:
    """Checks that a message holds nothing but tensors whose names begin with one of some prefixes.

    Raises:
        MessageError: It holds something else.
    """
    for name in tensors:
        if not name.startswith(prefixes):
            raise MessageError(f"A message holds {name!r}, which no message has.")


def packed(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a copy that can be stored: safetensors refuses shared memory, as of tied weights."""
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
