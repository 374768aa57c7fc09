"""A law of success against the number of robots, which predicts a larger fleet before it is run.

    python docs/results/scaling_law.py predict experiments/budget/scaling.json
    python docs/results/scaling_law.py compare experiments/budget/scaling.json

`predict` stores predictions for 100 robots (scaling_law.json), and never replaces them. `compare`
prints whether they held in scaling_100.json.

For each arm and alpha, the logit of the success rate is intercept + slope log robots. Solved scenes
of a seed are binomial with a dispersion, by Pearson's statistic and at least 1 (McCullagh, Nelder
1989). So it includes the spread of seeds and the misfit of the law. Jeffreys' prior (Firth 1993)
keeps the fit finite if all scenes or none are solved. Fleets of all sizes meet the same scenes.
Intervals do not use this, and are rather too wide.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit

from fleet_tools.baselines.experiments.form import merged
from fleet_tools.baselines.experiments.result import read_result
from fleet_tools.config.values import Count, Value, load_yaml
from fleet_tools.dataset.stored_episode import file_digest
from fleet_tools.errors import ConfigError
from fleet_tools.storage.atomic_files import write_file
from fleet_tools.utils.statistics import CONFIDENCE

ROBOTS, DRAWS = 100, 4_000

Outcome = tuple[int, int, int]
"""Number of robots, and of one seed's solved scenes and scenes."""


class Prediction(Value):
    """Law of an arm and alpha, and the 95% prediction interval of the rate over the next seeds.

    Attributes:
        arm: Name of the arm.
        alpha: See `PartitionConfig`.
        scenes: Number of scenes of each of the next seeds.
        slope: Slope of the law.
        dispersion: Pearson's statistic by its degrees of freedom.
        rate: Success rate by the law.
        low: Lower end of the interval.
        high: Upper end.
    """

    arm: str
    alpha: float
    scenes: tuple[Count, ...]
    slope: float
    dispersion: float
    rate: float
    low: float
    high: float


class Predictions(Value):
    """Predictions for a number of robots, from the result with a digest."""

    result_digest: str
    robots: Count
    laws: tuple[Prediction, ...]


def prediction(arm: str, alpha: float, outcomes: Sequence[Outcome], robots: int) -> Prediction:
    """Fits the law, and predicts a number of robots in as many seeds and scenes.

    Raises:
        ConfigError: There are fewer than three outcomes, or than two numbers of robots.
    """
    fleets, solved, scenes = np.array(outcomes, float).T
    if len(fleets) < 3 or len(set(fleets)) < 2:
        raise ConfigError(f"A law needs three outcomes of two fleets; {arm} has {outcomes}.")
    rows = np.column_stack([np.ones_like(fleets), np.log(fleets)])

    def information(law: np.ndarray) -> np.ndarray:
        rates = expit(rows @ law)
        return rows.T @ ((scenes * rates * (1 - rates))[:, None] * rows)

    def loss(law: np.ndarray) -> float:
        logits = rows @ law
        likelihood = (solved * logits - scenes * np.logaddexp(0, logits)).sum()
        return -float(likelihood + np.linalg.slogdet(information(law))[1] / 2)

    law = minimize(loss, [logit((solved.sum() + 0.5) / (scenes.sum() + 1)), 0.0]).x
    rates, freedom = expit(rows @ law), len(fleets) - 2
    pearson = ((solved - scenes * rates) ** 2 / (scenes * rates * (1 - rates))).sum()
    # Draws of the dispersion, the law, and each seed's rate (beta) and solved scenes.
    generator, row = np.random.default_rng(0), np.array([1.0, np.log(robots)])
    spreads = np.maximum(1.0, pearson / generator.chisquare(freedom, DRAWS))
    errors = np.sqrt(spreads * (row @ np.linalg.solve(information(law), row)))
    drawn = expit(row @ law + errors * generator.standard_normal(DRAWS)).clip(1e-9, 1 - 1e-9)
    counts, total = tuple(n for each, _, n in outcomes if each == outcomes[0][0]), np.zeros(DRAWS)
    for count in counts:
        alike = 1 / np.clip((spreads - 1) / max(count - 1, 1), 1e-9, 0.999) - 1
        total += generator.binomial(count, generator.beta(drawn * alike, (1 - drawn) * alike))
    tails = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
    low, high = np.quantile(total, tails, method="inverted_cdf") / sum(counts)
    numbers = {"slope": law[1], "dispersion": pearson / freedom, "low": low, "high": high}
    return Prediction(arm=arm, alpha=alpha, scenes=counts, rate=expit(row @ law), **numbers)


def outcomes_of(path: Path) -> dict[tuple[str, float], list[Outcome]]:
    """Returns the outcomes in a stored result by arm and alpha.

    Raises:
        ConfigError: There is no result, a run is missing, or has no `robots` or `split.alpha`.
    """
    experiment, result = read_result(path)
    cells = {(each["arm"], each["value"], each["seed"]): each for each in result["cells"]}
    found: dict[tuple[str, float], list[Outcome]] = {}
    for arm, value in ((arm, value) for arm in experiment.arms for value in experiment.cases):
        keys: Any = merged(experiment.base, experiment.cases[value])
        if "robots" not in keys or "alpha" not in keys.get("split", {}):
            raise ConfigError(f"{path}: {value!r} has no `robots` or no `split.alpha`.")
        for seed in range(experiment.seeds):
            if not (success := cells.get((arm, value, seed), {}).get("success")):
                raise ConfigError(
                    f"{path} has no success of {arm}, {value}, seed {seed}. Run the experiment to "
                    "its end first."
                )
            scenes = [scene for policies in success.values() for scene in policies[0]]
            outcome = (keys["robots"], sum(scenes), len(scenes))
            found.setdefault((arm, keys["split"]["alpha"]), []).append(outcome)
    return found


def predicted(path: Path, robots: int) -> Predictions:
    """Returns the predictions from a stored result; see `prediction` and `outcomes_of`."""
    laws = tuple(prediction(*case, each, robots) for case, each in outcomes_of(path).items())
    return Predictions(result_digest=file_digest(path), robots=robots, laws=laws)


def table(stored: Predictions, path: Path, later: Path) -> str:
    """Returns as Markdown whether predictions from one result held in a later one.

    Raises:
        ConfigError: They are from another result. Or the later one is of another experiment, other
            seeds or other scenes; see also `outcomes_of`.
    """
    one, other = (read_result(each)[0] for each in (path, later))
    if file_digest(path) != stored.result_digest:
        raise ConfigError(
            f"The prediction was fitted to another result than {path} is now. Restore the result, "
            "or predict again before the larger fleet is run."
        )
    free = {"vary", "values", "about"}
    if one.model_dump(exclude=free) != other.model_dump(exclude=free):
        raise ConfigError(f"{later} differs from {path} in more than its `values`.")
    lines = [
        f"| | alpha | odds, twice as many robots | predicted for {stored.robots} robots (95% "
        "interval) | measured | prediction |",
        f"|{'---|' * 6}",
    ]
    found = outcomes_of(later)
    for law in stored.laws:
        own, total = found.get((law.arm, law.alpha), []), sum(law.scenes)
        if [(n, count) for n, _, count in own] != [(stored.robots, n) for n in law.scenes]:
            raise ConfigError(
                f"{later} has {own} (robots, solved, scenes) of {law.arm}, alpha {law.alpha:g}; "
                f"predicted are {stored.robots} robots in {law.scenes} scenes."
            )
        solved = sum(each for _, each, _ in own)
        held = round(law.low * total) <= solved <= round(law.high * total)
        lines.append(
            f"| {law.arm} | {law.alpha:g} | x {np.exp2(law.slope):.2f} | {law.rate:.0%} "
            f"({law.low:.0%} to {law.high:.0%}) | {solved / total:.0%} ({solved} of {total}) | "
            f"{'held' if held else 'did not hold'} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Predicts the success of a larger fleet.")
    parser.add_argument("command", choices=("predict", "compare"))
    parser.add_argument("result", type=Path, help="result to which laws are fitted")
    given = parser.parse_args()
    laws, later = (given.result.with_stem(f"{given.result.stem}_{k}") for k in ("law", ROBOTS))
    try:
        if given.command == "compare":
            print(table(load_yaml(Predictions, laws), given.result, later))
        elif laws.exists() or later.exists():
            raise ConfigError(f"A prediction comes first and once, but {laws} or {later} exists.")
        else:
            write_file(laws, f"{predicted(given.result, ROBOTS).model_dump_json(indent=1)}\n")
    except ConfigError as error:
        parser.error(str(error))
