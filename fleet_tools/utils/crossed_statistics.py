"""Statistics over several training runs: rate of a method, difference of two.

Outcomes are tables, (K, N), one for each stratum: of the same K training runs in N scenes each.
There are two designs. In the crossed one all runs met the same scenes, and a column is a scene; in
the nested one each run met scenes of its own. Both are score tests of the scenes, as those in
`statistics`, whose critical value is multiplied by a ratio. It is the standard deviation of the
mean over runs and scenes, relative to scenes alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import erfc, fsum, inf, sqrt

import numpy as np

from fleet_tools.utils.score_test import Stratum, score_interval, score_statistic
from fleet_tools.utils.statistics import CONFIDENCE, CRITICAL


def crossed_interval(strata: Sequence[np.ndarray], own_scenes: bool = False) -> tuple[float, float]:
    """Returns the 95% interval of the success rate of a method that was trained several times.

    It is `stratified_interval` of the scenes, but with the variance of runs and scenes. Crossed, it
    comes from an analysis of variance, with Satterthwaite's degrees of freedom, as Hillis (2007)
    has them for readers and cases: runs that agree in every scene tell no more than one of them,
    and few runs that disagree tell little. Nested, it comes from the runs' mean rates, with K - 1
    degrees of freedom, and is never less than for as many independent scenes.

    Args:
        strata: (K, N) each, for the same K training runs: 1 success, 0 failure, NaN no trial, or
            the mean of several policies of a run; strata have equal weights.
        own_scenes: Whether each run met scenes of its own.

    Raises:
        ValueError: The numbers of runs differ.
    """
    sample = _Sample.of([2 * table - 1 for table in strata], own_scenes, of_rates=True)
    low, high = score_interval(sample.counts, sample.critical, continuity=0)
    return round((1 + low) / 2, 6), round((1 + high) / 2, 6)


def crossed_paired_difference(strata: Sequence[np.ndarray]) -> float | None:
    """Returns by how much the first one's success rate exceeds the second's; None without trials.

    Args:
        strata: See `crossed_paired_interval`.
    """
    means = [float(np.nanmean(table)) for table in strata if np.isfinite(table).any()]
    return fsum(means) / len(means) if means else None


def crossed_paired_interval(
    strata: Sequence[np.ndarray], own_scenes: bool = False
) -> tuple[float, float]:
    """Returns the 95% interval of `crossed_paired_difference`: of the next runs, in other scenes.

    Both methods were trained K times with the same seeds and judged in the same scenes. It is
    `paired_interval` of the scenes, and one run's, but with the variance of runs and scenes
    as `crossed_interval` has it. With the methods exchanged, it is mirrored at 0.

    Args:
        strata: (K, N) each, for the same K pairs of training runs. Entries are the first one's
            outcome less the second's, -1, 0 or 1, NaN where one of them has no trial, or the mean
            over several policies of a run. Strata have equal weights.
        own_scenes: Whether each pair of runs met scenes of its own.

    Raises:
        ValueError: The numbers of runs differ.
    """
    sample = _Sample.of(strata, own_scenes)
    low, high = score_interval(sample.counts, sample.critical, sample.continuity)
    return float(f"{low:.6g}"), float(f"{high:.6g}")


def crossed_paired_p_value(
    strata: Sequence[np.ndarray], difference: float = 0.0, own_scenes: bool = False
) -> float:
    """Returns the two-sided p-value of a `crossed_paired_difference`.

    It is below 5% exactly where `crossed_paired_interval` excludes the difference.

    Args:
        strata: See `crossed_paired_interval`.
        difference: The difference that is tested, in (-1, 1).
        own_scenes: Whether each pair of runs met scenes of its own.

    Raises:
        ValueError: The numbers of runs differ.
    """
    sample = _Sample.of(strata, own_scenes)
    return sample.p_value(score_statistic(sample.counts, difference, sample.continuity))


@dataclass(frozen=True)
class _Sample:
    """Counts for the score test of the scenes, and how much less runs and scenes tell than it says.

    Attributes:
        counts: Strata with trials.
        ratio: Standard deviation of the mean over runs and scenes, in the score test's.
        freedom: Student's degrees of freedom of `ratio`.
        least: Least ratio at the critical value of the normal distribution.
        continuity: Correction for continuity, see `ScoreTest.of`.
    """

    counts: Sequence[Stratum]
    ratio: float = 1.0
    freedom: float = inf
    least: float = 0.0
    continuity: float = 1.0

    @classmethod
    def of(
        cls, strata: Sequence[np.ndarray], own_scenes: bool, of_rates: bool = False
    ) -> "_Sample":
        """Returns the ratio of tables of values in [-1, 1], which are of one method or of two."""
        if len({len(table) for table in strata}) > 1:
            raise ValueError(
                f"The strata have {', '.join(str(len(table)) for table in strata)} training "
                "runs. Give the same runs in all strata, with NaN where a run has no trial."
            )
        strata = [table for table in strata if np.isfinite(table).any()]
        if not strata:
            return cls([])
        has_trials = np.any([np.isfinite(table).any(axis=1) for table in strata], axis=0)
        tables = [table[:, np.isfinite(table).any(axis=0)][has_trials] for table in strata]
        counts = [_counts(table, own_scenes) for table in tables]
        score = fsum(((p + m) / n - ((p - m) / n) ** 2) / n for p, m, n in counts) / len(counts)
        if has_trials.sum() < 2 or score == 0:
            return cls(counts)
        if own_scenes:
            return _nested(tables, counts, score)
        return _crossed(tables, counts, score, of_rates)

    @property
    def critical(self) -> float:
        """Critical value of the score test."""
        from scipy.special import stdtrit  # every program would wait for it

        level = (1 + CONFIDENCE) / 2
        student = CRITICAL if self.freedom == inf else float(stdtrit(self.freedom, level))
        return max(self.ratio * student, self.least * CRITICAL)

    def p_value(self, statistic: float) -> float:
        """Returns the two-sided p-value of a statistic of the score test."""
        from scipy.special import stdtr

        at_least = erfc(statistic / self.least / sqrt(2)) if self.least else 0.0
        if self.ratio == 0:
            return at_least
        if self.freedom == inf:
            return max(erfc(statistic / self.ratio / sqrt(2)), at_least)
        return max(2 * float(stdtr(self.freedom, -statistic / self.ratio)), at_least)


def _counts(table: np.ndarray, own_scenes: bool) -> Stratum:
    """Returns the numbers of values 1 and -1 and of scenes; other values count in proportion.

    Args:
        table: (K, N), without columns without trials.
        own_scenes: Whether each value is of a scene of its own; otherwise each column is.
    """
    scenes = float(np.isfinite(table).sum() if own_scenes else table.shape[1])
    plus, minus = (float(np.nanmean(np.maximum(sign * table, 0.0))) for sign in (1, -1))
    return plus * scenes, minus * scenes, scenes


def _nested(tables: Sequence[np.ndarray], counts: Sequence[Stratum], score: float) -> _Sample:
    """Returns the sample of runs that met scenes of their own.

    Args:
        tables: (K, N) each.
        counts: Those of all scenes.
        score: Variance of the mean by the score test, times the number of strata.
    """
    # A run's mean has all of its chance, that of training and that of its scenes.
    return _Sample(
        counts, sqrt(_variance_by_runs(tables) / score), freedom=len(tables[0]) - 1, least=1.0
    )


def _crossed(
    tables: Sequence[np.ndarray], counts: Sequence[Stratum], score: float, of_rates: bool
) -> _Sample:
    """Does as `_nested`, of runs that met the same scenes; `of_rates` is of one method alone."""
    runs = len(tables[0])
    filled = [np.where(np.isfinite(t), t, np.nanmean(t, axis=0)) for t in tables]
    of_scenes, of_rest = np.mean([_variances_of_mean(table) for table in filled], axis=0)
    of_runs = _variance_by_runs(filled)
    if of_rates:
        # Runs of a rate that are more alike than independent ones are so by chance. In differences,
        # with a correction for continuity, simulated false alarms are as few without this.
        of_runs, of_scenes = max(of_runs, of_rest), max(of_scenes, of_rest)
    total = max(of_runs + of_scenes - of_rest, 0.0)
    # Runs and scenes cannot tell more than as many independent trials.
    ratio = sqrt(max(total / score, 1 / runs))
    freedom = (runs - 1) * max(total / of_runs, 1.0) ** 2 if of_runs else inf
    return _Sample(counts, ratio, freedom, continuity=min(ratio**2, 1.0))


def _variance_by_runs(tables: Sequence[np.ndarray]) -> float:
    """Returns the variance of the mean, times the number of strata, by the means of the runs."""
    means = [np.nanmean(np.where(np.isfinite(t).any(1, keepdims=True), t, np.nanmean(t)), axis=1)
             for t in tables]  # fmt: skip
    return float(np.mean(means, axis=0).var(ddof=1)) / len(means[0]) * len(tables)


def _variances_of_mean(table: np.ndarray) -> tuple[float, float]:
    """Returns the variances of the mean of a table, (K, N), by scenes and by what is left."""
    runs, scenes = table.shape
    if scenes < 2:
        return 0.0, 0.0
    means, effects = table.mean(axis=0), table.mean(axis=1, keepdims=True)
    rest = table - means - effects + table.mean()
    left = (rest**2).sum() / ((runs - 1) * (scenes - 1)) / (runs * scenes)
    return float(means.var(ddof=1) / scenes), float(left)
