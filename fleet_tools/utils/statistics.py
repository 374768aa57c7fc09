"""Statistics of success rates: intervals of one, and comparisons of two on the same episodes.

They depend on counts alone, so the order of episodes, and of strata, changes nothing. And what is
said of a few numbers, too few for an interval.
"""

from collections.abc import Sequence
from math import comb, fsum
from statistics import median

import numpy as np

CONFIDENCE = 0.95
"""Of all intervals here, unless `z` is given."""

_RESAMPLES = 10_000
_SEED = 0

Counts = tuple[int, int]
"""Successes and trials of a stratum."""
PairedCounts = tuple[int, int, int]
"""In how many pairs of a stratum only the first succeeded, only the second, and all its pairs."""


def wilson_interval(successes: int, trials: int, z: float = 1.959964) -> tuple[float, float]:
    """Returns Wilson's score interval of a success rate (Wilson 1927); 95% by default."""
    if trials == 0:
        return 0.0, 1.0
    rate, weight = successes / trials, z**2 / trials
    center = (rate + weight / 2) / (1 + weight)
    half_width = (weight * (rate * (1 - rate) + weight / 4)) ** 0.5 / (1 + weight)
    return max(0.0, round(center - half_width, 6)), min(1.0, round(center + half_width, 6))


def stratified_rate(strata: Sequence[Counts]) -> float | None:
    """Returns the mean of the strata's success rates, each counting the same; None without any.

    Args:
        strata: Those without trials are left out.
    """
    rates = [successes / trials for successes, trials in strata if trials]
    return fsum(rates) / len(rates) if rates else None


def stratified_interval(strata: Sequence[Counts]) -> tuple[float, float]:
    """Returns the stratified bootstrap's 95% interval of `stratified_rate` (Efron 1979).

    Episodes are drawn again within their strata, 10000 times, and the interval lies between the
    percentiles. Where nothing varies within any stratum, no draw could differ; the interval is
    then as wide as Wilson's where as many trials went all alike.
    """
    return _interval([(0, trials - successes, successes) for successes, trials in strata], 0.0)


def paired_difference(strata: Sequence[PairedCounts]) -> float | None:
    """Returns by how much the first one's `stratified_rate` exceeds the second's, in [-1, 1].

    Args:
        strata: Those without pairs are left out.
    """
    differences = [(first - second) / pairs for first, second, pairs in strata if pairs]
    return fsum(differences) / len(differences) if differences else None


def paired_interval(strata: Sequence[PairedCounts]) -> tuple[float, float]:
    """Returns the stratified bootstrap's 95% interval of `paired_difference`.

    Pairs are drawn again within their strata, see `stratified_interval`. With first and second
    exchanged, the interval is the same, mirrored at 0.
    """
    forward = [(second, pairs - first - second, first) for first, second, pairs in strata]
    backward = [(plus, zero, minus) for minus, zero, plus in forward]
    if sorted(forward) >= sorted(backward):
        return _interval(forward, -1.0)
    low, high = _interval(backward, -1.0)
    return 0.0 - high, 0.0 - low


def crossed_interval(strata: Sequence[np.ndarray]) -> tuple[float, float]:
    """Returns the 95% interval of the success rate of a method that was trained several times.

    All trainings met the same scenes, so both are drawn again, each for itself: the trainings as a
    whole, and within each stratum the scenes (the pigeonhole bootstrap, Owen 2007). Where nothing
    varies within any stratum it is as wide as Wilson's for as many scenes.

    Args:
        strata: (K, N) each, for the same K trainings: 1 success, 0 failure, NaN no trial; each
            stratum counts the same.
    """
    strata = [stratum for stratum in strata if np.isfinite(stratum).any()]
    if not strata:
        return 0.0, 1.0
    if all(np.nanmin(stratum) == np.nanmax(stratum) for stratum in strata):
        mean = fsum(float(np.nanmax(stratum)) for stratum in strata) / len(strata)
        width = wilson_interval(0, sum(stratum.shape[1] for stratum in strata))[1]
        return max(0.0, round(mean - width, 6)), min(1.0, round(mean + width, 6))
    generator = np.random.default_rng(_SEED)
    trainings = len(strata[0])
    drawn = generator.multinomial(trainings, np.full(trainings, 1 / trainings), _RESAMPLES)
    total, count = np.zeros(_RESAMPLES), np.zeros(_RESAMPLES)
    for stratum in strata:
        scenes = stratum.shape[1]
        draws = generator.multinomial(scenes, np.full(scenes, 1 / scenes), _RESAMPLES)  # (R, N)
        successes = ((draws @ np.nan_to_num(stratum).T) * drawn).sum(axis=1)  # (R,)
        trials = ((draws @ np.isfinite(stratum).T) * drawn).sum(axis=1)
        total += np.divide(successes, trials, out=np.zeros(_RESAMPLES), where=trials > 0)
        count += trials > 0
    means = total[count > 0] / count[count > 0]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return round(float(low), 6), round(float(high), 6)


def mcnemar(only_first: int, only_second: int) -> float:
    """Returns the p-value of McNemar's exact test (McNemar 1947), two-sided.

    It is the probability of pairs that differ as unevenly as these, or more so, if both succeed
    equally often.

    Args:
        only_first, only_second: In how many pairs only this one succeeded.
    """
    differing, fewer = only_first + only_second, min(only_first, only_second)
    tail = sum(comb(differing, k) for k in range(fewer + 1))
    return min(1.0, 2 * tail / 2**differing)


def spread(numbers: Sequence[float]) -> dict[str, float] | None:
    """Returns the "median" of a few numbers, their "low" and "high"; None where there are none."""
    if not numbers:
        return None
    return {"median": median(numbers), "low": min(numbers), "high": max(numbers)}


def _interval(strata: Sequence[tuple[int, int, int]], least: float) -> tuple[float, float]:
    """The bootstrap's interval of the mean over strata of mean values, each -1, 0 or 1.

    Args:
        strata: How often each value came.
        least: That the mean can be; the most is 1.
    """
    counts = np.array(sorted(stratum for stratum in strata if sum(stratum)), dtype=np.int64)
    if not len(counts):
        return least, 1.0
    trials = counts.sum(axis=1, keepdims=True)  # (S, 1)
    values = np.array([-1.0, 0.0, 1.0])
    if (counts == trials).any(axis=1).all():
        mean = float((counts / trials @ values).mean())
        width = wilson_interval(0, int(trials.sum()))[1]
        return max(least, round(mean - width, 6)), min(1.0, round(mean + width, 6))
    generator = np.random.default_rng(_SEED)
    drawn = generator.multinomial(trials[:, 0], counts / trials, (_RESAMPLES, len(counts)))
    means = (drawn / trials @ values).mean(axis=1)  # (R,)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return round(float(low), 6), round(float(high), 6)
