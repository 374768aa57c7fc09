"""Checkpoint of an unfinished round, so that robots need not send again."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from fleet_tools.baselines.federated.aggregation import CAPACITY, FixedPointSum
from fleet_tools.baselines.federated.messages import LocalUpdate
from fleet_tools.baselines.federated.round_messages import ClientSummary
from fleet_tools.baselines.training.state import Tensors, TrainingError
from fleet_tools.config.values import parse
from fleet_tools.storage.tensor_files import read_checked, write_checked

_KEY, _REFERENCE, _TERMS = "fleet_tools_streaming_round", "reference/", "terms"

EXCHANGES = 1000
"""More than the passes of any round: pass k of round n has the number 1000 n + k."""


@dataclass(frozen=True, eq=False)
class Partial:
    """A pass of a streaming round, in progress.

    Attributes:
        session: Its number, see `messages.ChangeRequest`.
        reference: Its reference.
        total: Sum of the answers so far.
        robots: Traffic of each robot in the round so far, by robot number.
        waiting: Numbers of the robots that have not answered.
    """

    session: int
    reference: Tensors
    total: FixedPointSum
    robots: dict[int, ClientSummary]
    waiting: tuple[int, ...]


class RoundStore(Protocol):
    """Stores robots' answers of a round, so that a resumed round need not ask again."""

    def replies(self, round_number: int) -> Mapping[int, LocalUpdate]:
        """Returns the valid replies to a round that are stored, by robot."""
        ...

    def save_reply(self, robot: int, reply: LocalUpdate) -> None:
        """Stores a valid reply in the present round."""
        ...

    def partial(self) -> Partial | None:
        """Returns the sum in progress that is stored; None if there is none."""
        ...

    def save_partial(self, partial: Partial) -> None:
        """Stores the sum in progress."""
        ...


class NoStore:
    """A `RoundStore` that keeps nothing."""

    def replies(self, round_number: int) -> Mapping[int, LocalUpdate]:
        """Returns none."""
        return {}

    def save_reply(self, robot: int, reply: LocalUpdate) -> None:
        """Drops it."""

    def partial(self) -> Partial | None:
        """Returns None."""
        return None

    def save_partial(self, partial: Partial) -> None:
        """Drops it."""


def store(path: Path, partial: Partial) -> None:
    """Stores a pass in progress.

    Raises:
        OSError: The disk is full or gone.
    """
    content = {
        "session": partial.session,
        "weight": partial.total.weight,
        "count": partial.total.count,
        "waiting": partial.waiting,
        "robots": [each.model_dump(mode="json", by_alias=True) for each in partial.robots.values()],
    }
    tensors = {f"{_REFERENCE}{name}": each for name, each in partial.reference.items()}
    tensors[_TERMS] = torch.from_numpy(partial.total.terms)
    write_checked(path, _KEY, tensors, json.dumps(content))


def is_possible(partial: Partial, size: int, participants: Sequence[int]) -> bool:
    """Whether a fleet can have stored a pass.

    Args:
        partial: The pass.
        size: Number of entries of a change.
        participants: Numbers of the robots in the round.
    """
    total = partial.total
    waiting, asked = set(partial.waiting), set(participants)
    return (
        total.terms.shape == (size,)
        and total.terms.dtype == np.int64
        and 0 <= total.count <= total.weight <= CAPACITY
        and total.count + len(waiting) <= len(asked)
        and waiting | set(partial.robots) <= asked
    )


def load(path: Path) -> Partial | None:
    """Returns a stored pass; None if there is none, or if it is damaged."""
    if not path.exists():
        return None
    try:
        return read_checked(path, _KEY, _partial, TrainingError)
    except TrainingError:
        return None


def _partial(tensors: dict[str, torch.Tensor], text: str) -> Partial:
    content = json.loads(text)
    robots = [parse(ClientSummary, each, "A robot") for each in content["robots"]]
    terms = tensors.pop(_TERMS).numpy()
    total = FixedPointSum(terms, int(content["weight"]), int(content["count"]))
    reference = {name.removeprefix(_REFERENCE): each for name, each in tensors.items()}
    session = int(content["session"])
    waiting = tuple(int(robot) for robot in content["waiting"])
    if session < EXCHANGES:
        raise ValueError(session)
    return Partial(session, reference, total, {each.robot: each for each in robots}, waiting)
