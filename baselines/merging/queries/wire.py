"""What passes between merging and a robot: models, losses and gradients, as bytes.

Messages are safetensors, which hold named tensors and no code. A question carries a model and a
seed; an answer a loss and the gradient of that model's parameters, and nothing else: an answer
with another name or shape in it is refused, so no observation or action can travel in one by
oversight. (Gradients still tell something about data to who studies them: this is no encryption.)
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from fleet_tools.baselines.merging.errors import MessageError
from fleet_tools.baselines.merging.symmetry.table import State

_MODEL, _GRADIENT = "model.", "gradient."


@dataclass(frozen=True)
class Question:
    """What is asked of a robot.

    Args:
        model: Where the loss is wanted.
        seed: Of the robot's draw of a trajectory or batch; None asks for all of its data.
        gradient: Whether the gradient is wanted, too.
    """

    model: State
    seed: int | None
    gradient: bool


@dataclass(frozen=True)
class Answer:
    """What a robot says.

    Args:
        loss: On its own data.
        gradient: With respect to the model's parameters; empty where none was asked for. One that
            is missing is zero.
    """

    loss: float
    gradient: Mapping[str, torch.Tensor]


def encode_question(question: Question) -> bytes:
    """A question's bytes."""
    seed = -1 if question.seed is None else question.seed
    return save(
        {f"{_MODEL}{name}": packed(tensor) for name, tensor in question.model.items()}
        | {"seed": torch.tensor(seed), "wants_gradient": torch.tensor(question.gradient)}
    )


def decode_question(message: bytes) -> Question:
    """The inverse of `encode_question`.

    Raises:
        MessageError: These are no question's bytes.
    """
    tensors = unpacked(message, "question")
    try:
        seed, gradient = int(tensors.pop("seed")), bool(tensors.pop("wants_gradient"))
    except (KeyError, RuntimeError) as error:
        raise MessageError(f"A question lacks its seed, or what it wants: {error!r}.") from None
    model = {name.removeprefix(_MODEL): tensor for name, tensor in tensors.items()}
    return Question(model, None if seed < 0 else seed, gradient)


def encode_answer(answer: Answer) -> bytes:
    """An answer's bytes."""
    gradient = {f"{_GRADIENT}{name}": packed(value) for name, value in answer.gradient.items()}
    return save(gradient | {"loss": torch.tensor(answer.loss, dtype=torch.float64)})


def decode_answer(message: bytes, question: Question) -> Answer:
    """The inverse of `encode_answer`, for an answer that holds only what was asked for.

    Raises:
        MessageError: These are no answer's bytes, or there is something else in them.
    """
    tensors = unpacked(message, "answer")
    loss = tensors.pop("loss", None)
    if loss is None or loss.dim() or loss.dtype != torch.float64:
        raise MessageError("An answer holds no loss, or one that is not a float64 scalar.")
    gradient = {}
    for key, tensor in tensors.items():
        name = key.removeprefix(_GRADIENT)
        expected = question.model.get(name) if key.startswith(_GRADIENT) else None
        allowed = expected is not None and question.gradient and expected.is_floating_point()
        if not allowed or tensor.shape != expected.shape or tensor.dtype != expected.dtype:
            raise MessageError(
                f"An answer holds {key!r} of the shape {tuple(tensor.shape)}, which was not asked "
                "for. A robot answers with a loss, and gradients of the parameters that it was "
                "sent, in their shapes and dtypes."
            )
        gradient[name] = tensor.to(expected.device)
    if not all(bool(torch.isfinite(value).all()) for value in (loss, *gradient.values())):
        raise MessageError(
            f"A robot answers with the loss {float(loss)} or gradients that are not finite. Look "
            "at its data and its loss; a lower rate may help."
        )
    in_order = {name: gradient[name] for name in question.model if name in gradient}
    return Answer(float(loss), in_order)  # the format has them at random


def unpacked(message: bytes, what: str) -> dict[str, torch.Tensor]:
    """Reads a message's tensors.

    Args:
        message: Of any kind.
        what: It is to be, for the error.

    Raises:
        MessageError: These are no message's bytes.
    """
    try:
        return load(message)
    except SafetensorError as error:
        raise MessageError(f"{len(message)} bytes are no {what}: {error}.") from None


def packed(tensor: torch.Tensor) -> torch.Tensor:
    """A copy that can be stored: the format refuses tensors that share memory, as tied ones do."""
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
