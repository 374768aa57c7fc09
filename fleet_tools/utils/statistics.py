"""Statistics of success rates: intervals, and paired comparisons.

Those of methods that were trained several times are in `crossed_statistics`, and those that may be
looked at after any scene in `anytime_statistics`. All others invert score tests. Interval and
p-value of a difference are the same test, so that the p-value is below 5% exactly where the 95%
interval excludes 0. How often the intervals contain the truth is measured by
`benchmarks/statistics_errors.py`. All depends on counts alone, so that the order of episodes and of
strata changes nothing.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from math import erfc, fsum, sqrt
from statistics import NormalDist, median

from fleet_tools.utils.score_test import score_interval, score_statistic

CONFIDENCE = 0.95
"""Confidence level of all intervals here."""

CRITICAL = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
"""Critical value of the normal distribution."""

Counts = tuple[int, int]
"""Successes and trials of a stratum."""
PairedCounts = tuple[int, int, int]
"""Pairs of a stratum in which only the first succeeded, only the second, and all its pairs."""


def wilson_interval(successes: int, trials: int) -> tuple[float, float]:
    """Returns the 95% score interval of a success rate (Wilson 1927)."""
    if trials == 0:
        return 0.0, 1.0
    # scipy.stats has it, too, but every program would wait half a second for its import.
    z, failures = CRITICAL, trials - successes
    center = (successes + z**2 / 2) / (trials + z**2)
    width = z / (trials + z**2) * sqrt(successes * failures / trials + z**2 / 4)
    low = center - width if successes else 0.0
    high = center + width if failures else 1.0
    return round(low, 6), round(high, 6)


def auc(members: Sequence[float], others: Sequence[float]) -> tuple[float, float, float]:
    """Returns the probability that a member scores higher than another, and its 95% interval.

    It is the area under the receiver operating characteristic, .5 where scores tell nothing; equal
    scores count half. The interval is by Hanley and McNeil (1982). Without members or others,
    nothing is known: .5, between 0 and 1.
    """
    n, m = len(members), len(others)
    if n * m == 0:
        return 0.5, 0.0, 1.0
    below = sorted(others)
    pairs = ((bisect_left(below, each), bisect_right(below, each)) for each in members)
    area = sum(left + right for left, right in pairs) / (2 * n * m)
    one, other = area / (2 - area), 2 * area**2 / (1 + area)
    variance = area * (1 - area) + (n - 1) * (one - area**2) + (m - 1) * (other - area**2)
    width = CRITICAL * sqrt(max(variance, 0.0) / (n * m))
    return round(area, 6), round(max(0.0, area - width), 6), round(min(1.0, area + width), 6)


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
    counts = [(k, n - k, n) for k, n in strata]  # successes are values 1, failures -1
    low, high = score_interval(counts, CRITICAL, continuity=0)
    return round((1 + low) / 2, 6), round((1 + high) / 2, 6)


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
    low, high = score_interval(strata, CRITICAL, continuity=1)
    # Digits, not decimals, so that a limit beside 0 keeps its sign.
    return float(f"{low:.6g}"), float(f"{high:.6g}")


def paired_p_value(strata: Sequence[PairedCounts], difference: float = 0.0) -> float:
    """Returns the two-sided p-value of a `paired_difference`, by the score test.

    It is below 5% exactly where `paired_interval` excludes the difference. Of one stratum and a
    difference of 0, it is the one of McNemar's test with continuity correction (Edwards 1948).

    Args:
        strata: Strata with equal weights; those without pairs are left out.
        difference: The difference that is tested, in (-1, 1).
    """
    return erfc(score_statistic(strata, difference, continuity=1) / sqrt(2))


def is_equivalent(interval: tuple[float, float], margin: float) -> bool:
    """Returns whether two methods are told to be equivalent: no difference beyond a margin is left.

    With a 95% interval these are two one-sided tests of 2.5% (Schuirmann 1987): of two methods
    whose rates differ by the margin or more, at most about 2.5% are called equivalent.

    Args:
        interval: 95% interval of their difference.
        margin: The least difference that matters, above 0.
    """
    return -margin < interval[0] and interval[1] < margin


NOT_TOLD_APART = "not told apart"
"""Text of `verdict_words` if there is no verdict."""


def verdict_words(sign: int, equivalent_within: float | None) -> str:
    """Returns a comparison's verdict in words, such as "higher" or "equivalent within 10 points".

    Args:
        sign: 1 where the first one's rate is higher, -1 where it is lower, 0 where neither is told.
        equivalent_within: The margin within which they are equivalent, if this is told.
    """
    words = ["higher"] * (sign > 0) + ["lower"] * (sign < 0)
    if equivalent_within is not None:
        words.append(f"equivalent within {100 * equivalent_within:g} points")
    return ", ".join(words) or NOT_TOLD_APART


def adjusted_p_values(p_values: Sequence[float]) -> list[float]:
    """Returns p-values of several differences together (Holm 1979).

    With a probability of at most 5%, one of them is below 5% though its difference is 0.

    Args:
        p_values: p-value of each.
    """
    adjusted, highest = [1.0] * len(p_values), 0.0
    for before, k in enumerate(sorted(range(len(p_values)), key=lambda k: p_values[k])):
        highest = max(highest, min(1.0, p_values[k] * (len(p_values) - before)))
        adjusted[k] = highest
    return adjusted


def told_apart(p_values: Sequence[float]) -> list[bool]:
    """Returns which of several differences are told: at most 5% err in any of them (Holm 1979).

    Args:
        p_values: p-value of each.
    """
    return [p < 1 - CONFIDENCE for p in adjusted_p_values(p_values)]


def spread(numbers: Sequence[float]) -> dict[str, float] | None:
    """Returns the "median", "low" and "high" of a few numbers; None where there are none."""
    if not numbers:
        return None
    return {"median": median(numbers), "low": min(numbers), "high": max(numbers)}
