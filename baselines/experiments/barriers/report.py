"""The report on lines between policies: curves, barriers, and their summary over pairs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fleet_tools.baselines.experiments.barriers.line_config import LineConfig
from fleet_tools.baselines.experiments.barriers.line_measurement import (
    Job,
    LineJob,
    LineMeasurement,
    Measurement,
    RobotJob,
    RobotMeasurement,
    Rollouts,
)
from fleet_tools.baselines.experiments.barriers.trained_fleet import TrainedFleet
from fleet_tools.baselines.experiments.job_runner import FailedJob
from fleet_tools.baselines.merging.barrier import Barrier, lambdas_of
from fleet_tools.dataset import Dataset
from fleet_tools.utils.statistics import spread

Results = Mapping[Job, Measurement | FailedJob]


def make_report(
    fleets: Sequence[TrainedFleet], config: LineConfig, results: Results
) -> dict[str, Any]:
    """Returns the content of `barriers.json`.

    Args:
        fleets: The fleets.
        config: Configuration of the lines.
        results: Result of each job.

    Returns:
        Besides the configuration: In "sets", fleets with the same datasets, with a "title", "data",
        "tasks" and "fleets". In "curves", for each pair of "robots" and "method", the "loss" and
        the "success" rate (None without rollouts), each with "lambdas", "values", and the "height"
        of the barrier "at" a lambda; the success rate is the mean over tasks, and "by_task" has
        that of each; "moved" is the fraction of units that alignment moved, and "norms" how much
        the aligned policies differ, by parameter (see `NormRatio`). In "summary", for each set and
        method the "median", "low" and "high" of the heights of all "pairs", and of both norm ratios
        of all parameters and pairs. In "failed", the "robots" and "method" that failed, and "why".
    """
    sets = _sets(fleets)
    titles = {folder: each["title"] for each in sets for folder in each["fleets"]}
    curves: list[dict[str, Any]] = []
    failed: list[dict[str, Any]] = []
    for job, result in results.items():
        folder = str(fleets[job.fleet].folder)
        if isinstance(result, FailedJob):
            failed.append({"fleet": folder, **_names(job), "why": result.reason})
        elif isinstance(job, LineJob) and isinstance(result, LineMeasurement):
            ends = [results.get(RobotJob(job.fleet, robot)) for robot in job.robots]
            if not any(isinstance(end, FailedJob) for end in ends):
                rollouts = [end.rollouts for end in ends if isinstance(end, RobotMeasurement)]
                common = {"set": titles[folder], "fleet": folder, **_names(job)}
                curves.append({**common, **_curve(config, result, rollouts)})
    return {
        **config.settings(),
        "sets": sets,
        "summary": _summary(sets, config, curves),
        "curves": curves,
        "failed": failed,
    }


def as_text(report: Mapping[str, Any]) -> str:
    """Returns the summary of a report as a table, and the lines that failed."""
    columns = [("loss barrier", "loss", ".3g"), ("success barrier", "success", ".1%")]
    lines = _table(report["summary"], columns)
    columns = [("norms differ by", "of_norms", ".1%"), ("weights by", "of_difference", ".1%")]
    lines += ["", *_table(report["summary"], columns), ""]
    lines.append(
        "Medians over pairs (norms, weights: and parameters), with the lowest and the highest."
    )
    for each in report["failed"]:
        robots = " and ".join(map(str, each["robots"]))
        method = f" by {each['method']}" if each["method"] else ""
        lines.append(f"{each['fleet']}, robots {robots}{method}, failed: {each['why']}")
    return "\n".join(lines)


def _table(
    summary: Sequence[Mapping[str, Any]], columns: Sequence[tuple[str, str, str]]
) -> list[str]:
    """Returns the lines of a table, whose columns have a title, a quantity and a format."""
    rows = [("", "", "pairs", [title for title, _, _ in columns])]
    for each in summary:
        texts = [_spread_text(each[quantity], form) for _, quantity, form in columns]
        rows.append((each["set"], each["method"], str(each["pairs"]), texts))
    return [
        f"{title:24}{method:24}{pairs:>6}   {''.join(f'{text:32}' for text in texts)}".rstrip()
        for title, method, pairs, texts in rows
    ]


def _names(job: Job) -> dict[str, Any]:
    if isinstance(job, RobotJob):
        return {"robots": [job.robot], "method": None}
    return {"robots": list(job.robots), "method": job.method}


def _curve(config: LineConfig, line: LineMeasurement, ends: Sequence[Rollouts]) -> dict[str, Any]:
    loss = Barrier.of_losses(lambdas_of(config.points), line.losses)
    success = None
    if config.rollouts:
        first, last = ends
        lambdas = lambdas_of(config.rollout_points).tolist()
        success = _success_curve(lambdas, [first, *line.rollouts, last])
    norms = {name: asdict(ratio) for name, ratio in line.norm_ratios.items()}
    return {
        "moved": line.moved_fraction,
        "norms": norms,
        "loss": asdict(loss),
        "success": success,
    }


def _summary(
    sets: Sequence[Mapping[str, Any]], config: LineConfig, curves: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    summary = []
    for each in sets:
        for method in config.methods:
            chosen = [c for c in curves if (c["set"], c["method"]) == (each["title"], method)]
            ratios = [ratio for c in chosen for ratio in c["norms"].values()]
            summary.append(
                {
                    "set": each["title"],
                    "method": method,
                    "pairs": len(chosen),
                    "loss": spread([c["loss"]["height"] for c in chosen]),
                    "success": spread([c["success"]["height"] for c in chosen if c["success"]]),
                    "of_norms": spread([ratio["of_norms"] for ratio in ratios]),
                    "of_difference": spread([ratio["of_difference"] for ratio in ratios]),
                }
            )
    return summary


def _sets(fleets: Sequence[TrainedFleet]) -> list[dict[str, Any]]:
    """Groups fleets with the same datasets and the same kind of policy.

    Titles are tasks; kinds of policies and folders are added where these differ among equal tasks.
    """
    sets: dict[tuple[tuple[str, ...], str], dict[str, Any]] = {}
    for fleet in fleets:
        data, body = fleet.plan.config.data, fleet.plan.config.policy.body.type
        if (data, body) not in sets:
            tasks = sorted({Dataset(folder).header.task.name for folder in data})
            sets[data, body] = {"title": "", "data": list(data), "tasks": tasks, "fleets": []}
        sets[data, body]["fleets"].append(str(fleet.folder))
    for (data, body), each in sets.items():
        equal = [key for key, other in sets.items() if other["tasks"] == each["tasks"]]
        bodies = [body] if len({other for _, other in equal}) > 1 else []
        folders = [" + ".join(data)] if len({other for other, _ in equal}) > 1 else []
        details = f" ({', '.join(bodies + folders)})" if bodies or folders else ""
        each["title"] = " + ".join(each["tasks"]) + details
    return list(sets.values())


def _success_curve(lambdas: Sequence[float], rollouts: Sequence[Rollouts]) -> dict[str, Any]:
    by_task = {
        task: [each[task]["successes"] / each[task]["episodes"] for each in rollouts]
        for task in rollouts[0]
    }
    means = [sum(rates) / len(rates) for rates in zip(*by_task.values(), strict=True)]
    return {**asdict(Barrier.of_performances(lambdas, means)), "by_task": by_task}


def _spread_text(heights: Mapping[str, float] | None, form: str) -> str:
    if heights is None:
        return "-"
    middle, low, high = (format(heights[name], form) for name in ("median", "low", "high"))
    return f"{middle} ({low} to {high})"
