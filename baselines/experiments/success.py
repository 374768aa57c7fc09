"""Success rates of an experiment's arms over training runs and scenes, and their differences."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fleet_tools.baselines.experiments.form import Experiment
from fleet_tools.dataset.header import Header
from fleet_tools.utils.crossed_statistics import (
    crossed_interval,
    crossed_paired_difference,
    crossed_paired_interval,
    crossed_paired_p_value,
)
from fleet_tools.utils.statistics import is_equivalent, verdict_words

Successes = Mapping[str, Sequence[Sequence[int]]]
"""By task, a row for each policy, with 1 for a solved scene and 0 for the others."""

SuccessBySeed = Mapping[int, Successes]


def by_task(rollouts: Mapping[str, Any] | None) -> dict[str, list[list[int]]]:
    """Returns the successes of one policy by task, from `TaskSuccesses`; none without rollouts."""
    return {task: [by_scene(each)] for task, each in (rollouts or {}).items()}


def by_scene(successes: Mapping[str, Any]) -> list[int]:
    """Returns 1 for a solved scene and 0 for the others."""
    return [int(scene in successes["solved"]) for scene in range(successes["episodes"])]


def rates_by_task(rollouts: Mapping[str, Any] | None) -> dict[str, float]:
    """Returns success rates by task, of `TaskSuccesses` by task; none without rollouts."""
    return {task: each["successes"] / each["episodes"] for task, each in (rollouts or {}).items()}


def success_rate(seeds: Sequence[Successes], own_scenes: bool) -> dict[str, float] | None:
    """Returns the mean over tasks of success rates, and its interval; None without rollouts.

    Several policies of a seed, such as single robots', count by their mean.

    Args:
        seeds: Successes of each seed.
        own_scenes: Whether each seed was evaluated in its own scenes.
    """
    strata = _tables(seeds, _tasks(seeds))
    if not strata:
        return None
    low, high = crossed_interval(strata, own_scenes)
    rate = float(np.mean([np.nanmean(table) for table in strata]))
    return {"rate": round(rate, 6), "low": low, "high": high}


def compared(
    one: SuccessBySeed, other: SuccessBySeed, own_scenes: bool, margin: float | None
) -> dict[str, Any] | None:
    """Compares the success rates of two arms, paired by seed and scene.

    Args:
        one: Successes of one arm, by seed.
        other: Successes of the arm to which it is compared.
        own_scenes: Whether each seed was evaluated in its own scenes.
        margin: The least difference that matters; None if there is none.

    Returns:
        The "difference" of the mean success rates over tasks, "low" and "high" of its 95% interval,
        and the two-sided "p" of no difference. Also the number of common "seeds", and the
        "verdict"; None without common seeds, or if tasks or scenes differ.
    """
    seeds = sorted(set(one) & set(other))
    pair = [[arm[seed] for seed in seeds] for arm in (one, other)]
    tasks = _tasks(pair[0])
    if tasks != _tasks(pair[1]):
        return None
    tables = [_tables(arm, tasks) for arm in pair]
    if not all(_same_scenes(*each) for each in zip(*pair, strict=True)):
        return None
    strata = [first - second for first, second in zip(*tables, strict=True)]
    difference = crossed_paired_difference(strata)
    if difference is None:
        return None
    low, high = crossed_paired_interval(strata, own_scenes)
    return {
        "difference": round(difference, 6),
        "low": low,
        "high": high,
        "p": float(f"{crossed_paired_p_value(strata, own_scenes=own_scenes):.4g}"),
        "seeds": len(seeds),
        "verdict": _verdict(low, high, margin),
    }


def with_comparisons(
    experiment: Experiment,
    rows: Iterable[Mapping[str, Any]],
    cells: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Returns the rows of a result with comparisons of each arm as "against", by name.

    If policies act in several places, names with a place are of comparisons there. Fine-tuned
    policies are compared after fine-tuning.

    Args:
        experiment: The experiment; without comparisons, rows have no such key.
        rows: Rows, possibly with former comparisons, which are left out.
        cells: The measurements.
    """
    kept = [{name: each[name] for name in each if name != "against"} for each in rows]
    if not experiment.against:
        return kept
    found: dict[tuple[str, str], dict[int, Successes]] = {}
    for cell in cells:
        if success := cell.get("fine_tuned") or cell.get("success"):
            found.setdefault((cell["arm"], cell["value"]), {})[cell["seed"]] = success
    for row in kept:
        arm, value = row["arm"], row["value"]
        pairs = {
            other: (found.get((arm, value), {}), found.get((other, value), {}))
            for other in experiment.against
            if other != arm
        }
        row["against"] = {
            f"{other}{place}": compared(one, two, experiment.own_scenes, experiment.against[other])
            for other, pair in pairs.items()
            for place, (one, two) in {"": pair, **_by_place(*pair)}.items()
        }
    return kept


def places_of(tasks: Iterable[str]) -> list[str]:
    """Returns where policies act: the arm, and the entry that they lack. One place counts as none.

    Args:
        tasks: Names of tasks on arms, see `count_successes`.

    Returns:
        For example " on panda" and " on ur5e without end_effector_wrench".
    """
    found = sorted({_place(task) for task in tasks})
    return found if len(found) > 1 else []


def _place(task: str) -> str:
    setting, _, lacks = task.partition(" ")
    return f" on {Header.task_and_robot(setting)[1]} {lacks}".rstrip()


def _by_place(
    one: SuccessBySeed, other: SuccessBySeed
) -> dict[str, tuple[SuccessBySeed, SuccessBySeed]]:
    """Returns the part of two arms' successes in each of several places."""

    def in_place(arm: SuccessBySeed, place: str) -> SuccessBySeed:
        return {
            seed: {task: rows for task, rows in each.items() if _place(task) == place}
            for seed, each in arm.items()
        }

    tasks = _tasks([*one.values(), *other.values()])
    return {place: (in_place(one, place), in_place(other, place)) for place in places_of(tasks)}


def _verdict(low: float, high: float, margin: float | None) -> str:
    equivalent = margin is not None and is_equivalent((low, high), margin)
    return verdict_words((low > 0) - (high < 0), margin if equivalent else None)


def _tasks(seeds: Sequence[Successes]) -> list[str]:
    return sorted({task for successes in seeds for task in successes})


def _same_scenes(one: Successes, other: Successes) -> bool:
    return all(
        {len(row) for row in one[task]} == {len(row) for row in other[task]}
        for task in set(one) & set(other)
    )


def _tables(seeds: Sequence[Successes], tasks: Sequence[str]) -> list[np.ndarray]:
    """Returns for each task (seeds, scenes): the mean of the seed's policies, NaN without any."""
    tables = []
    for task in tasks:
        means = [np.mean(rows, axis=0) if (rows := each.get(task)) else [] for each in seeds]
        table = np.full((len(seeds), max(map(len, means))), np.nan)
        for row, mean in zip(table, means, strict=True):
            row[: len(mean)] = mean
        tables.append(table)
    return tables
