"""Results of a sweep: success rates, losses and traffic of the runs of each arm and value."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
import pydantic

from fleet_tools.baselines.experiments.job_runner import FailedJob
from fleet_tools.baselines.experiments.sweeps.sweep import Sweep, SweepRun
from fleet_tools.utils.statistics import crossed_interval, spread

Report = Mapping[str, Any]
"""Content of a fleet's `report.json`, see `federated.summary.summarize`."""

Row = Mapping[str, Any]
"""Results of one arm and value, see `summarize_arm`."""

SceneSuccesses = dict[str, list[list[int]]]
"""By task, a row for each policy, with 1 for each scene of a success and 0 for the others."""


def summarize(
    sweep: Sweep, runs: Sequence[SweepRun], results: Mapping[str, dict[str, Any] | FailedJob]
) -> dict[str, Any]:
    """Returns the content of a sweep's JSON file.

    Args:
        sweep: The sweep.
        runs: All its runs.
        results: Report or failure of each fleet, by its folder.

    Returns:
        In "vary", the key that varies; in "rows", the results of each arm and value (see
        `summarize_arm`); in "failed", the reasons of failed fleets by folder.
    """
    groups: dict[tuple[str, int], list[Report]] = {}
    failed: dict[str, str] = {}
    for run in runs:
        reports = groups.setdefault((run.arm, sweep.values.index(run.value)), [])
        result = results[run.folder]
        if isinstance(result, FailedJob):
            failed[run.folder] = result.reason
        else:
            reports.append(result)
    rows = [
        summarize_arm(sweep, arm, sweep.values[index], reports)
        for (arm, index), reports in groups.items()
    ]
    return {"vary": sweep.vary, "rows": rows, "failed": failed}


def summarize_arm(
    sweep: Sweep, arm: str, value: pydantic.JsonValue, reports: Sequence[Report]
) -> Row:
    """Returns the results of one arm and value over its seeds.

    Args:
        sweep: The sweep.
        arm: Name of the arm or the reference.
        value: Value of the key that varies.
        reports: Reports of its fleets; fewer than seeds if some failed.

    Returns:
        The "arm"; the value, by the name of the key that varies; the number of "seeds"; the
        "success" rate of the final policy (see `scene_successes`) with its 95% interval over
        training runs and scenes, as "rate", "low" and "high", where tasks have equal weights (None
        without rollouts); in "tasks", the numbers of solved scenes and of all, by task; the success
        rate of the "fine_tuned" policy; the held-out "loss" as "median",
        "low" and "high" over seeds (None for "task_specific"); medians of the "bytes" of messages
        and of the size of the robots' data, "data_at_home"; and the "curve": for each "round"
        medians of the "bytes" so far, of the "loss" and of the fraction of units that alignment
        "moved", and "success" as above; after the last one, of the final policy.
    """
    # Policies for one task are not meant for the others, on which the loss is measured, too.
    losses = [_loss(report, arm) for report in reports if arm != "task_specific"]
    transferred = list(map(_transferred, reports))
    successes = [scene_successes(report, arm) for report in reports]
    return {
        "arm": arm,
        sweep.vary: value,
        "seeds": len(reports),
        "success": _success_rate(successes),
        "tasks": _counts_by_task(successes),
        "fine_tuned": _success_rate([_by_task(_fine_tuned_rollouts(each)) for each in reports]),
        "loss": spread(losses),
        "bytes": _median(transferred),
        "data_at_home": _median([report["data_at_home"] for report in reports]),
        "curve": [_curve_point(rounds) for rounds in zip(*map(_curve, reports), strict=True)],
    }


def scene_successes(report: Report, arm: str) -> SceneSuccesses:
    """Returns the scenes in which the policies of an arm succeeded.

    Args:
        report: Report of a fleet.
        arm: Name of the arm or the reference. For "single", the policies are those of all robots;
            for "task_specific", in each task those of the robots with data of this task; otherwise
            it is the distilled policy if there is one, or else the combined one, or the merged one.
    """
    if arm not in ("single", "task_specific"):
        return _by_task((_beyond_merging(report) or report)["rollouts"])
    rows: SceneSuccesses = {}
    for robot in report["robots"]:
        for task, successes in (robot.get("rollouts") or {}).items():
            if arm == "single" or any(kind.split()[0] == task for kind in robot["kinds"]):
                rows.setdefault(task, []).append(_by_scene(successes))
    return rows


def as_text(sweep: Sweep, results: Mapping[str, Any]) -> str:
    """Returns the results as a table.

    Args:
        sweep: The sweep.
        results: Content of its JSON file, see `summarize`.
    """
    lines = [
        f"{'':24}{sweep.vary:>16}  success (95% interval)     fine-tuned                 "
        "held-out loss                    MB   moved"
    ]
    for row in results["rows"]:
        loss = row["loss"]
        losses = f"{loss['median']:.3g} ({loss['low']:.3g} to {loss['high']:.3g})" if loss else "-"
        megabytes = "-" if row["bytes"] is None else f"{row['bytes'] / 1e6:.1f}"
        fraction = row["curve"][-1]["moved"] if row["curve"] else None
        moved = "-" if fraction is None else f"{fraction:.0%}"
        lines.append(
            f"{row['arm']:24}{row[sweep.vary]!s:>16}  {_rate_text(row['success']):25}  "
            f"{_rate_text(row['fine_tuned']):25}  {losses:28}{megabytes:>7}  {moved:>6}"
        )
    lines += [f"The fleet {name} failed: {reason}" for name, reason in results["failed"].items()]
    return "\n".join(lines)


def _curve(report: Report) -> list[Mapping[str, Any]]:
    """Returns the curve of a fleet; its last point is that of the final policy."""
    final = _beyond_merging(report)
    if final is None:
        return report["curve"]
    *before, last = report["curve"]
    changes = {name: final[name] for name in ("loss", "rollouts")}
    return [*before, {**last, "bytes": _transferred(report), **changes}]


def _curve_point(rounds: Sequence[Report]) -> dict[str, Any]:
    """Returns a point of the curve from the same round of several seeds."""
    medians = {name: _median([each[name] for each in rounds]) for name in ("bytes", "loss")}
    moved = [each["moved"] for each in rounds if each["moved"] is not None]
    success = _success_rate([_by_task(each["rollouts"]) for each in rounds])
    return {"round": rounds[0]["round"], **medians, "moved": _median(moved), "success": success}


def _median(numbers: Sequence[float]) -> float | None:
    return median(numbers) if numbers else None


def _counts_by_task(seeds: Sequence[SceneSuccesses]) -> dict[str, tuple[int, int]]:
    scenes: dict[str, list[int]] = {}
    for successes in seeds:
        for task, rows in successes.items():
            scenes.setdefault(task, []).extend(scene for row in rows for scene in row)
    return {task: (sum(each), len(each)) for task, each in sorted(scenes.items())}


def _success_rate(seeds: Sequence[SceneSuccesses]) -> dict[str, float] | None:
    tasks = sorted({task for successes in seeds for task in successes})
    strata = [
        np.array([row for successes in seeds for row in successes.get(task, [])], float)
        for task in tasks
    ]
    if not strata:
        return None
    low, high = crossed_interval(strata)
    rate = float(np.mean([stratum.mean() for stratum in strata]))
    return {"rate": round(rate, 6), "low": low, "high": high}


def _fine_tuned_rollouts(report: Report) -> Mapping[str, Any] | None:
    return (report.get("fine_tuned") or {}).get("rollouts")


def _by_task(rollouts: Mapping[str, Any] | None) -> SceneSuccesses:
    return {task: [_by_scene(successes)] for task, successes in (rollouts or {}).items()}


def _by_scene(successes: Mapping[str, Any]) -> list[int]:
    return [int(scene in successes["solved"]) for scene in range(successes["episodes"])]


def _transferred(report: Report) -> int:
    parts = [report["traffic"], *(each["traffic"] for each in [report.get("combined")] if each)]
    return sum(each["bytes_to_robots"] + each["bytes_from_robots"] for each in parts)


def _beyond_merging(report: Report) -> Mapping[str, Any] | None:
    return report.get("distilled", report.get("combined"))


def _loss(report: Report, arm: str) -> float:
    if (final := _beyond_merging(report)) is not None:
        return final["loss"]
    if arm != "single":
        return report["held_out"]["loss"]
    return float(np.mean([robot["held_out_loss"] for robot in report["robots"]]))


def _rate_text(success: Mapping[str, float] | None) -> str:
    if success is None:
        return "-"
    return f"{success['rate']:6.1%} ({success['low']:.1%} to {success['high']:.1%})"
