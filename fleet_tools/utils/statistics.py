"""Statistics of success rates: intervals of one, and comparisons of two on the same episodes.

All of them invert score tests. Interval and p-value of a difference are the same test, so that the
p-value is below 5% exactly where the 95% interval excludes 0. How often the intervals contain the
truth is measured by `benchmarks/interval_coverage.py`. All depends on counts alone, so that the
order of episodes and of strata changes nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import acos, cos, erfc, fsum, sqrt
from statistics import NormalDist, median

import numpy as np

CONFIDENCE = 0.95
"""Confidence level of all intervals here."""

_CRITICAL = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)

Counts = tuple[int, int]
"""Successes and trials of a stratum."""
PairedCounts = tuple[int, int, int]
"""Pairs of a stratum in which only the first succeeded, only the second, and all its pairs."""


def wilson_interval(successes: int, trials: int) -> tuple[float, float]:
    """Returns the 95% score interval of a success rate (Wilson 1927)."""
    if trials == 0:
        return 0.0, 1.0
    # scipy.stats has it, too, but every program would wait half a second for its import.
    z, failures = _CRITICAL, trials - successes
    center = (successes + z**2 / 2) / (trials + z**2)
    width = z / (trials + z**2) * sqrt(successes * failures / trials + z**2 / 4)
    low = center - width if successes else 0.0
    high = center + width if failures else 1.0
    return round(low, 6), round(high, 6)


def stratified_rate(strata: Sequence[Counts]) -> float | None:
    """Returns the mean of the success rates of strata; None without any trials.

    Args:
        strata: Strata with equal weights; those without trials are left out.
    """
    rates = [successes / trials for successes, trials in strata if trials]
    return fsum(rates) / len(rates) if rates else None


def stratified_interval(strata: Sequence[Counts]) -> tuple[float, float]:
    """Returns the 95% interval of `stratified_rate`, by the score test.

    Of one stratum, it is `wilson_interval`.
    """
    return _rate_interval([(k, n - k, n) for k, n in strata], _CRITICAL)


def paired_difference(strata: Sequence[PairedCounts]) -> float | None:
    """Returns by how much the first one's `stratified_rate` exceeds the second's, in [-1, 1].

    Args:
        strata: Strata with equal weights; those without pairs are left out.
    """
    differences = [(first - second) / pairs for first, second, pairs in strata if pairs]
    return fsum(differences) / len(differences) if differences else None


def paired_interval(strata: Sequence[PairedCounts]) -> tuple[float, float]:
    """Returns the 95% interval of `paired_difference`, by the score test of `paired_p_value`.

    Of one stratum, it is Tango's (1998), but with a correction for continuity. With first and
    second exchanged, the interval is mirrored at 0.
    """
    low, high = _interval(strata, _CRITICAL, corrected=True)
    # Digits, not decimals, so that a limit beside 0 keeps its sign.
    return float(f"{low:.6g}"), float(f"{high:.6g}")


def paired_p_value(strata: Sequence[PairedCounts], difference: float = 0.0) -> float:
    """Returns the two-sided p-value of a `paired_difference`, by the score test.

    It is below 5% exactly where `paired_interval` excludes the difference. Of one stratum and a
    difference of 0, it is that of McNemar's test with continuity correction (Edwards 1948).

    Args:
        strata: Strata with equal weights; those without pairs are left out.
        difference: The difference that is tested, in (-1, 1).
    """
    if not any(pairs for _, _, pairs in strata):
        return 1.0
    test = _ScoreTest.of(strata, corrected=True)
    if test.mean < difference:
        test, difference = _ScoreTest.of(_exchanged(strata), corrected=True), -difference
    return erfc(test.statistic(difference) / sqrt(2))


def crossed_interval(strata: Sequence[np.ndarray]) -> tuple[float, float]:
    """Returns the 95% interval of the success rate of a method that was trained several times.

    All training runs met the same scenes. The interval is `stratified_interval` of the scenes, but
    with the variance of a crossed analysis of variance of runs and scenes, and with Satterthwaite's
    degrees of freedom, as Hillis (2007) has them for readers and cases. Runs that agree in every
    scene thus tell no more than one of them, and few runs that disagree tell little.

    Args:
        strata: (K, N) each, for the same K training runs: 1 success, 0 failure, NaN no trial;
            strata have equal weights.
    """
    tables = [table[:, np.isfinite(table).any(axis=0)] for table in strata]
    tables = [table for table in tables if table.size]
    rates = [(float(np.nanmean(table)), table.shape[1]) for table in tables]
    counts = [(rate * scenes, (1 - rate) * scenes, scenes) for rate, scenes in rates]
    return _rate_interval(counts, _crossed_critical(tables))


def spread(numbers: Sequence[float]) -> dict[str, float] | None:
    """Returns the "median", "low" and "high" of a few numbers; None where there are none."""
    if not numbers:
        return None
    return {"median": median(numbers), "low": min(numbers), "high": max(numbers)}


# --- The score test -------------------------------------------------------------------------

_Stratum = tuple[float, float, float]
"""Numbers of trials of a stratum whose value is 1, whose value is -1, and of all its trials; the
value of the others is 0."""


@dataclass(frozen=True)
class _ScoreTest:
    """Score test of the mean over strata of mean values, against lesser ones.

    Under a tested mean, the distributions of the strata are the most likely ones that have it. By
    Lagrange, the frequency of a value v that occurred k times is then k / (nu + t v), where nu
    makes the frequencies add up to 1, and t is a multiplier times the stratum's weight. As the
    multiplier grows, the tested mean falls from the observed one to -1, and the statistic rises:
    the distance of the two means, less the correction, in standard deviations of the most likely
    distributions. Without the correction it is sqrt(multiplier * distance).

    Attributes:
        strata: The strata, each with trials.
        correction: Correction for continuity.
    """

    strata: Sequence[_Stratum]
    correction: float

    @classmethod
    def of(cls, strata: Sequence[_Stratum], corrected: bool) -> "_ScoreTest":
        """Returns the test of some strata, of which those without trials are left out.

        Args:
            strata: The strata.
            corrected: Whether the distance of two means is reduced by half of what the least change
                of an outcome makes, as McNemar's test has it.
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
            correction=inverse / len(counted) ** 2 if corrected else 0.0,
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
    """Returns the nu of `_ScoreTest`.

    It is the largest root of (nu^2 - t^2) nu = plus (nu - t) nu + minus (nu + t) nu + zero (nu^2 -
    t^2), in Viete's form; where no value was -1, this also finds the frequency that it gets.
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


def _exchanged(strata: Sequence[_Stratum]) -> list[_Stratum]:
    return [(minus, plus, trials) for plus, minus, trials in strata]


def _interval(strata: Sequence[_Stratum], critical: float, corrected: bool) -> tuple[float, float]:
    """Returns the interval of the mean over strata of mean values."""
    if not any(trials for _, _, trials in strata):
        return -1.0, 1.0
    low, high = (
        _ScoreTest.of(each, corrected).low(critical) for each in (strata, _exchanged(strata))
    )
    return low, 0.0 - high


def _rate_interval(strata: Sequence[_Stratum], critical: float) -> tuple[float, float]:
    """Returns the interval of the mean success rate: successes are values 1, failures -1."""
    low, high = _interval(strata, critical, corrected=False)
    return round((1 + low) / 2, 6), round((1 + high) / 2, 6)


def _crossed_critical(tables: Sequence[np.ndarray]) -> float:
    """Returns the critical value of the score test of the scenes for `crossed_interval`.

    It is Student's, times the ratio of the standard deviation of the mean over runs and scenes to
    that of runs that agree.

    Args:
        tables: Strata as there, without scenes without trials.
    """
    runs = len(tables[0]) if tables else 0
    rates = [float(np.nanmean(table)) for table in tables]
    agreeing = fsum(rate * (1 - rate) / t.shape[1] for rate, t in zip(rates, tables, strict=True))
    if runs < 2 or agreeing == 0:
        return _CRITICAL
    filled = [np.where(np.isfinite(t), t, np.nanmean(t, axis=0)) for t in tables]
    of_scenes, of_rest = np.mean([_variances_of_mean(table) for table in filled], axis=0)
    of_runs = len(tables) * np.mean([t.mean(axis=1) for t in filled], axis=0).var(ddof=1) / runs
    # Runs that are more alike than chance lets independent ones be are so by chance.
    of_runs = max(of_runs, of_rest)
    total = of_runs + max(of_scenes - of_rest, 0.0)
    # Runs and scenes cannot tell more than as many independent trials.
    ratio = sqrt(max(total * len(tables) / agreeing, 1 / runs))
    if of_runs == 0:
        return _CRITICAL * ratio
    from scipy.special import stdtrit

    freedom = (runs - 1) * (total / of_runs) ** 2
    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * ratio


def _variances_of_mean(table: np.ndarray) -> tuple[float, float]:
    """Returns the variances of the mean of a table, (K, N), by scenes and by what is left."""
    runs, scenes = table.shape
    if scenes < 2:
        return 0.0, 0.0
    means, effects = table.mean(axis=0), table.mean(axis=1, keepdims=True)
    rest = table - means - effects + table.mean()
    left = (rest**2).sum() / ((runs - 1) * (scenes - 1)) / (runs * scenes)
    return float(means.var(ddof=1) / scenes), float(left)
