"""Configuration of a fleet whose robots align at home, and whose server only adds."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import pydantic

from fleet_tools.config.values import Count, CountOrZero, NonNegative, Number, Positive, Value
from fleet_tools.errors import ConfigError
from fleet_tools.utils.libraries import require

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
        largest: Largest change of a weight that an answer with masks can hold; larger ones are cut
            off. Answers without masks have the largest of each tensor.
        neighbours: Number of robots with which each shares masks (`privacy.masks`), so that the
            server learns sums alone; 0 for no masks.
        clip: Largest L2 norm of the changes of a robot; longer ones are scaled down. None for any.
        noise: Standard deviation of the Gaussian noise that the server adds to the sum of clipped
            changes, in units of `clip`: the noise multiplier of DP-FedAvg (McMahan et al. 2018).
        delta: Probability with which differential privacy may fail, for the reported epsilon.
    """

    passes: Annotated[Count, pydantic.Field(lt=1000)] = 1
    bits: Literal[2, 4, 8, 16] | None = None
    largest: Positive = 0.1
    neighbours: CountOrZero = 0
    clip: Positive | None = None
    noise: NonNegative = 0.0
    delta: Annotated[Number, pydantic.Field(gt=0, lt=1)] = 1e-5

    @pydantic.model_validator(mode="after")
    def _require_possible(self) -> Self:
        if self.neighbours and self.bits is None:
            raise ConfigError("masks are sums of integers; give `bits` with `neighbours`")
        if self.noise and self.clip is None:
            raise ConfigError("`noise` is in units of `clip`; give one")
        return self

    @property
    def equal_weights(self) -> bool:
        """Whether robots count the same, whatever the number of steps that they learned from."""
        return bool(self.neighbours) or self.clip is not None

    @property
    def asks_again(self) -> bool:
        """Whether a robot may be asked more than once for the changes of a round."""
        return self.passes > 1 or bool(self.neighbours)

    def require_libraries(self) -> None:
        """Checks that what masks and epsilon need is installed, before anything begins.

        Raises:
            MissingLibraryError: It is not.
        """
        if self.neighbours:
            require("cryptography", "mask changes of robots")
        if self.noise:
            require("dp_accounting", "compute the epsilon of noise")


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
    if own and (config.neighbours or config.clip is not None):
        raise ConfigError(
            "with `neighbours` or `clip`, no policy of a robot may be sent, and robots of own "
            "initial weights are aligned with one of them; give `initialization: common`"
        )
    if config.passes > 1 and (not own or method not in ("git_rebasin", "fleet_merge")):
        raise ConfigError(
            "a second pass aligns policies of own initial weights anew; give `passes: 1`"
        )
