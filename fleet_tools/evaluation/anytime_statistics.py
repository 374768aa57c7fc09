"""Sequential comparison of two policies on the same scenes, valid at every stopping time.

The difference of two outcomes in a scene is -1, 0 or 1. Against the hypothesis that its mean is m,
one bets a share l of one's wealth on each difference x, which multiplies it by 1 + l (x - m). Under
the hypothesis no bet gains in expectation, so that the wealth is an e-process. It ever reaches 20
with a probability of at most 5% (Ville 1939), however often one looks and whenever one stops. The
means against which it has not reached 20 are a confidence sequence (Waudby-Smith and Ramdas 2024,
"Estimating means of bounded random variables by betting").

The wealth is spread over all shares between those that could lose everything, as Robbins (1970)
spreads a parameter: the place p between the two is drawn from a beta distribution. The integral is
a sum of beta functions. It depends on counts alone, so that the order of scenes and the number of
looks change nothing. For m = 0 it is the e-value of a fair coin, tossed in each scene in which only
one of the two succeeds. As a function of m it is log-convex and at most 1 at the observed mean, so
that the confidence sequence consists of intervals around this one.

The scenes of a block, one of each stratum, may have means of their own: the hypothesis is about
their mean. By the inequality of the arithmetic and the geometric mean, the wealth after whole
blocks is an e-process then, too. `benchmarks/statistics_errors.py` measures how often tests err.
"""

from math import exp, lgamma, log

import numpy as np

from fleet_tools.utils.statistics import CONFIDENCE, NOT_TOLD_APART, PairedCounts, verdict_words

PRIOR = 2.0
"""Both parameters of the beta distribution. Smaller ones bet more on large differences."""

LOG_THRESHOLD = -log(1 - CONFIDENCE)
"""Logarithm of the e-value at which a hypothesis is rejected."""

MOST_SCENES = 10_000
"""Largest number of scenes that `scenes_for_verdict` considers."""


def log_e_value(counts: PairedCounts, difference: float = 0.0) -> float:
    """Returns the logarithm of the e-value against a mean difference; 0 without pairs.

    With p between the two largest shares, a difference of 1 multiplies the wealth by 2p / (1 + m),
    one of -1 by 2(1 - p) / (1 - m), and one of 0 by the mean of both. So the wealth is a sum over
    how many of the latter count as differences of 1, of which each is an integral over p.

    Args:
        counts: Scenes so far: in which only the first succeeded, only the second, and all.
        difference: The mean difference, in (-1, 1).
    """
    first, second, pairs = counts
    start = (first + second) * log(2) - _log_beta(PRIOR, PRIOR)
    if difference == 0:
        return start + _log_beta(first + PRIOR, second + PRIOR)  # what the sum comes to
    equal = pairs - first - second
    # The first term, and the ratios of each following one to the one before.
    start += _log_beta(first + PRIOR, second + equal + PRIOR)
    start -= first * log(1 + difference) + (second + equal) * log(1 - difference)
    k = np.arange(equal)
    ratios = (equal - k) * (first + k + PRIOR) / ((k + 1) * (second + equal - k - 1 + PRIOR))
    logs = np.cumsum(np.log(ratios * ((1 - difference) / (1 + difference))))
    largest = max(0.0, logs.max(initial=0.0))
    return float(start + largest + np.log(exp(-largest) + np.exp(logs - largest).sum()))


def anytime_interval(counts: PairedCounts) -> tuple[float, float]:
    """Returns the 95% confidence sequence of the mean difference at these counts, in [-1, 1].

    With a probability of at least 95% it contains the mean difference at all looks. Zero lies
    outside exactly where the e-value against it is at least 20. With the two exchanged, it is
    mirrored at 0.

    Args:
        counts: See `log_e_value`.
    """
    first, second, pairs = counts
    low = 0.0 - _highest_mean((second, first, pairs))
    return float(f"{low:.6g}"), float(f"{_highest_mean(counts):.6g}")


def anytime_verdict(counts: PairedCounts, margin: float | None) -> str:
    """Returns the verdict of `anytime_interval`, without computing it, see `verdict_words`.

    Args:
        counts: See `log_e_value`.
        margin: The least difference that matters, in (0, 1), if there is such a thing.
    """
    first, second, pairs = counts
    apart = log_e_value(counts) >= LOG_THRESHOLD
    equivalent = (
        margin is not None
        and abs(first - second) < margin * pairs
        and all(log_e_value(counts, limit) >= LOG_THRESHOLD for limit in (-margin, margin))
    )
    sign = (first > second) - (first < second)
    return verdict_words(sign if apart else 0, margin if equivalent else None)


def scenes_for_verdict(counts: PairedCounts, margin: float | None, multiple: int = 1) -> int | None:
    """Returns the estimated number of scenes after which there is a verdict.

    Scenes to come are taken to be like those so far, so that it is no more than a guess early on.

    Args:
        counts: See `log_e_value`.
        margin: See `anytime_verdict`.
        multiple: The number is one of its multiples.

    Returns:
        The number of all scenes, with those so far; None without scenes, or above `MOST_SCENES`.
    """
    first, second, pairs = counts
    if not pairs:
        return None

    def decided(blocks: int) -> bool:
        scenes = blocks * multiple
        plus = round(first * scenes / pairs)
        minus = min(round(second * scenes / pairs), scenes - plus)
        return anytime_verdict((plus, minus, scenes), margin) != NOT_TOLD_APART

    low, high = pairs // multiple, pairs // multiple
    while not decided(high):
        low, high = high, 2 * max(high, 1)
        if high * multiple > MOST_SCENES:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decided(middle) else (middle, high)
    return high * multiple


def _highest_mean(counts: PairedCounts) -> float:
    """Returns the largest mean difference that is not rejected."""
    first, second, pairs = counts
    low, high = (first - second) / pairs if pairs else 0.0, 1.0
    for _ in range(40 if low < high else 0):
        middle = (low + high) / 2
        kept = log_e_value(counts, middle) < LOG_THRESHOLD
        low, high = (middle, high) if kept else (low, middle)
    return high


def _log_beta(p: float, q: float) -> float:
    return lgamma(p) + lgamma(q) - lgamma(p + q)
