"""The score test of the mean over strata of mean values, each of which is -1, 0 or 1.

`statistics` has what is made of it: intervals and p-values of success rates and differences.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import acos, cos, fsum, sqrt

Stratum = tuple[float, float, float]
"""Numbers of trials of a stratum whose value is 1, whose value is -1, and of all its trials; the
value of the others is 0."""


@dataclass(frozen=True)
class ScoreTest:
    """Score test of the mean over strata of mean values, against lesser ones.

    Under a tested mean, the distributions of the strata are the most likely ones that have it. By
    Lagrange, the frequency of a value v that occurred k times is then k / (nu + t v). Here nu
    makes the frequencies add up to 1, and t is a multiplier times the stratum's weight. As the
    multiplier grows, the tested mean falls from the observed one to -1, and the statistic rises:
    the distance of the two means, less the correction, in standard deviations of the most likely
    distributions. Without the correction it is sqrt(multiplier * distance).

    Attributes:
        strata: The strata, each with trials.
        correction: Correction for continuity.
    """

    strata: Sequence[Stratum]
    correction: float

    @classmethod
    def of(cls, strata: Sequence[Stratum], continuity: float) -> "ScoreTest":
        """Returns the test of some strata; strata without trials are left out.

        Args:
            strata: The strata.
            continuity: By how much the distance of two means is reduced, in halves of what the
                least change of an outcome makes: 1 as McNemar's test has it, 0 not at all.
        """
        counted = [stratum for stratum in strata if stratum[2]]
        inverse = fsum(1 / trials for _, _, trials in counted)
        # As a sum of squares about a fitted mean is divided by n - 1: the tested mean fixes one of
        # the strata's means, the others are fitted.
        scales = [1 - (1 - 1 / trials / inverse) / trials for _, _, trials in counted]
        return cls(
            [
                (scale * plus, scale * minus, scale * trials)
                for scale, (plus, minus, trials) in zip(scales, counted, strict=True)
            ],
            correction=continuity * inverse / len(counted) ** 2,
        )

    @cached_property
    def mean(self) -> float:
        """The observed mean."""
        means = [(plus - minus) / trials for plus, minus, trials in self.strata]
        return fsum(means) / len(means)

    def low(self, critical: float) -> float:
        """Returns the least mean whose statistic is below a critical value."""
        if self.mean + 1 <= self.correction:
            return -1.0
        return self._tested(_root(lambda m: self._statistic(m, self._tested(m)) - critical))

    def statistic(self, tested: float) -> float:
        """Returns the statistic of a mean that is at most the observed one, and above -1."""
        if self.mean - tested <= self.correction:
            return 0.0
        return self._statistic(_root(lambda m: tested - self._tested(m)), tested)

    def _tested(self, multiplier: float) -> float:
        """Returns the tested mean of a multiplier."""
        t = multiplier / len(self.strata)
        means = [(each[2] - _nu(t, *each)) / t for each in self.strata]
        return min(max(fsum(means) / len(means), -1.0), self.mean)

    def _statistic(self, multiplier: float, tested: float) -> float:
        distance = self.mean - tested
        if distance <= self.correction:
            return 0.0
        return sqrt(multiplier * distance) * (1 - self.correction / distance)


def _nu(t: float, plus: float, minus: float, trials: float) -> float:
    """Returns the nu of `ScoreTest`.

    It is the largest root of (nu^2 - t^2) nu = plus (nu - t) nu + minus (nu + t) nu + zero (nu^2 -
    t^2), in Viete's form. Where no value was -1, this also finds the frequency that it gets.
    """
    zero = trials - plus - minus
    linear = -(t * t + (minus - plus) * t)
    q = (trials * trials - 3 * linear) / 9
    r = (-2 * trials**3 + 9 * trials * linear + 27 * zero * t * t) / 54
    angle = acos(min(max(-r / q**1.5, -1.0), 1.0))
    return 2 * sqrt(q) * cos(angle / 3) + trials / 3


def _root(rising: Callable[[float], float]) -> float:
    """Returns the positive root of a function that rises, by bisection."""
    high = 1.0
    while rising(high) < 0:
        high *= 4
    low = high / 4 if high > 1 else 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return high


def score_interval(
    strata: Sequence[Stratum], critical: float, continuity: float
) -> tuple[float, float]:
    """Returns the interval of the mean over strata of mean values; of all means without trials.

    Args:
        strata: The strata, with equal weights.
        critical: Statistics below this one are within the interval.
        continuity: See `ScoreTest.of`.
    """
    if not any(trials for _, _, trials in strata):
        return -1.0, 1.0
    low, high = (
        ScoreTest.of(each, continuity).low(critical) for each in (strata, _exchanged(strata))
    )
    return low, 0.0 - high


def score_statistic(strata: Sequence[Stratum], tested: float, continuity: float) -> float:
    """Returns the statistic of a mean over strata of mean values; 0 without trials.

    It is at least a critical value exactly where `score_interval` excludes the mean.

    Args:
        strata: The strata, with equal weights.
        tested: The mean, in (-1, 1).
        continuity: See `ScoreTest.of`.
    """
    if not any(trials for _, _, trials in strata):
        return 0.0
    test = ScoreTest.of(strata, continuity)
    if test.mean < tested:
        test, tested = ScoreTest.of(_exchanged(strata), continuity), -tested
    return test.statistic(tested)


def _exchanged(strata: Sequence[Stratum]) -> list[Stratum]:
    return [(minus, plus, trials) for plus, minus, trials in strata]
