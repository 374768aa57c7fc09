"""Robots, which keep their data: merging asks them for losses and gradients of models."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch

from fleet_tools.baselines.merging.errors import MessageError
from fleet_tools.baselines.merging.queries.wire import (
    Answer,
    Question,
    decode_answer,
    decode_question,
    encode_answer,
    encode_question,
)
from fleet_tools.baselines.merging.symmetry.table import State

Policy = Callable[..., Any]
"""A model with the weights in question: called as the module is."""

Loss = Callable[[Policy, int | None], torch.Tensor]
"""loss(policy, seed): a differentiable scalar, on a draw from data, or on all of it for None."""


class Robot(Protocol):
    """Whoever holds data and answers questions about models, in this process or far away."""

    def answer(self, message: bytes) -> bytes:
        """Takes a question and returns an answer, both as in `wire`."""
        ...


@dataclass(frozen=True)
class LocalRobot:
    """A robot in this process. Its loss closes over its data; only bytes go in and out.

        LocalRobot(model, lambda policy, seed: mse_loss(policy(observations), actions))

    Args:
        model: The architecture, in the mode (`train` or `eval`) that the loss is meant in. Its own
            weights are neither used nor changed.
        loss: Of a policy, on the robot's own data.
    """

    model: torch.nn.Module
    loss: Loss

    def answer(self, message: bytes) -> bytes:
        """See `Robot`.

        Raises:
            MessageError: The bytes are no question, or one about another architecture.
        """
        question = decode_question(message)
        # Tied weights have several names in a state dict, and one here.
        names = [name for name, _ in self.model.named_parameters()]
        ours = dict(self.model.named_parameters()) | dict(self.model.named_buffers())
        self._require_known(question.model)
        state = {
            name: question.model[name].to(tensor.device)
            for name, tensor in ours.items()
            if name in question.model
        }
        with torch.set_grad_enabled(question.gradient):
            leaves = {name: state[name].requires_grad_(question.gradient) for name in names}
            policy = partial(torch.func.functional_call, self.model, state)
            loss = self.loss(lambda *args, **options: policy(args, options), question.seed)
            if not question.gradient:
                return encode_answer(Answer(float(loss), {}))
            gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        told = {
            name: gradient
            for name, gradient in zip(leaves, gradients, strict=True)
            if gradient is not None
        }
        return encode_answer(Answer(float(loss.detach()), told))

    def _require_known(self, model: State) -> None:
        differing = sorted(set(model) ^ set(self.model.state_dict()))
        if differing:
            raise MessageError(
                f"A robot is asked about another architecture than its own: {', '.join(differing)} "
                "are parameters of only one of them. Give each robot its model's architecture."
            )


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
