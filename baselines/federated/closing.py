"""When a round closes: after enough answers, or at a deadline."""

import math
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Annotated

import pydantic

from fleet_tools.baselines.training.state import TrainingError
from fleet_tools.config.values import Number, Positive, Value

LATE = "it had not answered when the round closed"
"""Why a robot is left out for whose answer the round did not wait."""

_REASONS_SHOWN = 3


class ClosingConfig(Value):
    """When a round closes. By default, it waits for all robots that take part.

    Answers that come later are counted, and not merged.

    Attributes:
        over_sampling: Number of robots that are asked for each one that is wanted; the round closes
            when as many as are wanted have answered.
        deadline: Time after which the round closes in any case, s; None for none.
        quorum: Fraction of the wanted robots without whose answers a round is not merged: the fleet
            then ends, and the same command asks again.
    """

    over_sampling: Annotated[Number, pydantic.Field(ge=1)] = 1.0
    deadline: Positive | None = None
    quorum: Annotated[Number, pydantic.Field(ge=0, le=1)] = 0.0

    def require_quorum(
        self,
        number: int,
        answered: int,
        wanted: int,
        reasons: Mapping[int, str | None] | None = None,
    ) -> None:
        """Checks that enough robots answered.

        Args:
            number: Number of the round.
            answered: Number of robots that answered.
            wanted: Number of robots that were wanted.
            reasons: Why robots were left out, by robot number; None of those that were not.

        Raises:
            TrainingError: Too few did.
        """
        needed = max(1, math.ceil(self.quorum * wanted))
        if answered < needed:
            raise TrainingError(
                f"In round {number}, {answered} of {wanted} robots answered before it closed, and "
                f"its quorum is {needed}. The same command asks again. A longer `deadline` or a "
                "smaller `quorum` of `closing` makes another fleet, with a folder of its own."
                + "".join(f" Robot {robot}: {reason}." for robot, reason in _first(reasons or {}))
            )


def _first(reasons: Mapping[int, str | None]) -> Iterator[tuple[int, str]]:
    """Yields the first few robots that have a reason."""
    given = ((robot, reason) for robot, reason in reasons.items() if reason is not None)
    return islice(given, _REASONS_SHOWN)
