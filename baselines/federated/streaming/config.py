"""Configuration of a fleet whose robots align at home, and whose server only adds."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import pydantic

from fleet_tools.config.values import Count, Value
from fleet_tools.errors import ConfigError

METHODS = ("naive_average", "common_init", "git_rebasin", "fleet_merge")
"""Methods by which a robot can align its policy with a reference on its own."""

OPTIONS = ("descent", "trust")
"""Options of fleet_merge that a robot needs; the other methods have none here."""


class StreamingConfig(Value):
    """Robots align at home with the round's reference, and send the difference from it.

    Attributes:
        passes: Number of times that robots align in the first round, if each has initial weights of
            its own: first with the policy of one robot, then with the mean of the pass before.
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
    if method not in METHODS:
        raise ConfigError(
            f"`method: {method}` needs all policies at once, or answers to questions; those that "
            f"stream are {', '.join(METHODS)}"
        )
    known = OPTIONS if method == "fleet_merge" else ()
    if unknown := sorted(set(options) - set(known)):
        raise ConfigError(
            f"robots of a streaming fleet align alone, without the option {unknown[0]!r}"
        )
    own = initialization == "own"
    if config.passes > 1 and (not own or method not in ("git_rebasin", "fleet_merge")):
        raise ConfigError(
            "a second pass aligns policies of own initial weights anew; give `passes: 1`"
        )
