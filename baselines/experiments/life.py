"""Measures of a life: loss of old skills, gain of new robots, and attacks on forgotten ones."""

import itertools
import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from fleet_tools.baselines.experiments.form import Experiment, merged
from fleet_tools.baselines.experiments.success import by_task, rates_by_task
from fleet_tools.baselines.federated.life import Life
from fleet_tools.config.values import parse

MEASURES = {
    "month_kb": ("kB that a robot uploads in a month, at most", ".1f"),
    "kept_kb": ("kB that the server keeps of robots at the end", ".1f"),
    "shared_own": ("Success of the shared policy in a robot's own tasks", ".1%"),
    "shared_others": ("Success of the shared policy in other tasks that are not forgotten", ".1%"),
    "personal_own": ("Success of a robot's own policy in its own tasks", ".1%"),
    "personal_others": ("Success of a robot's own policy in these other tasks", ".1%"),
}
"""Titles and formats of the measures of a life that are numbers, by name."""

TOLD = {
    "told_before": "Membership of forgotten robots before they leave (AUC, 95% interval)",
    "told_after": "Membership of forgotten robots after they left",
    "told_end": "Membership of forgotten robots at the end",
}
"""Titles of the measures of membership, by name."""

OF_MERGES = ("month_kb", "kept_kb")
"""Measures that references do not have, since they do not merge."""

Rates = Mapping[str, float]
"""Success rates by task."""

Matrices = Mapping[tuple[str, str], Sequence[Rates]]
"""By arm and value, the success rates of each month."""


def life_of(experiment: Experiment, arm: str, value: str) -> Life:
    """Returns the life of an arm, or of the fleet that a reference is compared to.

    Args:
        experiment: An experiment with a life.
        arm: Name of the arm or the reference.
        value: Label of the value.
    """
    assert experiment.life is not None
    keys = merged({"life": experiment.life.model_dump(mode="json")}, experiment.cases[value])
    keys = merged(keys, experiment.arms.get(arm, {}))
    return parse(Life, keys["life"], f"The life of {arm}")


def success_by_month(experiment: Experiment, cells: Sequence[Mapping[str, Any]]) -> Matrices:
    """Returns the matrix of success rates of each arm and value, a row for each month.

    Rates are means over seeds. Arms with one month, and months without rollouts, have no matrix.

    Args:
        experiment: The experiment.
        cells: Its measurements.
    """
    found = {}
    for place in itertools.product(experiment.compared, experiment.cases):
        own = (each for each in cells if (each["arm"], each["value"]) == place)
        curves = [each["curve"] for each in own if each.get("curve")]
        months = [[point["success"] for point in each] for each in zip(*curves, strict=True)]
        if len(months) > 1 and all(all(seeds) for seeds in months):
            found[place] = [
                {task: fmean(fmean(each[task][0]) for each in seeds) for task in sorted(seeds[0])}
                for seeds in months
            ]
    return found


def life_measures(report: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the measures of a life.

    R[month][task] is the matrix of success rates. Transfers are means over tasks (Lopez-Paz and
    Ranzato, "Gradient Episodic Memory for Continual Learning", 2017). Backward: R[last] - R[first]
    over tasks that are not forgotten, where first is the first month with a robot of the task.
    Forward: R[first - 1] over the tasks of robots that arrived after the first month; the success
    of initial weights, which the paper subtracts, is not subtracted. Shared and personal policies
    of robots that are there in the last month are compared in tasks that are not forgotten.

    Args:
        report: Report of a fleet with a life, see `life_report.life_report`.

    Returns:
        Numbers, named in `MEASURES`. For names in `TOLD` a pair: the area under the ROC curve, and
        half its 95% interval. "forward" has successes by task and month, and "backward" two such
        mappings by task, from the end and from the first month.
    """
    life, stays = report["life"], report["life"]["stays"]
    solved = [by_task(point["rollouts"]) for point in report["curve"]]
    matrix = [rates_by_task(point["rollouts"]) for point in report["curve"]]
    found: dict[str, Any] = {
        "month_kb": life["uploaded_in_a_month"] / 1e3,
        "kept_kb": life["kept_bytes"] / 1e3,
    }
    for name in TOLD if life["forgotten"] else ():
        areas = [each[name.removeprefix("told_")] for each in life["forgotten"]]
        found[name] = mean_estimate([(area, (high - low) / 2) for area, low, high in areas])
    if not all(matrix):
        return found
    first: dict[str, int] = {}
    forward: dict[str, Any] = {}
    for stay in (stay for stay in stays if stay["months"]):
        for task in stay["tasks"]:
            month = stay["months"][0]
            first[task] = min(month, first.get(task, month))
            if month > 1:
                forward[f"{task}, month {month}"] = solved[month - 2][task]
    old = [task for task in life["kept_tasks"] if first.get(task, len(matrix)) < len(matrix)]
    if old:
        before = {task: solved[first[task] - 1][task] for task in old}
        found["backward"] = [{task: solved[-1][task] for task in old}, before]
    if forward:
        found["forward"] = forward
    there = {k: each["tasks"] for k, each in enumerate(stays) if each["there"]}
    alone = [each for each in report["robots"] if each.get("rollouts")]
    home = {each["robot"]: rates_by_task(each["rollouts"]) for each in life["personal"] or alone}
    if personal := {robot: home[robot] for robot in there if robot in home}:
        found |= _own_and_others("personal", there, personal, life["kept_tasks"])
    if not alone:
        shared = dict.fromkeys(there, matrix[-1])
        found |= _own_and_others("shared", there, shared, life["kept_tasks"])
    return found


def mean_estimate(estimates: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Returns the mean of independent estimates, and half its interval, from theirs."""
    means, halves = zip(*estimates, strict=True)
    return fmean(means), math.hypot(*halves) / len(estimates)


def _own_and_others(
    name: str, tasks: Mapping[int, Sequence[str]], solved: Mapping[int, Rates], kept: Sequence[str]
) -> dict[str, float]:
    found: dict[str, list[float]] = {"own": [], "others": []}
    for robot, rates in solved.items():
        for task in kept:
            found["own" if task in tasks[robot] else "others"].append(rates[task])
    return {f"{name}_{which}": fmean(each) for which, each in found.items() if each}
