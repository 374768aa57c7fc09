"""Fleets side by side: what a sweep is, as a value, and what its cells say together."""

import copy
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Annotated, Any, Literal

import numpy as np
import pydantic

from fleet_tools.baselines.federated.config import FleetConfig, reference
from fleet_tools.config.values import Count, Value, parse
from fleet_tools.utils.statistics import crossed_interval, spread

Keys = dict[str, pydantic.JsonValue]
"""Of a `FleetConfig`, as its YAML has them; nested ones with dots, such as "split.alpha"."""


class Sweep(Value):
    """Arms that are compared as one thing varies, each several times.

    Attributes:
        base: What all cells have in common.
        vary: The key that varies, such as "split.alpha", "participation" or "merge_every".
        values: That it takes.
        arms: What each does otherwise than the base, by its name.
        references: What they are compared with.
        seeds: Each cell is run with `training.seed` 0, 1, ... below it.
    """

    base: Keys
    vary: str
    values: Annotated[tuple[pydantic.JsonValue, ...], pydantic.Field(min_length=1)]
    arms: Annotated[dict[str, Keys], pydantic.Field(min_length=1)]
    references: tuple[Literal["joint", "single", "task_specific"], ...] = ()
    seeds: Count = 3

    @pydantic.model_validator(mode="after")
    def _names_differ(self) -> "Sweep":
        if both := set(self.arms) & set(self.references):
            raise ValueError(f"{', '.join(sorted(both))} names an arm and a reference")
        return self


@dataclass(frozen=True)
class Cell:
    """One fleet of a sweep.

    Attributes:
        arm: An arm's name, or a reference's.
        value: Of what varies.
        seed: Of everything.
        config: What it does.
    """

    arm: str
    value: Any
    seed: int
    config: FleetConfig

    @property
    def folder(self) -> str:
        """Its folder's name: the same for whatever is the same fleet, in all sweeps."""
        return hashlib.blake2b(self.config.to_json().encode(), digest_size=8).hexdigest()


def cells(sweep: Sweep) -> list[Cell]:
    """Returns all cells of a sweep, those of one seed together.

    Raises:
        ConfigError: One of them is no fleet; the message names it.
        UnknownNameError, DatasetError: The data of a reference cannot be read.
    """
    return list(_cells(sweep))


def _cells(sweep: Sweep) -> Iterator[Cell]:
    # Values change fastest: arms share robots' first lessons, and neighbours run at the same time.
    for seed in range(sweep.seeds):
        commons = [
            (value, _with(sweep.base, {sweep.vary: value, "training.seed": seed}))
            for value in sweep.values
        ]
        for arm, keys in sweep.arms.items():
            for value, common in commons:
                where = f"The arm {arm!r} with {sweep.vary} {value!r}"
                yield Cell(arm, value, seed, parse(FleetConfig, _with(common, keys), where))
        for name in sweep.references:
            for value, common in commons:
                base = parse(FleetConfig, common | {"method": "naive_average"}, "The base")
                yield Cell(name, value, seed, reference(base, name))


def _with(base: Keys, keys: Keys) -> Keys:
    changed = copy.deepcopy(base)
    for key, value in keys.items():
        *parents, last = key.split(".")
        part = changed
        for parent in parents:
            part = part.setdefault(parent, {})
        part[last] = value
    return changed


def row(sweep: Sweep, arm: str, value: Any, reports: Sequence[Mapping[str, Any]]) -> dict:
    """Returns what the cells of one arm and value say together, over their seeds.

    Args:
        sweep: The sweep.
        arm, value: Which.
        reports: As `summary.report_of` has them; fewer than seeds where some fleets failed.

    Returns:
        "arm", "value", "seeds", "success" with "rate", "low" and "high" (95%, over trainings and
        scenes, tasks counting the same; None where nothing was tried), the same as "fine_tuned" of
        the fine-tuned policy, "loss" with "median", "low" and "high" over seeds (None for
        "task_specific"), medians of the "bytes" that crossed and of those of the "data_at_home",
        and the "curve": for each round the medians of the bytes so far, of the loss and of the
        share of units that alignment "moved", and "success" as above where it was tried.
    """
    # Nobody asks a policy for one task how it does at the others.
    losses = [_loss(report, arm) for report in reports if arm != "task_specific"]
    traffic = [report["traffic"] for report in reports]
    crossed = [each["bytes_to_robots"] + each["bytes_from_robots"] for each in traffic]
    return {
        "arm": arm,
        sweep.vary: value,
        "seeds": len(reports),
        "success": _success([outcomes(report, arm) for report in reports]),
        "fine_tuned": _success([_rows(_fine_tuned(report)) for report in reports]),
        "loss": spread(losses),
        "bytes": _median(crossed),
        "data_at_home": _median([report["data_at_home"] for report in reports]),
        "curve": [
            _round(rounds) for rounds in zip(*(each["curve"] for each in reports), strict=True)
        ],
    }


def _round(of_seeds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    medians = {name: _median([each[name] for each in of_seeds]) for name in ("bytes", "loss")}
    moved = [each["moved"] for each in of_seeds if each["moved"] is not None]
    success = _success([_rows(each["rollouts"]) for each in of_seeds])
    return {"round": of_seeds[0]["round"], **medians, "moved": _median(moved), "success": success}


def _median(numbers: Sequence[float]) -> float | None:
    return median(numbers) if numbers else None


def _success(came: Sequence[Mapping[str, list[list[int]]]]) -> dict[str, float] | None:
    if not (strata := _strata(came)):
        return None
    low, high = crossed_interval(strata)
    rate = float(np.mean([stratum.mean() for stratum in strata]))
    return {"rate": round(rate, 6), "low": low, "high": high}


def _fine_tuned(report: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return (report.get("fine_tuned") or {}).get("rollouts")


def _rows(tried: Mapping[str, Any] | None) -> dict[str, list[list[int]]]:
    return {task: [_row(came)] for task, came in (tried or {}).items()}


def outcomes(report: Mapping[str, Any], arm: str) -> dict[str, list[list[int]]]:
    """Returns who solved which scenes, by task: a row for each policy that counts.

    Args:
        report: Of a fleet.
        arm: "single" counts every robot's own policy, "task_specific" those of the robots that
            have data of the task, any other the merged policy.
    """
    if arm not in ("single", "task_specific"):
        return _rows(report["rollouts"])
    rows: dict[str, list[list[int]]] = {}
    for robot in report["robots"]:
        for task, came in (robot.get("rollouts") or {}).items():
            if arm == "single" or any(kind.split()[0] == task for kind in robot["kinds"]):
                rows.setdefault(task, []).append(_row(came))
    return rows


def _row(came: Mapping[str, Any]) -> list[int]:
    return [int(place in came["solved"]) for place in range(came["episodes"])]


def _strata(of_seeds: Sequence[Mapping[str, list[list[int]]]]) -> list[np.ndarray]:
    tasks = sorted({task for came in of_seeds for task in came})
    return [
        np.array([row for came in of_seeds for row in came.get(task, [])], float) for task in tasks
    ]


def _loss(report: Mapping[str, Any], arm: str) -> float:
    if arm != "single":
        return report["held_out"]["loss"]
    return float(np.mean([robot["held_out_loss"] for robot in report["robots"]]))
