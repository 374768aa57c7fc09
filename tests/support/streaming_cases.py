"""Settings of streaming fleets, and transports that reorder or lose answers."""

from collections.abc import Callable, Mapping
from typing import Any

from fleet_tools.baselines.federated.messages import Message
from fleet_tools.baselines.federated.transport import Answers, Transport
from fleet_tools.baselines.training.state import Tensors

COMMON: dict[str, Any] = {"initialization": "common", "method": "naive_average"}
"""Settings of a fleet whose robots begin with the same weights."""


class Ordered:
    """A transport whose answers arrive in another order, and of which some never arrive."""

    def __init__(
        self, inner: Transport, order: Callable[[int], float] = float, silent: tuple[int, ...] = ()
    ) -> None:
        self._inner, self._order, self._silent = inner, order, silent

    def exchange(
        self, messages: Mapping[int, Message], *, deadline_s: float | None = None
    ) -> Answers:
        for robot in sorted(messages, key=self._order):
            if robot not in self._silent:
                yield from self._inner.exchange({robot: messages[robot]})

    def late(self) -> list[int]:
        return list(self._silent)

    def end(self, robot: int) -> None:
        self._inner.end(robot)

    def close(self) -> None:
        self._inner.close()


def furthest(one: Tensors, other: Tensors) -> float:
    """Returns the largest difference between two policies, entry by entry."""
    return max(float((one[name] - other[name]).abs().max()) for name in one)


class KilledError(Exception):
    """Ends a round as a kill would."""
