"""Robots, which keep their data: merging asks them for losses and gradients of models."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch

from fleet_tools.baselines.merging.average import floating
from fleet_tools.baselines.merging.symmetry import State
from fleet_tools.baselines.merging.wire import (
    Answer,
    Question,
    decode_answer,
    decode_question,
    encode_answer,
    encode_question,
)

Loss = Callable[[Mapping[str, torch.Tensor], int | None], torch.Tensor]
"""loss(state, seed): a differentiable scalar, on a draw from data (on all of it, for seed None)."""


class Robot(Protocol):
    """Whoever holds data and answers questions about models, in this process or far away."""

    def answer(self, message: bytes) -> bytes:
        """Takes a question and returns an answer, both as in `wire`."""
        ...


@dataclass(frozen=True)
class LocalRobot:
    """A robot in this process. Its loss closes over its data; only bytes go in and out.

    Args:
        loss: Of a model, on the robot's own data. `torch.func.functional_call` makes one.
    """

    loss: Loss

    def answer(self, message: bytes) -> bytes:
        """See `Robot`.

        Raises:
            MessageError: The bytes are no question.
        """
        question = decode_question(message)
        model = dict(question.model)
        if not question.gradient:
            with torch.no_grad():
                return encode_answer(Answer(float(self.loss(model, question.seed)), {}))
        with torch.enable_grad():
            leaves = {name: tensor.requires_grad_() for name, tensor in floating(model).items()}
            # Clones, since a BatchNorm in training writes into its buffers.
            loss = self.loss(
                {k: v.clone() if k in leaves else v for k, v in model.items()}, question.seed
            )
            gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        told = {
            name: gradient
            for name, gradient in zip(leaves, gradients, strict=True)
            if gradient is not None
        }
        return encode_answer(Answer(float(loss.detach()), told))


@dataclass(frozen=True)
class Traffic:
    """What crossed between merging and robots.

    Args:
        calls: Questions asked.
        bytes_to_robots: Of the questions.
        bytes_from_robots: Of the answers.
    """

    calls: int = 0
    bytes_to_robots: int = 0
    bytes_from_robots: int = 0

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(
            self.calls + other.calls,
            self.bytes_to_robots + other.bytes_to_robots,
            self.bytes_from_robots + other.bytes_from_robots,
        )


def ask(
    robot: Robot, model: State, seed: int | None, gradient: bool = True
) -> tuple[Answer, Traffic]:
    """Asks a robot for the loss of a model on its own data, and the gradient.

    Args:
        robot: Who is asked.
        model: Where.
        seed: Of the robot's draw; None asks for all of its data.
        gradient: Whether it is wanted.

    Raises:
        MessageError: The robot answers something else.
    """
    question = Question(model, seed, gradient)
    sent = encode_question(question)
    received = robot.answer(sent)
    return decode_answer(received, question), Traffic(1, len(sent), len(received))
