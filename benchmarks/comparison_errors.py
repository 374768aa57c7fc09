"""How often comparisons over training runs err: `python benchmarks/comparison_errors.py`."""

import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scaffold import main_of, report_rows

from fleet_tools.config.values import Count, Seed
from fleet_tools.utils import cli
from fleet_tools.utils.crossed_statistics import (
    crossed_interval,
    crossed_paired_difference,
    crossed_paired_interval,
    crossed_paired_p_value,
)
from fleet_tools.utils.statistics import is_equivalent

RUNS, TASKS, SCENES = (3, 5), (4, 10), (5, 30)

EFFECTS = ((0.0, 1.5, 0.0), (0.3, 1.5, 0.0), (0.7, 1.5, 0.0), (1.5, 1.5, 0.0), (0.7, 1.5, 2.0))
"""Standard deviations of training runs and of scenes, and the mean, of the log-odds of success."""

EASE = 1.2
"""By how much the easiest and the hardest task's log-odds differ from the mean."""

MARGIN = 0.1
"""Margin of equivalence, and the difference of methods that are not equivalent by a hair."""

_COLUMNS = [
    "scenes of runs",
    "runs",
    "tasks",
    "scenes of a task",
    "false alarms, highest",
    "mean",
    "false equivalence, highest",
    "coverage of a rate, lowest",
]


class ErrorOptions(cli.Options):
    """Draws outcomes of two methods, trained several times each, and counts wrong verdicts.

    Prints, where all runs meet the same scenes and where each meets scenes of its own, and for each
    number of runs, tasks and scenes: how often methods with equal rates differ significantly (5%),
    the highest and the mean over several chances of runs and scenes; how often methods that differ
    by 10 points are called equivalent within 10 points, the highest; and how often the interval of
    one method's rate contains it, the lowest (scenes of their own alone, as `interval_coverage.py`
    has the others).

    Exit codes:
    0: it was measured.
    """

    draws: Count = 1000
    """Number of draws for each row and each chance."""
    seed: Seed = 0
    """Seed of the draws."""
    scenes: Literal["same", "own", "both"] = "both"
    """Whether runs meet the same scenes, or scenes of their own."""


@dataclass(frozen=True)
class Design:
    """An experiment.

    Attributes:
        own_scenes: Whether each run met scenes of its own.
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
        """(tasks, 1, 1): what is added to each task's log-odds."""
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


def _chance(log_odds: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-log_odds))


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


def _measure_all(options: ErrorOptions) -> int:
    report_rows(options, _COLUMNS, _rows(options))
    return cli.OK


def _rows(options: ErrorOptions) -> Iterator[dict[str, Any]]:
    chosen = {"same": [False], "own": [True], "both": [False, True]}[options.scenes]
    for own_scenes, runs, tasks, scenes in itertools.product(chosen, RUNS, TASKS, SCENES):
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
        yield dict(zip(_COLUMNS, (*first, *found), strict=True))


main = main_of(__file__, ErrorOptions, _measure_all)

if __name__ == "__main__":
    sys.exit(main())
