"""Configuration of a round: when it closes, whether it streams, and the server's step."""

import math
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Annotated, Any, Literal

import pydantic

from fleet_tools.baselines.training.state import TrainingError
from fleet_tools.config.values import Count, Number, Positive, Value
from fleet_tools.errors import ConfigError

LATE = "it had not answered when the round closed"
"""Why a robot is left out after the round closed."""

_REASONS_SHOWN = 3


class ClosingConfig(Value):
    """When a round closes. By default, it waits for all robots that take part.

    Later answers are counted, and not merged.

    Attributes:
        over_sampling: Number of requests for each wanted robot. The round closes when the wanted
            number of robots has answered.
        deadline: Time after which the round closes in any case, s; None for none.
        quorum: Fraction of the wanted robots that must answer. Otherwise the fleet ends without a
            merge, and the same command asks again.
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
            wanted: Number of wanted robots.
            reasons: Why robots were left out, by robot number; None for the others.

        Raises:
            TrainingError: Too few answered.
        """
        needed = max(1, math.ceil(self.quorum * wanted))
        if answered < needed:
            raise TrainingError(
                f"In round {number}, {answered} of {wanted} robots answered before it closed, and "
                f"its quorum is {needed}. The same command asks again. A longer `deadline` or a "
                "smaller `quorum` of `closing` makes another fleet, with its own folder."
                + "".join(f" Robot {robot}: {reason}." for robot, reason in _first(reasons or {}))
            )


def _first(reasons: Mapping[int, str | None]) -> Iterator[tuple[int, str]]:
    """Yields the first few robots that have a reason."""
    given = ((robot, reason) for robot, reason in reasons.items() if reason is not None)
    return islice(given, _REASONS_SHOWN)


STREAMED_METHODS = ("naive_average", "git_rebasin", "fleet_merge")
"""Methods by which a robot can align its policy with a reference on its own."""

STREAMED_OPTIONS = ("descent", "trust")
"""Options of fleet_merge that a robot needs; the other methods have none here."""


class StreamingConfig(Value):
    """Robots align at home with the round's reference, and send the difference from it.

    Attributes:
        passes: Number of alignments in the first round, if initial weights differ: first with the
            policy of one robot, then with the mean of the pass before.
        bits: Number of bits of each number in an answer, rounded at random without bias; None for
            float32.
    """

    passes: Annotated[Count, pydantic.Field(lt=1000)] = 1
    bits: Literal[2, 4, 8, 16] | None = None

    @property
    def asks_again(self) -> bool:
        """Whether a robot may be asked more than once for the changes of a round."""
        return self.passes > 1


def require_streamable(
    config: StreamingConfig, method: str, options: Mapping[str, Any], initialization: str
) -> None:
    """Checks that a fleet can stream.

    Args:
        config: How it streams.
        method: Its merging method.
        options: Keyword arguments of the method.
        initialization: Its initial weights, "own" or "common".

    Raises:
        ConfigError: It cannot.
    """
    if method not in STREAMED_METHODS:
        raise ConfigError(
            f"`method: {method}` cannot stream, because it needs all policies at once or further "
            f"answers; choose one of {', '.join(STREAMED_METHODS)}"
        )
    known = STREAMED_OPTIONS if method == "fleet_merge" else ()
    if unknown := sorted(set(options) - set(known)):
        raise ConfigError(
            f"robots of a streaming fleet align alone, without the option {unknown[0]!r}"
        )
    own = initialization == "own"
    if config.passes > 1 and (not own or method not in ("git_rebasin", "fleet_merge")):
        raise ConfigError(
            "a second pass needs git_rebasin or fleet_merge, and `initialization: own`; give "
            "`passes: 1`"
        )


class ServerConfig(Value):
    """Optimizer of the server, which takes a step towards each merge; see `server_optimizer`.

    Attributes:
        optimizer: "momentum" (FedAvgM) or "adam" (FedAdam).
        learning_rate: Factor of each step. With "momentum" of 0, a factor of 1 takes the merge as
            it is.
        momentum: Fraction of the last step that is added.
        second_momentum: Fraction of the last variance that is kept, with "adam".
        smallest_step: Number added to square roots of variances. If a weight changes by less, its
            step is smaller than the learning rate.
    """

    optimizer: Literal["momentum", "adam"] = "momentum"
    learning_rate: Positive = 1.0
    momentum: Annotated[Number, pydantic.Field(ge=0, lt=1)] = 0.9
    second_momentum: Annotated[Number, pydantic.Field(ge=0, lt=1)] = 0.99
    smallest_step: Positive = 1e-3
