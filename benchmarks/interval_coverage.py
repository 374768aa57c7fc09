"""How often 95% intervals contain the truth: `python benchmarks/interval_coverage.py`."""

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from scaffold import main_of, report_rows

from fleet_tools.config.values import Count, Seed
from fleet_tools.utils import cli
from fleet_tools.utils.crossed_statistics import crossed_interval
from fleet_tools.utils.statistics import paired_interval, stratified_interval

Interval = tuple[float, float]
Draw = Callable[[np.random.Generator, int, int, Any], list[bool]]
"""Draws outcomes with known chances, and returns whether our interval contains the truth, and then
whether that of the bootstrap does."""

TRIALS, STRATA, RUNS = (3, 6, 12, 30), (1, 4, 16), (2, 3, 5)

RATES = (0.02, 0.1, 0.3, 0.5, 0.8, 0.95)
"""True success rates."""

CHANCES = ((0.02, 0.02), (0.1, 0.1), (0.3, 0.1), (0.5, 0.0), (0.5, 0.3), (0.9, 0.0))
"""Chances that only the first policy succeeds in a scene, and only the second."""

EFFECTS = ((0.0, 1.0, 0.0), (0.3, 1.0, 0.0), (1.0, 1.0, 0.0), (0.5, 2.0, 2.0), (0.3, 5.0, 1.0))
"""Standard deviations of training runs and of scenes, and the mean, of the log-odds of success."""

SCENES = 30
"""Number of scenes of a stratum that all training runs met."""

RESAMPLES = 1000

_COLUMNS = ["interval of", "trials", "strata", "runs", "lowest", "mean", "percentile bootstrap"]


class CoverageOptions(cli.Options):
    """Draws outcomes with known chances, and counts the intervals that contain the truth.

    Prints, for each number of trials of a stratum, of strata and of training runs: the coverage of
    the intervals of `fleet_tools.utils.statistics`, the lowest and the mean over several chances,
    and the lowest of a percentile bootstrap within the strata.

    Exit codes:
    0: it was measured.
    """

    draws: Count = 1000
    """Number of draws for each row and each chance."""
    seed: Seed = 0
    """Seed of the draws."""


def _measure_all(options: CoverageOptions) -> int:
    report_rows(options, _COLUMNS, _rows(options))
    return cli.OK


def _rows(options: CoverageOptions) -> Iterator[dict[str, Any]]:
    generator = np.random.default_rng(options.seed)
    sizes: list[tuple[str, int, int | None, Draw, Sequence[Any]]] = [
        *(("a rate", trials, None, _rate_draw, RATES) for trials in TRIALS),
        *(("a difference", trials, None, _pair_draw, CHANCES) for trials in TRIALS),
        *(
            ("a rate of training runs", SCENES, runs, partial(_runs_draw, runs=runs), EFFECTS)
            for runs in RUNS
        ),
    ]
    for (kind, trials, runs, draw, truths), strata in itertools.product(sizes, STRATA):
        drawn = [
            [draw(generator, trials, strata, truth) for _ in range(options.draws)]
            for truth in truths
        ]
        covered = np.mean(drawn, axis=1)  # (truths, 1 or 2)
        bootstrap = _percent(covered[:, 1].min()) if covered.shape[1] > 1 else None
        found = _percent(covered[:, 0].min()), _percent(covered[:, 0].mean()), bootstrap
        yield dict(zip(_COLUMNS, (kind, trials, strata, runs, *found), strict=True))


def _rate_draw(generator: np.random.Generator, n: int, strata: int, rate: float) -> list[bool]:
    counts = generator.binomial(n, rate, strata)
    ours = stratified_interval([(int(count), n) for count in counts])
    chances = np.stack([counts / n, 1 - counts / n], axis=1)
    return [_has(ours, rate), _has(_bootstrap(generator, n, chances, (1.0, 0.0)), rate)]


def _pair_draw(
    generator: np.random.Generator, n: int, strata: int, chances: tuple[float, float]
) -> list[bool]:
    first, second = chances
    counts = generator.multinomial(n, [first, second, 1 - first - second], strata)
    ours = paired_interval([(int(one), int(other), n) for one, other, _ in counts])
    theirs = _bootstrap(generator, n, counts / n, (1.0, -1.0, 0.0))
    return [_has(ours, first - second), _has(theirs, first - second)]


def _runs_draw(
    generator: np.random.Generator,
    scenes: int,
    strata: int,
    effect: tuple[float, float, float],
    runs: int,
) -> list[bool]:
    of_runs, of_scenes, mean = effect
    run = of_runs * generator.standard_normal((runs, 1))

    def chance(scene: np.ndarray, run: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-(mean + run + scene)))

    tables = [
        (generator.random((runs, scenes)) < chance(of_scenes * draws, run)).astype(float)
        for draws in generator.standard_normal((strata, 1, scenes))
    ]
    x, weights = np.polynomial.hermite_e.hermegauss(80)
    both = chance(of_scenes * x, of_runs * x[:, None])
    truth = float(weights @ both @ weights / weights.sum() ** 2)
    return [_has(crossed_interval(tables), truth)]


def _bootstrap(
    generator: np.random.Generator, n: int, chances: np.ndarray, values: tuple[float, ...]
) -> Interval:
    drawn = generator.multinomial(n, chances, (RESAMPLES, len(chances)))  # (R, S, values)
    low, high = np.quantile((drawn @ np.array(values) / n).mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def _has(interval: Interval, truth: float) -> bool:
    low, high = interval
    return low - 1e-9 <= truth <= high + 1e-9


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


main = main_of(__file__, CoverageOptions, _measure_all)

if __name__ == "__main__":
    sys.exit(main())
