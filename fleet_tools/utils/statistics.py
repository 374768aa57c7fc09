"""Statistics of success rates: intervals of one, and comparisons of two on the same episodes.

They depend on counts alone, so the order of episodes and of strata changes nothing.
"""

from collections.abc import Sequence
from math import fsum, sqrt
from statistics import NormalDist, median

import numpy as np

CONFIDENCE = 0.95
"""Confidence level of all intervals here."""

_RESAMPLES = 10_000
_SEED = 0

Counts = tuple[int, int]
"""Successes and trials of a stratum."""
PairedCounts = tuple[int, int, int]
"""Pairs of a stratum in which only the first succeeded, only the second, and all its pairs."""


def wilson_interval(successes: int, trials: int) -> tuple[float, float]:
    """Returns the 95% score interval of a success rate (Wilson 1927)."""
    if trials == 0:
        return 0.0, 1.0
    # scipy.stats has it, too, but every program would wait half a second for its import.
    z, failures = NormalDist().inv_cdf((1 + CONFIDENCE) / 2), trials - successes
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
    """Returns the 95% interval of `stratified_rate`, by a stratified bootstrap (Efron 1979).

    Episodes are resampled within their strata, 10000 times, and the interval lies between the
    percentiles. Where the outcomes vary within no stratum, no resample can differ; the interval is
    then as wide as Wilson's for as many trials with equal outcomes.
    """
    return _interval([(0, trials - successes, successes) for successes, trials in strata], 0.0)


def paired_difference(strata: Sequence[PairedCounts]) -> float | None:
    """Returns by how much the first one's `stratified_rate` exceeds the second's, in [-1, 1].

    Args:
        strata: Strata with equal weights; those without pairs are left out.
    """
    differences = [(first - second) / pairs for first, second, pairs in strata if pairs]
    return fsum(differences) / len(differences) if differences else None


def paired_interval(strata: Sequence[PairedCounts]) -> tuple[float, float]:
    """Returns the 95% interval of `paired_difference`, by a stratified bootstrap.

    Pairs are resampled within their strata, see `stratified_interval`. With first and second
    exchanged, the interval is mirrored at 0.
    """
    forward = [(second, pairs - first - second, first) for first, second, pairs in strata]
    backward = [(plus, zero, minus) for minus, zero, plus in forward]
    if sorted(forward) == sorted(backward):  # resampling is not quite symmetric
        width = max(map(abs, _interval(forward, -1.0)))
        return -width, width
    if sorted(forward) > sorted(backward):
        return _interval(forward, -1.0)
    low, high = _interval(backward, -1.0)
    return 0.0 - high, 0.0 - low


def crossed_interval(strata: Sequence[np.ndarray]) -> tuple[float, float]:
    """Returns the 95% interval of the success rate of a method that was trained several times.

    All training runs met the same scenes, so both are resampled independently: whole training
    runs, and the scenes of each stratum (the pigeonhole bootstrap, Owen 2007). Where the outcomes
    vary within no stratum, the interval is as wide as Wilson's for as many scenes.

    Args:
        strata: (K, N) each, for the same K training runs: 1 success, 0 failure, NaN no trial;
            strata have equal weights.
    """
    strata = [stratum for stratum in strata if np.isfinite(stratum).any()]
    if not strata:
        return 0.0, 1.0
    if all(np.nanmin(stratum) == np.nanmax(stratum) for stratum in strata):
        mean = fsum(float(np.nanmax(stratum)) for stratum in strata) / len(strata)
        width = wilson_interval(0, sum(stratum.shape[1] for stratum in strata))[1]
        return max(0.0, round(mean - width, 6)), min(1.0, round(mean + width, 6))
    generator = np.random.default_rng(_SEED)
    runs = len(strata[0])
    drawn = generator.multinomial(runs, np.full(runs, 1 / runs), _RESAMPLES)
    total, count = np.zeros(_RESAMPLES), np.zeros(_RESAMPLES)
    for stratum in strata:
        scenes = stratum.shape[1]
        draws = generator.multinomial(scenes, np.full(scenes, 1 / scenes), _RESAMPLES)  # (R, N)
        successes = ((draws @ np.nan_to_num(stratum).T) * drawn).sum(axis=1)  # (R,)
        trials = ((draws @ np.isfinite(stratum).T) * drawn).sum(axis=1)
        total += np.divide(successes, trials, out=np.zeros(_RESAMPLES), where=trials > 0)
        count += trials > 0
    return _percentiles(total[count > 0] / count[count > 0])


def mcnemar(only_first: int, only_second: int) -> float:
    """Returns the two-sided p-value of McNemar's exact test (McNemar 1947).

    It is the probability of pairs that differ as unevenly as these, or more so, if both succeed
    equally often.

    Args:
        only_first: Pairs in which only the first succeeded.
        only_second: Pairs in which only the second succeeded.
    """
    from scipy.stats import binomtest

    differing = only_first + only_second
    return float(binomtest(only_first, differing).pvalue) if differing else 1.0


def spread(numbers: Sequence[float]) -> dict[str, float] | None:
    """Returns the "median", "low" and "high" of a few numbers; None where there are none."""
    if not numbers:
        return None
    return {"median": median(numbers), "low": min(numbers), "high": max(numbers)}


def _interval(strata: Sequence[tuple[int, int, int]], least: float) -> tuple[float, float]:
    """Returns the bootstrap interval of the mean over strata of mean values, each -1, 0 or 1.

    Args:
        strata: Number of trials with each value.
        least: Least possible mean; the greatest is 1.
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
    return _percentiles((drawn / trials @ values).mean(axis=1))


def _percentiles(means: np.ndarray) -> tuple[float, float]:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return round(float(low), 6), round(float(high), 6)
