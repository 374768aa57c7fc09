"""Messages between server and robots of a fleet, as typed values and as bytes.

Queries (`merging.queries.query`) are the other messages. An answer is refused if a name, shape or
dtype differs from the network's weights, or if a number is not finite. So no observation or action
can be sent by mistake.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Annotated, Any

import numpy as np
import torch

from fleet_merging.errors import MessageError
from fleet_merging.methods.options import MethodOptions, keyword_arguments
from fleet_merging.queries import wire
from fleet_merging.queries.query import DataAnswer, DataQuery
from fleet_merging.queries.validity import NO_LIMITS, Limits
from fleet_merging.queries.wire import Codec, named, take_named, take_scalar
from fleet_tools.baselines.federated.backbone import BackboneConfig
from fleet_tools.baselines.federated.round_config import StreamingConfig
from fleet_tools.baselines.federated.vectors import dequantize, split, unpack
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.checkpoint import CheckpointError, require_weights
from fleet_tools.baselines.training.config import TrainingConfig
from fleet_tools.baselines.training.state import Tensors
from fleet_tools.config.values import STORED_IF_SET, NonNegative, Value


class Assignment(Value):
    """A robot's data and training: sent once, or with each message to a host.

    Attributes:
        robot: Number of the robot, from 0.
        data: Folders of the datasets.
        episodes: Indices of the robot's episodes among the successful ones of the datasets.
        content_digest: Hash of these episodes.
        blueprint: Blueprint of the policy.
        training: Configuration of training, with the robot's own seed.
        backbone: The policy of the initial weights, and its trained parameters; None for random
            weights.
        backbone_digest: Hash of its file.
        moment_noise: Noise in answers about moments, see `LocalDataHolder`.
        lacks: Names of entries that the policy reads and that the robot does not have.
        streaming: How the robot aligns its policy and sends it, in a streaming fleet.
        method, options: The merging method of a streaming fleet.
    """

    robot: int
    data: tuple[str, ...]
    episodes: tuple[int, ...]
    content_digest: str
    blueprint: Blueprint
    training: TrainingConfig
    initialization: int
    backbone: Annotated[BackboneConfig | None, STORED_IF_SET] = None
    backbone_digest: Annotated[str | None, STORED_IF_SET] = None
    moment_noise: NonNegative = 0.0
    lacks: tuple[str, ...] = ()
    streaming: StreamingConfig | None = None
    method: str = ""
    options: MethodOptions = {}

    def method_options(self) -> dict[str, Any]:
        """Returns the keyword arguments of the method."""
        return keyword_arguments(self.method, self.options)


@dataclass(frozen=True, eq=False)
class TrainRequest:
    """Request to train for some epochs, answered by a `LocalUpdate`.

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
class ChangeRequest:
    """Request to train, to align with a reference, and to send the difference from it.

    Attributes:
        training: Request to train.
        reference: The reference; None for the weights with which training begins.
        session: Number of this request, which seeds rounding and alignment.
    """

    training: TrainRequest
    reference: Tensors | None
    session: int


@dataclass(frozen=True, eq=False)
class Trained:
    """Fields of all results of a robot's training.

    Attributes:
        round: Number of the round.
        steps: Number of steps of the robot's data in each epoch.
        loss: Mean loss over them in the last epoch.
    """

    round: int
    steps: int
    loss: float


@dataclass(frozen=True, eq=False)
class LocalUpdate(Trained):
    """Result of a robot's training in a round.

    Attributes:
        weights: Weights after the last epoch.
    """

    weights: Tensors


@dataclass(frozen=True, eq=False)
class Change(Trained):
    """Difference of a robot's policy from the reference.

    Attributes:
        vector: The difference, shape (n,), float32.
    """

    vector: np.ndarray


@dataclass(frozen=True, eq=False)
class RoundedChange(Trained):
    """The same, rounded to integers of a few bits.

    Attributes:
        integers: The integers as `vectors.pack` returns them, uint8.
        largest: Largest change of each tensor, float32.
    """

    integers: np.ndarray
    largest: np.ndarray


Message = TrainRequest | ChangeRequest | DataQuery
Answer = LocalUpdate | Change | RoundedChange | DataAnswer


def checked_update(
    answer: object,
    round_number: int,
    expected: Mapping[str, torch.Tensor],
    limits: Limits = NO_LIMITS,
) -> LocalUpdate:
    """Returns a robot's update, with weights in the order of the network.

    Args:
        answer: The robot's answer.
        round_number: Number of the round.
        expected: State dict of the network; its numbers do not matter.
        limits: Bounds of the robot's answers.

    Raises:
        MessageError: It is no update of this round. Or it has other entries than the network, a
            number that is not finite, or more steps than the robot's data.
    """
    update = _of_kind(answer, LocalUpdate, round_number, limits)
    try:
        require_weights(expected, update.weights)
    except CheckpointError as error:
        raise MessageError(str(error)) from None
    weights = {name: update.weights[name] for name in expected}
    return LocalUpdate(round_number, update.steps, update.loss, weights)


def checked_change(
    answer: object,
    round_number: int,
    counts: Sequence[int],
    bits: int | None,
    limits: Limits = NO_LIMITS,
) -> Change:
    """Returns the difference of a robot's policy from the reference.

    Args:
        answer: The robot's answer.
        round_number: Number of the round.
        counts: Number of entries of each tensor.
        bits: Number of bits of each integer; None if numbers are not rounded.
        limits: Bounds of the robot's answers.

    Raises:
        MessageError: It is no change of this round and size, has a number that is not finite, or
            more steps than the robot's data.
    """
    if bits is None:
        change = _of_kind(answer, Change, round_number, limits)
        _require_array("vector", change.vector, np.float32, sum(counts))
        return change
    rounded = _of_kind(answer, RoundedChange, round_number, limits)
    _require_array("largest", rounded.largest, np.float32, len(counts))
    _require_array("rounded", rounded.integers, np.uint8, None)
    parts = split(unpack(rounded.integers.tobytes(), bits, sum(counts)), counts)
    tops = rounded.largest.tolist()
    vector = [dequantize(part, top, bits) for part, top in zip(parts, tops, strict=True)]
    return Change(round_number, rounded.steps, rounded.loss, np.concatenate(vector))


def _of_kind(given: object, kind: type[Trained], round_number: int, limits: Limits) -> Any:
    if not isinstance(given, kind):
        raise MessageError(
            f"A robot answered with a {type(given).__name__}; expected {kind.__name__}."
        )
    answer: Trained = given
    if (
        answer.round != round_number
        or type(answer.steps) is not int
        or not 1 <= answer.steps <= limits.steps
        or not 0 <= answer.loss < math.inf
    ):
        raise MessageError(
            f"A reply to round {round_number} with 1 to {limits.steps:g} steps and a finite loss "
            f"is expected; this one is to round {answer.round}, with {answer.steps} steps and the "
            f"loss {answer.loss:g}."
        )
    return answer


def _require_array(name: str, array: np.ndarray, dtype: type[Any], size: int | None) -> None:
    if array.ndim != 1 or array.dtype != dtype or size not in (None, len(array)):
        expected = f"{dtype.__name__} {'vector' if size is None else (size,)}"
        raise MessageError(
            f"A message holds {array.dtype} {array.shape} as {name!r}; expected: {expected}."
        )
    if not np.isfinite(array).all():
        raise MessageError(f"A message holds numbers in {name!r} that are not finite.")


def _take_integer(tensors: wire.Tensors, name: str) -> int:
    number = int(take_scalar(tensors, name, torch.int64))
    if number < 0:
        raise MessageError(f"A message holds {number} as {name!r}; expected: at least 0.")
    return number


def _take_array(tensors: wire.Tensors, name: str) -> np.ndarray:
    tensor = tensors.pop(name, None)
    if tensor is None or tensor.dtype not in (torch.float32, torch.uint8):
        raise MessageError(f"A message holds no {name!r}, or one of another type.")
    return tensor.numpy()


_FIELDS: dict[
    Any, tuple[Callable[[str, Any], wire.Tensors], Callable[[wire.Tensors, str], Any]]
] = {
    int: (lambda name, given: {name: torch.tensor(given, dtype=torch.int64)}, _take_integer),
    float: (
        lambda name, given: {name: torch.tensor(given, dtype=torch.float64)},
        lambda tensors, name: float(take_scalar(tensors, name, torch.float64)),
    ),
    np.ndarray: (lambda name, given: {name: torch.from_numpy(given)}, _take_array),
    Tensors: (
        lambda name, given: named(f"{name}.", given),
        lambda tensors, name: take_named(tensors, f"{name}."),
    ),
    Tensors | None: (
        lambda name, given: named(f"{name}.", given or {}),
        lambda tensors, name: take_named(tensors, f"{name}.") or None,
    ),
    TrainRequest: (
        lambda name, given: _packed(given),
        lambda tensors, name: _taken(TrainRequest, tensors),
    ),
}
"""How fields of each type become tensors, and are taken from them."""


def _packed(value: Any) -> wire.Tensors:
    tensors: wire.Tensors = {}
    for each in fields(value):
        tensors |= _FIELDS[each.type][0](each.name, getattr(value, each.name))
    return tensors


def _taken(kind: type[Any], tensors: wire.Tensors) -> Any:
    return kind(**{each.name: _FIELDS[each.type][1](tensors, each.name) for each in fields(kind)})


CODECS = (
    *wire.QUERY_CODECS,
    *(
        Codec(name, kind, _packed, partial(_taken, kind))
        for name, kind in (
            ("train request", TrainRequest),
            ("change request", ChangeRequest),
            ("update", LocalUpdate),
            ("change", Change),
            ("rounded change", RoundedChange),
        )
    ),
)
"""All messages to robots, and their answers."""

encode = partial(wire.encode, codecs=CODECS)
decode = partial(wire.decode, codecs=CODECS)
size_of = partial(wire.size, codecs=CODECS)
