"""Streaming rounds without a stored fleet, and transports that reorder or lose answers."""

from collections.abc import Callable, Mapping
from typing import Any

from support.fleet_cases import local

from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.streaming.rounds import StreamedRound, run_streaming_round
from fleet_tools.baselines.federated.transport import Answers, Transport
from fleet_tools.baselines.training.state import Tensors

COMMON: dict[str, Any] = {"initialization": "common", "method": "common_init"}
"""Settings of a fleet whose robots begin with the same weights."""


def stream(
    plan: FleetPlan, transport: Transport | None = None, count: int | None = None, **options: Any
) -> list[StreamedRound]:
    """Runs streaming rounds, all by default, without storing anything."""
    transport = transport or local(plan)
    results: list[StreamedRound] = []
    for number in range(1, (count or plan.config.rounds) + 1):
        weights = results[-1].weights if results else None
        results.append(run_streaming_round(plan, transport, number, weights, **options))
    return results


class Ordered:
    """A transport whose answers arrive in another order, and of which some never arrive."""

    def __init__(
        self, inner: Transport, order: Callable[[int], float] = float, silent: tuple[int, ...] = ()
    ) -> None:
        self._inner, self._order, self._silent = inner, order, silent

    def exchange(
        self, messages: Mapping[int, bytes], *, deadline_s: float | None = None
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
