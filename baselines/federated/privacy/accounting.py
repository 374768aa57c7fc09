"""The epsilon of differential privacy of a fleet, by the library `dp_accounting`.

What is protected is a robot with all its data: two fleets are neighbours if one robot was replaced
by another. In each round a fixed number of robots is drawn without replacement, each clips its
change to a norm C, and the sum of the changes has Gaussian noise of the standard deviation
`noise_multiplier` * C. Rényi differential privacy (Mironov 2017) of the sampled Gaussian mechanism
is bounded as by Wang, Balle and Kasiviswanathan, "Subsampled Rényi Differential Privacy and
Analytical Moments Accountant" (2019), Theorem 27, added up over rounds, and converted to epsilon as
by Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy" (2020),
Proposition 12.

Replacing a robot changes the sum by up to 2 C. `dp_accounting` counts noise in units of that
change, so it is given half of `noise_multiplier`. Where most robots take part, the bound of the
sampled mechanism is worse than that of all robots taking part; both hold, and the lower one is
taken.

An epsilon holds only under what it assumes:

- The robots of a round are drawn uniformly, and who reads the models does not know which. The
  server knows. Against the server, a fleet is private as one in which all robots take part in each
  of the rounds in which that robot does.
- Every sum has the whole noise. Where robots add noise in shares, and some are lost, the shares of
  the others must make up the whole; robots that collude know their own shares.
- C bounds the norm of what is added up. Rounding after clipping, as in `quantization`, may raise
  the norm, and rounding after noise makes it other than Gaussian (Kairouz, Liu and Steinke, "The
  Distributed Discrete Gaussian Mechanism for Federated Learning", 2021).
"""

import math
from types import ModuleType
from typing import Any, Final

from fleet_tools.errors import ConfigError
from fleet_tools.utils.libraries import require

_NO_NOISE: Final = 1e-6
"""Multiplier below which noise counts as none."""

_MUCH_NOISE: Final = 1e6
"""Multiplier beyond which more noise counts for nothing; the library's arithmetic fails there."""

_TOLERANCE: Final = 1e-3


def epsilon(
    noise_multiplier: float, *, robots: int, participants: int, rounds: int, delta: float
) -> float:
    """Returns the epsilon of (epsilon, delta)-differential privacy after some rounds.

    Args:
        noise_multiplier: Standard deviation of the noise in a round's sum, in units of the norm to
            which each robot's change is clipped; 0 is no noise.
        robots: Robots of the fleet.
        participants: Robots of a round, drawn without replacement.
        rounds: Number of rounds; after 0, epsilon is 0.
        delta: Probability with which the bound may fail; much less than 1 / `robots`.

    Returns:
        Epsilon, infinite without noise.

    Raises:
        ConfigError: An argument is out of range.
        MissingLibraryError: `dp_accounting` is not installed.
    """
    if not (math.isfinite(noise_multiplier) and noise_multiplier >= 0):
        raise ConfigError(
            f"The noise multiplier is {noise_multiplier}; expected: finite and at least 0."
        )
    _check(robots, participants, rounds, delta)
    if rounds == 0:
        return 0.0
    library = _library()

    def bound(sampled: bool) -> float:
        event = _round(library, noise_multiplier, robots, participants, sampled)
        return float(_accountant(library).compose(event, rounds).get_epsilon(delta))

    return min(bound(sampled=True), bound(sampled=False))


def noise_multiplier_for(
    target: float, *, robots: int, participants: int, rounds: int, delta: float
) -> float:
    """Returns the smallest noise multiplier, to 1e-3, with at most a given epsilon.

    Args:
        target: Epsilon, positive.
        robots: Robots of the fleet.
        participants: Robots of a round, drawn without replacement.
        rounds: Number of rounds, at least 1.
        delta: Probability with which the bound may fail.

    Raises:
        ConfigError: An argument is out of range.
        MissingLibraryError: `dp_accounting` is not installed.
    """
    if not (math.isfinite(target) and target > 0) or rounds == 0:
        raise ConfigError(
            f"Noise for the epsilon {target} after {rounds} rounds; expected: positive and finite, "
            "after at least one round."
        )
    _check(robots, participants, rounds, delta)
    library = _library()

    def smallest(sampled: bool) -> float:
        return library.calibrate_dp_mechanism(
            lambda: _accountant(library),
            lambda multiplier: library.SelfComposedDpEvent(
                _round(library, multiplier, robots, participants, sampled), rounds
            ),
            target,
            delta,
            library.LowerEndpointAndGuess(0.0, 1.0),
            tol=_TOLERANCE,
        )

    return min(smallest(sampled=True), smallest(sampled=False))


def _check(robots: int, participants: int, rounds: int, delta: float) -> None:
    if not 1 <= participants <= robots or rounds < 0:
        raise ConfigError(
            f"{participants} of {robots} robots in {rounds} rounds; expected: at least one robot, "
            "no more than there are, and no negative number of rounds."
        )
    if not 0 < delta < 1:
        raise ConfigError(f"delta is {delta}; expected: between 0 and 1.")


def _library() -> ModuleType:
    return require("dp_accounting", "compute the epsilon of differential privacy")


def _accountant(library: ModuleType) -> Any:
    return library.rdp.RdpAccountant(neighboring_relation=library.NeighboringRelation.REPLACE_ONE)


def _round(
    library: ModuleType, noise_multiplier: float, robots: int, participants: int, sampled: bool
) -> Any:
    """Returns the event of a round, with or without regard to the sampling of its robots."""
    if noise_multiplier < _NO_NOISE:
        return library.NonPrivateDpEvent()
    noise = library.GaussianDpEvent(min(noise_multiplier, _MUCH_NOISE) / 2)
    if not sampled:
        return noise
    return library.SampledWithoutReplacementDpEvent(robots, participants, noise)
