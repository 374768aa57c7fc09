"""The stored result of an experiment: measurements of each run, and rows over seeds.

A result is one JSON file. "experiment" is the experiment. "cells" has the measurements of each
"arm", "value" and "seed" (see `ExperimentArena.measure`). "rows" has them over the seeds of each
arm and value, with comparisons of success rates. "failed" has the runs that failed, and "why".
Rows of older experiments, which did not store single runs, have no cells.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from fleet_tools.baselines.experiments.form import Experiment
from fleet_tools.baselines.experiments.life import TOLD, mean_estimate
from fleet_tools.baselines.experiments.success import (
    Successes,
    compared,
    success_rate,
    with_comparisons,
)
from fleet_tools.config.values import by_dotted_keys, parse
from fleet_tools.errors import ConfigError
from fleet_tools.storage.strict_json import loads
from fleet_tools.utils.statistics import spread

Cell = Mapping[str, Any]
"""Measurements of one "arm", "value" and "seed"."""

Row = Mapping[str, Any]
"""Results of one arm and value, see `summarized`."""

_COUNTS = ("bytes", "uploaded", "downloaded", "data_at_home")
"""Measures with only a median in rows."""

_ABSENT = "left out"


def make_result(
    experiment: Experiment, cells: Sequence[Cell], failed: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Returns a result.

    Args:
        experiment: The experiment.
        cells: The measurements, in any order.
        failed: The runs that failed.
    """
    cases, compared = list(experiment.cases), experiment.compared
    order = {(arm, value): k for k, (arm, value) in enumerate(_pairs(compared, cases))}
    ordered = sorted(cells, key=lambda each: (order[each["arm"], each["value"]], each["seed"]))
    rows = [summarized(arm, value, ordered, experiment.own_scenes) for arm, value in order]
    return {
        "experiment": experiment.model_dump(
            mode="json", exclude_defaults=True, exclude={"data_commands"}
        ),
        "rows": with_comparisons(experiment, rows, ordered),
        "cells": ordered,
        "failed": list(failed),
    }


def _pairs(arms: Iterable[str], values: Sequence[str]) -> Iterable[tuple[str, str]]:
    return ((arm, value) for arm in arms for value in values)


def summarized(
    arm: str, value: str, cells: Sequence[Cell], own_scenes: bool = True
) -> dict[str, Any]:
    """Returns the results of one arm and value over its seeds.

    Args:
        arm: Name of the arm or the reference.
        value: Label of the value.
        cells: Cells; the ones of other arms and values are left out.
        own_scenes: Whether each seed was evaluated in its own scenes.

    Returns:
        The "arm", the "value", and the number of "seeds" (fewer than planned if some failed). Each
        measure has the "median", "low" and "high" of its numbers, where None is infinity; or None
        without numbers. "success" has the "rate" with equal weights of tasks, and "low" and "high"
        of its 95% interval over training runs and scenes. "tasks" has the numbers of solved scenes
        and of all, by task. "bytes" are medians. "curve" has for each "round" medians, and
        "success". Of a life, "backward" is as `compared` returns it, "forward" as "success", and
        membership has its mean as "rate" and its interval. Lines have the number of "pairs", the
        heights of their "barrier" and "success_barrier", and both norm ratios over all parameters
        and pairs.
    """
    found = [each for each in cells if (each["arm"], each["value"]) == (arm, value)]
    row: dict[str, Any] = {"arm": arm, "value": value, "seeds": len(found)}
    names = dict.fromkeys(name for each in found for name in each)
    for name in names:
        if name in row or name == "seed":
            continue
        values = [each[name] for each in found if name in each]
        if name == "lines":
            row |= _of_lines([line for lines in values for line in lines])
        elif name == "curve":
            row[name] = [_point(each, own_scenes) for each in zip(*values, strict=True)]
        elif name == "backward":
            after, before = ({k: each[j] for k, each in enumerate(values)} for j in (0, 1))
            row[name] = compared(after, before, own_scenes, None)
        elif name in TOLD:
            mean, half = mean_estimate(values)
            row[name] = {"rate": mean, "low": mean - half, "high": mean + half}
        elif name in ("success", "fine_tuned", "retained", "forward"):
            row[name] = success_rate(values, own_scenes)
            if name == "success":
                row["tasks"] = _counts_by_task(values)
        elif name in _COUNTS:
            row[name] = _median(values)
        else:
            row[name] = _spread(values)
    return row


def _counts_by_task(seeds: Sequence[Successes]) -> dict[str, tuple[int, int]]:
    scenes: dict[str, list[int]] = {}
    for successes in seeds:
        for task, rows in successes.items():
            scenes.setdefault(task, []).extend(scene for row in rows for scene in row)
    return {task: (sum(each), len(each)) for task, each in sorted(scenes.items())}


def _point(rounds: Sequence[Mapping[str, Any]], own_scenes: bool) -> dict[str, Any]:
    """Returns a point of the curve from the same round of several seeds."""
    medians = {name: _median([each[name] for each in rounds]) for name in ("bytes", "loss")}
    moved = [each["moved"] for each in rounds if each["moved"] is not None]
    success = success_rate([each["success"] for each in rounds], own_scenes)
    return {"round": rounds[0]["round"], **medians, "moved": _median(moved), "success": success}


def _of_lines(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    ratios = [ratio for line in lines for ratio in (line.get("norms") or {}).values()]
    success = [line["success"]["height"] for line in lines if line.get("success")]
    return {
        "pairs": len(lines),
        "barrier": spread([line["loss"]["height"] for line in lines]),
        "success_barrier": spread(success),
        "of_norms": spread([ratio["of_norms"] for ratio in ratios]),
        "of_difference": spread([ratio["of_difference"] for ratio in ratios]),
    }


def _median(numbers: Sequence[float]) -> float | None:
    return median(numbers) if numbers else None


def _spread(numbers: Sequence[float | None]) -> dict[str, float | None] | None:
    """Returns the spread of numbers, where None is infinity, which JSON does not have."""
    found = spread([math.inf if each is None else each for each in numbers])
    if found is None:
        return None
    return {name: number if math.isfinite(number) else None for name, number in found.items()}


def as_json(result: Mapping[str, Any]) -> str:
    """Returns the text of a result: a line for each row, cell and failure."""
    lines = [f'"experiment": {json.dumps(result["experiment"])}']
    for name in ("rows", "cells", "failed"):
        each = ",\n  ".join(map(json.dumps, result[name]))
        lines.append(f'"{name}": [\n  {each}\n ]' if result[name] else f'"{name}": []')
    return "{\n " + ",\n ".join(lines) + "\n}\n"


def read_result(path: Path) -> tuple[Experiment, dict[str, Any]]:
    """Reads a stored result.

    Raises:
        ConfigError: There is none, or it is damaged.
    """
    try:
        result = loads(path.read_text())
        if not isinstance(result, dict) or not all(
            isinstance(result.get(name), list) for name in ("rows", "cells", "failed")
        ):
            raise ValueError("it lacks rows, cells or failed")
        return parse(Experiment, result.get("experiment"), str(path)), result
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} is not a result of an experiment: {error}") from None


def changes(before: Experiment, now: Experiment) -> list[str]:
    """Returns the keys in which an experiment differs from its former self, except for additions.

    Seeds, arms, values, references and controls may be added, since stored measurements stay valid.
    Settings of pages may change.
    """
    one, other = _flat(before), _flat(now)
    new_arms = [f"arms.{name}" for name in now.arms if name not in before.arms]
    new_cases = [f"cases.{name}" for name in now.cases if name not in before.cases]
    grown = ("references", "controls", *new_arms, *new_cases)

    def is_new(key: str) -> bool:
        if key == "seeds":
            return now.seeds >= before.seeds
        return key not in one and any(key == each or key.startswith(f"{each}.") for each in grown)

    return [
        f"{key} was {one.get(key, _ABSENT)!r} and is {other.get(key, _ABSENT)!r}"
        for key in {**one, **other}
        if one.get(key, _ABSENT) != other.get(key, _ABSENT) and not is_new(key)
    ]


def _flat(experiment: Experiment) -> dict[str, Any]:
    names, shown = ("references", "controls"), ("measures", "about", "against", "data_commands")
    content = experiment.model_dump(mode="json", exclude={"values", *shown, *names})
    content |= {name: dict.fromkeys(getattr(experiment, name), True) for name in names}
    flat = by_dotted_keys(content | {"cases": experiment.cases})
    return {key: value for key, value in flat.items() if key not in names}
