"""How often comparisons that may stop err, and how soon: `python benchmarks/anytime_errors.py`."""

import itertools
import sys
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from scaffold import main_of, report_rows

from fleet_tools.config.values import Count, Seed
from fleet_tools.evaluation.anytime_statistics import anytime_verdict
from fleet_tools.utils import cli
from fleet_tools.utils.statistics import CRITICAL, NOT_TOLD_APART

SCENES = 480
"""Largest number of scenes, that of the present protocol."""

STRATA = 16

RATES, CORRELATIONS, DIFFERENCES = (0.5, 0.8, 0.95), (0.0, 0.5, 0.9), (0.05, 0.1, 0.2)
"""Success rates of the better method, correlations of the normal variables that decide an outcome
in a scene, and by how much the other method's rate is lower."""

SPREAD = 0.8
"""By how much rates of strata differ from the mean, of what they could."""

MARGIN = 0.1

_ALARM_COLUMNS = [
    "strata",
    "correlation",
    "looks",
    "false alarms, highest",
    "mean",
    "McNemar's test once, highest",
    "McNemar's test at each look, highest",
    "false equivalence, highest",
]
_SCENE_COLUMNS = [
    "difference",
    "correlation",
    "told apart",
    "equivalent within 10 points",
    "scenes until then, on average",
    "McNemar's test of 480 scenes",
]


class AnytimeOptions(cli.Options):
    """Draws outcomes of two methods in 480 scenes, and looks at them after each block of scenes.

    A block has one scene of each stratum. Prints for equal success rates, where strata are equal,
    too, and where they differ in opposite directions: how often methods are told apart at any look,
    the highest and the mean over several rates; how often a test for a fixed number of scenes tells
    them apart after all scenes, or at any look; and how often methods that differ by 10 points are
    called equivalent within 10 points. And for other differences: how often there is a verdict, and
    after how many scenes, where a comparison without one has all of them.

    Exit codes:
    0: it was measured.
    """

    draws: Count = 2000
    """Number of draws for each row and each success rate."""
    seed: Seed = 0
    """Seed of the draws."""
    table: Literal["alarms", "scenes"] = "alarms"
    """Errors of methods that are equal, or verdicts on methods that differ."""


def _rates(rate: float, strata: int) -> np.ndarray:
    """Returns success rates of strata, whose mean is a rate."""
    room = SPREAD * min(rate, 1 - rate)
    return rate + room * np.linspace(-1, 1, strata) if strata > 1 else np.array([rate])


def _counts(
    generator: np.random.Generator,
    draws: int,
    rates: tuple[np.ndarray, np.ndarray],
    correlation: float,
) -> np.ndarray:
    """Returns (draws, looks, 3): scenes in which only the first succeeded, the second, and all."""
    from scipy.special import ndtri

    strata = len(rates[0])
    shape = (draws, SCENES // strata, strata)
    scene = np.sqrt(correlation) * generator.standard_normal(shape)
    one, other = (
        scene + np.sqrt(1 - correlation) * generator.standard_normal(shape) < ndtri(each)
        for each in rates
    )
    blocks = np.stack([(one & ~other).sum(2), (other & ~one).sum(2)], axis=2)
    scenes = np.full((*shape[:2], 1), strata)
    return np.concatenate([blocks, scenes], axis=2).cumsum(axis=1)


def _verdicts(counts: np.ndarray, margin: float | None) -> np.ndarray:
    """Returns (draws, looks): the verdict at each look by itself."""
    first, second, scenes = np.moveaxis(counts, 2, 0)
    if margin is None:  # scenes in which both end alike do not count, so that many looks are alike
        scenes = first + second
    size = SCENES + 1
    distinct, where = np.unique((first * size + second) * size + scenes, return_inverse=True)
    columns = distinct // size**2, distinct // size % size, distinct % size
    told = [
        anytime_verdict((int(a), int(b), int(n)), margin) for a, b, n in zip(*columns, strict=True)
    ]
    return np.array(told)[where].reshape(counts.shape[:2])


def _first(verdicts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the verdict that ends each comparison, or the last one, and the looks until then."""
    decided = verdicts != NOT_TOLD_APART
    decided[:, -1] = True
    looks = decided.argmax(axis=1)
    return verdicts[np.arange(len(verdicts)), looks], looks + 1


def _mcnemar(counts: np.ndarray) -> np.ndarray:
    """Returns (draws, looks): whether McNemar's test with correction tells two apart (5%)."""
    plus, minus = counts[..., 0], counts[..., 1]
    statistic = np.maximum(np.abs(plus - minus) - 1.0, 0.0) ** 2
    return statistic > CRITICAL**2 * np.maximum(plus + minus, 1)


def _is_apart(verdicts: np.ndarray) -> np.ndarray:
    return np.char.startswith(verdicts, "higher") | np.char.startswith(verdicts, "lower")


def _alarms(options: AnytimeOptions) -> Iterator[dict[str, Any]]:
    kinds = {"1": (1, 0.0), "16, alike": (STRATA, 0.0), "16, opposite": (STRATA, 0.9)}
    for (name, (strata, opposite)), correlation in itertools.product(kinds.items(), CORRELATIONS):
        generator = np.random.default_rng([options.seed, strata, round(10 * correlation)])
        alarms, once, always, equivalent = [], [], [], []
        for rate in RATES:
            one = _rates(rate, strata)
            shift = opposite * min(one.min(), 1 - one.max()) * (-1.0) ** np.arange(strata)
            counts = _counts(generator, options.draws, (one, one + shift), correlation)
            alarms.append(_is_apart(_first(_verdicts(counts, None))[0]).mean())
            told = _mcnemar(counts)
            once.append(told[:, -1].mean())
            always.append(told.any(axis=1).mean())
            if strata > 1:  # with a look after every scene, all counts take too long
                lower = _rates(rate - MARGIN, strata) + shift
                apart = _counts(generator, options.draws, (one, lower), correlation)
                ends = _first(_verdicts(apart, MARGIN))[0]
                equivalent.append(np.char.startswith(ends, "equivalent").mean())
        shown = (
            max(alarms),
            np.mean(alarms),
            max(once),
            max(always),
            max(equivalent, default=None),
        )
        cells = ["" if each is None else f"{100 * each:.1f}%" for each in shown]
        row = (name, correlation, SCENES // strata, *cells)
        yield dict(zip(_ALARM_COLUMNS, row, strict=True))


def _scenes(options: AnytimeOptions) -> Iterator[dict[str, Any]]:
    for difference, correlation in itertools.product(DIFFERENCES, CORRELATIONS):
        generator = np.random.default_rng([options.seed, round(100 * difference)])
        apart, equivalent, scenes, once = [], [], [], []
        for rate in RATES:
            rates = _rates(rate, STRATA), _rates(rate - difference, STRATA)
            counts = _counts(generator, options.draws, rates, correlation)
            verdicts, looks = _first(_verdicts(counts, MARGIN))
            apart.append(_is_apart(verdicts).mean())
            equivalent.append(np.char.startswith(verdicts, "equivalent").mean())
            scenes.append(looks.mean() * STRATA)
            once.append(_mcnemar(counts)[:, -1].mean())
        row = (
            f"{100 * difference:g} points",
            correlation,
            _range(apart),
            _range(equivalent),
            f"{min(scenes):.0f} to {max(scenes):.0f}",
            _range(once),
        )
        yield dict(zip(_SCENE_COLUMNS, row, strict=True))


def _range(shares: list[Any]) -> str:
    low, high = (f"{100 * each:.0f}" for each in (min(shares), max(shares)))
    return f"{low}%" if low == high else f"{low} to {high}%"


def _measure_all(options: AnytimeOptions) -> int:
    if options.table == "alarms":
        report_rows(options, _ALARM_COLUMNS, _alarms(options))
    else:
        report_rows(options, _SCENE_COLUMNS, _scenes(options))
    return cli.OK


main = main_of(__file__, AnytimeOptions, _measure_all)

if __name__ == "__main__":
    sys.exit(main())
