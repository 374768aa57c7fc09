"""Aggregators of rounds: updates kept for a merge, and changes summed as they come.

Sums are of integers in fixed point: the order and grouping of answers do not change a bit.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch

from fleet_merging.errors import MergeError, MessageError
from fleet_merging.queries.validity import NO_LIMITS, Limits
from fleet_tools.baselines.federated.messages import (
    Answer,
    LocalUpdate,
    checked_change,
    checked_update,
)
from fleet_tools.baselines.federated.vectors import sizes
from fleet_tools.baselines.training.state import Tensors

LimitsOf = Callable[[int], Limits]
"""limits(robot): bounds of a robot's answers."""

RESOLUTION = 2.0**-28
"""Unit of a sum. The change of a weight is rounded to it, an error of at most 2e-9."""

LARGEST = 8.0
"""Largest change of a weight that is summed."""

CAPACITY = 2**32
"""Largest sum of weights, so that 64 bits suffice: 2**28 * 8 * 2**32 = 2**63."""

HEAVIEST = 2**22
"""Largest weight of one robot, so that a single false one cannot fill a sum."""


@dataclass(frozen=True, eq=False)
class FixedPointSum:
    """A sum of weighted vectors, independent of the order of its terms.

    Sums of disjoint sets of robots add up to the sum of all, so regions may sum apart.

    Attributes:
        terms: Sum in units of `RESOLUTION`, shape (n,), int64.
        weight: Sum of the weights.
        count: Number of vectors.
    """

    terms: np.ndarray
    weight: int = 0
    count: int = 0

    @classmethod
    def zero(cls, size: int) -> Self:
        """Returns the empty sum of vectors of a size."""
        return cls(np.zeros(size, np.int64))

    def plus(self, vector: np.ndarray, weight: int) -> "FixedPointSum":
        """Returns the sum with another vector.

        Args:
            vector: Shape (n,).
            weight: Its weight, 1 to `HEAVIEST`.

        Raises:
            MessageError: An entry is not finite or larger than `LARGEST`. Or the weight is larger
                than `HEAVIEST`, or exceeds the rest of `CAPACITY`.
        """
        if not 1 <= weight <= min(HEAVIEST, CAPACITY - self.weight):
            raise MessageError(
                f"A robot has a weight of {weight} steps; expected 1 to {HEAVIEST}, and at most "
                f"{CAPACITY} in all (now {self.weight})."
            )
        values = np.asarray(vector, np.float64)
        if not np.abs(values).max(initial=0.0) < LARGEST:
            raise MessageError(
                f"A weight changes by {np.abs(values).max():g}; expected at most {LARGEST:g}. Give "
                "a smaller learning rate."
            )
        terms = np.rint(values / RESOLUTION).astype(np.int64)
        return self.joined(FixedPointSum(terms * weight, weight, 1))

    def joined(self, other: "FixedPointSum") -> "FixedPointSum":
        """Returns the sum of two sums.

        Raises:
            MergeError: The sum is full, see `CAPACITY`.
        """
        weight = self.weight + other.weight
        if weight > CAPACITY:
            raise MergeError(f"The weights sum to {weight}; expected at most {CAPACITY}.")
        return FixedPointSum(self.terms + other.terms, weight, self.count + other.count)

    def mean(self) -> np.ndarray:
        """Returns the weighted mean, shape (n,), float64."""
        return self.terms * (RESOLUTION / self.weight)


class Updates:
    """Keeps the updates of a round, which a merging method then merges.

    Args:
        round_number: Number of the round.
        expected: State dict of the network; its numbers do not matter.
        keep: Called with each valid update, and its robot before it.
        limits: limits(robot): bounds of a robot's answers, see `FleetPlan.limits`.

    Attributes:
        by_robot: The updates by robot number, in the order in which they came.
    """

    def __init__(
        self,
        round_number: int,
        expected: Mapping[str, torch.Tensor],
        keep: Callable[[int, LocalUpdate], None] = lambda robot, update: None,
        limits: LimitsOf = lambda robot: NO_LIMITS,
    ) -> None:
        self._round, self._expected, self._keep = round_number, expected, keep
        self._limits = limits
        self.by_robot: dict[int, LocalUpdate] = {}

    def add(self, robot: int, answer: Answer) -> None:
        """See `round_messages.Aggregator`."""
        update = checked_update(answer, self._round, self._expected, self._limits(robot))
        self._keep(robot, update)
        self.by_robot[robot] = update


class ChangeSum:
    """Sums the changes of a streaming round by the robots' numbers of steps.

    Args:
        round_number: Number of the round.
        reference: Weights from which the changes lead.
        bits: Number of bits of each number of a change; None for float32.
        total: The sum so far.
        limits: See `Updates`.

    Attributes:
        total: The sum so far.
        robots: Numbers of the robots in this sum.
    """

    def __init__(
        self,
        round_number: int,
        reference: Tensors,
        bits: int | None,
        total: FixedPointSum,
        limits: LimitsOf = lambda robot: NO_LIMITS,
    ) -> None:
        self._round, self._counts, self._bits = round_number, sizes(reference), bits
        self.total, self.robots, self._limits = total, set[int](), limits

    def add(self, robot: int, answer: Answer) -> None:
        """See `round_messages.Aggregator`."""
        limits = self._limits(robot)
        change = checked_change(answer, self._round, self._counts, self._bits, limits)
        self.total = self.total.plus(change.vector, change.steps)
        self.robots.add(robot)

    def mean(self) -> np.ndarray:
        """Returns the mean change, shape (n,), float64."""
        return self.total.mean()
