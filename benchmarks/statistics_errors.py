"""Errors of intervals and of comparisons.

python benchmarks/statistics_errors.py --table coverage
python benchmarks/statistics_errors.py --table alarms
python benchmarks/statistics_errors.py --table scenes
python benchmarks/statistics_errors.py --table comparisons
"""

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from scaffold import main_of, report_rows

from fleet_tools.config.values import Count, Seed
from fleet_tools.evaluation.anytime_statistics import anytime_verdict
from fleet_tools.utils import cli
from fleet_tools.utils.crossed_statistics import (
    crossed_interval,
    crossed_paired_difference,
    crossed_paired_interval,
    crossed_paired_p_value,
)
from fleet_tools.utils.statistics import (
    CRITICAL,
    NOT_TOLD_APART,
    is_equivalent,
    paired_interval,
    stratified_interval,
)

MARGIN = 0.1
"""Margin of equivalence, and the difference of methods that are not equivalent by a hair."""


class StatisticsErrorsOptions(cli.Options):
    """Draws outcomes with known chances, and counts errors of intervals and of comparisons.

    *coverage*: the share of 95% intervals that contain the truth, of one rate and of a difference.
    Rows are numbers of trials of a stratum, of strata and of training runs. Given are the lowest
    and the mean share over several chances, and the lowest of a percentile bootstrap within the
    strata.

    *alarms*: two methods in 480 scenes, with a look after each block of one scene of each stratum.
    Rates are equal, with equal strata or with strata that differ in opposite directions. Counted
    are false differences at any look, the highest and the mean share over several rates. The same
    is counted for a test with a fixed number of scenes, at its end and at any look. And counted are
    methods that differ by 10 points, but are called equivalent within 10 points.

    *scenes*: the same for other differences: the share of verdicts, and the number of scenes until
    then. A comparison without a verdict has all scenes.

    *comparisons*: two methods with several training runs each, in common scenes or with separate
    scenes for each run. Counted are significant differences of equal methods (5%), and methods that
    differ by 10 points but are called equivalent. Also counted are intervals of one rate that
    contain it (only with separate scenes; *coverage* has the others).
    """

    table: Literal["coverage", "alarms", "scenes", "comparisons"]
    """The counted errors."""
    draws: Count = 1000
    """Number of draws for each row and each chance."""
    seed: Seed = 0
    """Seed of the draws."""


# --- Intervals ------------------------------------------------------------------------------

Interval = tuple[float, float]
Draw = Callable[[np.random.Generator, int, int, Any], list[bool]]
"""Draws outcomes with known chances, and returns whether the interval contains the truth, and
whether
the bootstrap's does."""

TRIALS, NUMBERS_OF_STRATA, NUMBERS_OF_RUNS = (3, 6, 12, 30), (1, 4, 16), (2, 3, 5)

TRUE_RATES = (0.02, 0.1, 0.3, 0.5, 0.8, 0.95)
"""True success rates."""

CHANCES = ((0.02, 0.02), (0.1, 0.1), (0.3, 0.1), (0.5, 0.0), (0.5, 0.3), (0.9, 0.0))
"""Chances that only the first policy succeeds in a scene, and only the second."""

EFFECTS_OF_RUNS = (
    *((0.0, 1.0, 0.0), (0.3, 1.0, 0.0), (1.0, 1.0, 0.0), (0.5, 2.0, 2.0), (0.3, 5.0, 1.0)),
)
"""Standard deviations of training runs and of scenes, and the mean, of the log-odds of success."""

RUN_SCENES = 30
"""Number of scenes of a stratum in all training runs."""

RESAMPLES = 1000

_COVERAGE = ["interval of", "trials", "strata", "runs", "lowest", "mean", "percentile bootstrap"]


def _coverage(options: StatisticsErrorsOptions) -> Iterator[dict[str, Any]]:
    generator = np.random.default_rng(options.seed)
    sizes: list[tuple[str, int, int | None, Draw, Sequence[Any]]] = [
        *(("a rate", trials, None, _rate_draw, TRUE_RATES) for trials in TRIALS),
        *(("a difference", trials, None, _pair_draw, CHANCES) for trials in TRIALS),
        *(
            (
                "a rate of training runs",
                RUN_SCENES,
                runs,
                partial(_runs_draw, runs=runs),
                EFFECTS_OF_RUNS,
            )
            for runs in NUMBERS_OF_RUNS
        ),
    ]
    for (kind, trials, runs, draw, truths), strata in itertools.product(sizes, NUMBERS_OF_STRATA):
        drawn = [
            [draw(generator, trials, strata, truth) for _ in range(options.draws)]
            for truth in truths
        ]
        covered = np.mean(drawn, axis=1)  # (truths, 1 or 2)
        bootstrap = _percent(covered[:, 1].min()) if covered.shape[1] > 1 else None
        found = _percent(covered[:, 0].min()), _percent(covered[:, 0].mean()), bootstrap
        yield dict(zip(_COVERAGE, (kind, trials, strata, runs, *found), strict=True))


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

    tables = [
        (generator.random((runs, scenes)) < _chance(mean + of_scenes * draws + run)).astype(float)
        for draws in generator.standard_normal((strata, 1, scenes))
    ]
    x, weights = np.polynomial.hermite_e.hermegauss(80)
    both = _chance(mean + of_scenes * x + of_runs * x[:, None])
    truth = float(weights @ both @ weights / weights.sum() ** 2)
    return [_has(crossed_interval(tables), truth)]


def _bootstrap(
    generator: np.random.Generator, n: int, chances: np.ndarray, values: tuple[float, ...]
) -> Interval:
    drawn = generator.multinomial(n, chances, (RESAMPLES, len(chances)))  # (R, S, values)
    low, high = np.quantile((drawn @ np.array(values) / n).mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def _chance(log_odds: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-log_odds))


def _has(interval: Interval, truth: float) -> bool:
    low, high = interval
    return low - 1e-9 <= truth <= high + 1e-9


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


# --- Comparisons that may stop --------------------------------------------------------------

SCENES = 480
"""Largest number of scenes, as in the present protocol."""

STRATA = 16

RATES, CORRELATIONS, DIFFERENCES = (0.5, 0.8, 0.95), (0.0, 0.5, 0.9), (0.05, 0.1, 0.2)
"""Success rates of the better method, correlations of the normal variables that decide an outcome
in
a scene, and differences to the other method's lower rate."""

SPREAD = 0.8
"""Difference of strata's rates from the mean, as a fraction of the largest possible one."""

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


def _rates(rate: float, strata: int) -> np.ndarray:
    """Returns success rates of strata with a given mean."""
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
    if margin is None:  # only differing scenes count, so that many looks are alike
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
    """Returns (draws, looks): whether McNemar's test with correction finds a difference (5%)."""
    plus, minus = counts[..., 0], counts[..., 1]
    statistic = np.maximum(np.abs(plus - minus) - 1.0, 0.0) ** 2
    return statistic > CRITICAL**2 * np.maximum(plus + minus, 1)


def _is_apart(verdicts: np.ndarray) -> np.ndarray:
    return np.char.startswith(verdicts, "higher") | np.char.startswith(verdicts, "lower")


def _alarms(options: StatisticsErrorsOptions) -> Iterator[dict[str, Any]]:
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


def _scenes(options: StatisticsErrorsOptions) -> Iterator[dict[str, Any]]:
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


# --- Comparisons over training runs ---------------------------------------------------------

DESIGNS = ((3, 5), (4, 10), (5, 30))
"""Numbers of runs, of tasks, and of scenes of a task."""

EFFECTS = ((0.0, 1.5, 0.0), (0.3, 1.5, 0.0), (0.7, 1.5, 0.0), (1.5, 1.5, 0.0), (0.7, 1.5, 2.0))
"""Standard deviations of training runs and of scenes, and the mean, of the log-odds of success."""

EASE = 1.2
"""Difference of the easiest and the hardest task's log-odds from the mean."""

_COMPARISONS = [
    "scenes of runs",
    "runs",
    "tasks",
    "scenes of a task",
    "false alarms, highest",
    "mean",
    "false equivalence, highest",
    "coverage of a rate, lowest",
]


@dataclass(frozen=True)
class Design:
    """An experiment.

    Attributes:
        own_scenes: Whether each run met separate scenes.
        runs: Number of training runs of each method.
        tasks: Number of tasks.
        scenes: Number of scenes of each task and run.
    """

    own_scenes: bool
    runs: int
    tasks: int
    scenes: int

    @property
    def ease(self) -> np.ndarray:
        """(tasks, 1, 1): offset of each task's log-odds."""
        return np.linspace(-EASE, EASE, self.tasks)[:, None, None]

    def drawn(
        self, generator: np.random.Generator, effect: tuple[float, float, float], shift: float
    ) -> list[np.ndarray]:
        """Returns outcomes of two methods, (tasks, runs, scenes), paired by run and scene."""
        of_runs, of_scenes, mean = effect
        met = self.runs if self.own_scenes else 1
        scene = of_scenes * generator.standard_normal((self.tasks, met, self.scenes))
        outcomes = []
        for more in (0.0, shift):
            run = of_runs * generator.standard_normal((1, self.runs, 1))
            chance = _chance(mean + more + self.ease + run + scene)
            outcomes.append(1.0 * (generator.random(chance.shape) < chance))
        return outcomes

    def rate(self, effect: tuple[float, float, float], shift: float = 0.0) -> float:
        """Returns the success rate of a method over all runs and scenes."""
        of_runs, of_scenes, mean = effect
        x, weights = np.polynomial.hermite_e.hermegauss(80)
        spread = np.hypot(of_runs, of_scenes)
        chances = _chance(mean + shift + self.ease[:, 0] + spread * x)
        return float(np.mean(chances @ weights / weights.sum()))

    def lowered(self, effect: tuple[float, float, float]) -> float:
        """Returns the shift of the log-odds that costs a method `MARGIN` of its rate."""
        low, high, rate = -20.0, 0.0, self.rate(effect)
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (
                (low, middle) if rate - self.rate(effect, middle) < MARGIN else (middle, high)
            )
        return high


def _is_alarm(design: Design, outcomes: list[np.ndarray]) -> bool:
    differences = list(outcomes[0] - outcomes[1])
    return crossed_paired_p_value(differences, own_scenes=design.own_scenes) < 0.05


def _is_equivalent(design: Design, outcomes: list[np.ndarray]) -> bool:
    differences = list(outcomes[0] - outcomes[1])
    observed = crossed_paired_difference(differences)
    if observed is None or abs(observed) >= MARGIN:  # it is in its interval
        return False
    return is_equivalent(crossed_paired_interval(differences, design.own_scenes), MARGIN)


def _covers(design: Design, outcomes: list[np.ndarray], rate: float) -> bool:
    low, high = crossed_interval(list(outcomes[0]), design.own_scenes)
    return low <= rate <= high


def _comparisons(options: StatisticsErrorsOptions) -> Iterator[dict[str, Any]]:
    for own_scenes, runs, tasks, scenes in itertools.product((False, True), *DESIGNS):
        design = Design(own_scenes, runs, tasks, scenes)
        generator = np.random.default_rng([options.seed, own_scenes, runs, tasks, scenes])
        alarms, equivalents, covered = [], [], []
        for effect in EFFECTS:
            equal = [design.drawn(generator, effect, 0.0) for _ in range(options.draws)]
            alarms.append(np.mean([_is_alarm(design, each) for each in equal]))
            shift = design.lowered(effect)
            apart = (design.drawn(generator, effect, shift) for _ in range(options.draws))
            equivalents.append(np.mean([_is_equivalent(design, each) for each in apart]))
            if own_scenes:
                rate = design.rate(effect)
                covered.append(np.mean([_covers(design, each, rate) for each in equal]))
        found = (
            *(f"{100 * each:.1f}%" for each in (max(alarms), np.mean(alarms), max(equivalents))),
            f"{100 * min(covered):.1f}%" if covered else None,
        )
        first = ("own" if own_scenes else "same", runs, tasks, scenes)
        yield dict(zip(_COMPARISONS, (*first, *found), strict=True))


# --- The program ----------------------------------------------------------------------------


def _measure(options: StatisticsErrorsOptions) -> int:
    columns, rows = {
        "coverage": (_COVERAGE, _coverage),
        "alarms": (_ALARM_COLUMNS, _alarms),
        "scenes": (_SCENE_COLUMNS, _scenes),
        "comparisons": (_COMPARISONS, _comparisons),
    }[options.table]
    report_rows(options, columns, rows(options))
    return cli.OK


main = main_of(__file__, StatisticsErrorsOptions, _measure)

if __name__ == "__main__":
    sys.exit(main())
