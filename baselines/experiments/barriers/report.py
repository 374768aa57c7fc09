"""What lines between policies say: curves, their barriers, and these over all pairs of a set."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fleet_tools.baselines.experiments.barriers.lines import Job, Lines
from fleet_tools.baselines.experiments.barriers.trained import Trained
from fleet_tools.baselines.merging.barrier import Barrier, lambdas_of
from fleet_tools.dataset import Dataset
from fleet_tools.utils.statistics import spread

Came = Mapping[Job, Mapping[str, Any]]
"""Of jobs, as `measuring.measuring` has it."""


def report_of(fleets: Sequence[Trained], lines: Lines, came: Came) -> dict[str, Any]:
    """Returns the content of `barriers.json`.

    Returns:
        "sets": of fleets with the same data, the "title", "data" and "tasks", and who the "fleets"
        are. "curves": for each pair of a fleet's "robots" and each "method", "loss" and "success"
        (None where nothing was tried), with "lambdas" and "values" and the barrier's "height",
        which is "at" a lambda; success is the mean over tasks, and "by_task" each one's. "moved" is
        the share of units that alignment moved.
        "summary": for each set and method, of the heights over "pairs" the "median", the "low" and
        the "high". "failed": which "robots" came to no result, and "why".
    """
    sets = _sets(fleets)
    titles = {folder: each["title"] for each in sets for folder in each["fleets"]}
    curves, failed = [], []
    for job, result in came.items():
        fleet = fleets[job.fleet]
        whose = {"fleet": str(fleet.folder), "robots": list(job.robots), "method": job.method}
        ends = [came.get(Job(job.fleet, (robot,)), {}) for robot in job.robots]
        if "failed" in result:
            failed.append({**whose, "why": result["failed"]})
        elif job.method is not None and not any("failed" in end for end in ends):
            loss = Barrier.of_losses(lambdas_of(lines.points), result["loss"])
            success = None
            if lines.rollouts:
                tried = [ends[0], *result["rollouts"], ends[1]]
                success = _success(lambdas_of(lines.rollout_points), tried)
            title = titles[str(fleet.folder)]
            curve = {"set": title, **whose, "moved": result["moved"]}
            curves.append({**curve, "loss": asdict(loss), "success": success})
    summary = []
    for each in sets:
        for method in lines.methods:
            chosen = [c for c in curves if (c["set"], c["method"]) == (each["title"], method)]
            tried = [c["success"]["height"] for c in chosen if c["success"]]
            summary.append(
                {
                    "set": each["title"],
                    "method": method,
                    "pairs": len(chosen),
                    "loss": spread([c["loss"]["height"] for c in chosen]),
                    "success": spread(tried),
                }
            )
    settings = lines.model_dump(mode="json")
    return {**settings, "sets": sets, "summary": summary, "curves": curves, "failed": failed}


def as_text(report: Mapping[str, Any]) -> str:
    """Returns the summary as a table, and what failed."""
    lines = [f"{'':24}{'':24}{'pairs':>6}   {'loss barrier':32}success barrier"]
    for each in report["summary"]:
        loss, success = _said(each["loss"], ".3g"), _said(each["success"], ".1%")
        lines.append(
            f"{each['set']:24}{each['method']:24}{each['pairs']:>6}   {loss:32}{success}".rstrip()
        )
    lines.append("Medians over pairs, with the lowest and the highest.")
    for each in report["failed"]:
        who = " and ".join(map(str, each["robots"]))
        how = f" by {each['method']}" if each["method"] else ""
        lines.append(f"{each['fleet']}, robots {who}{how}, came to no result: {each['why']}")
    return "\n".join(lines)


def _sets(fleets: Sequence[Trained]) -> list[dict[str, Any]]:
    """Fleets of the same data together, named by tasks, and by folders where that does not do."""
    sets: dict[tuple[str, ...], dict[str, Any]] = {}
    for fleet in fleets:
        data = fleet.plan.config.data
        if data not in sets:
            tasks = sorted({Dataset(folder).header.task.name for folder in data})
            sets[data] = {"title": " + ".join(tasks), "data": list(data), "tasks": tasks}
            sets[data]["fleets"] = []
        sets[data]["fleets"].append(str(fleet.folder))
    titles = [each["title"] for each in sets.values()]
    for each in sets.values():
        if titles.count(each["title"]) > 1:
            each["title"] += f" ({' + '.join(each['data'])})"
    return list(sets.values())


def _success(lambdas: Sequence[float], tried: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    by_task = {
        task: [each[task]["successes"] / each[task]["episodes"] for each in tried]
        for task in tried[0]
    }
    means = [sum(shares) / len(shares) for shares in zip(*by_task.values(), strict=True)]
    return {**asdict(Barrier.of_performances(lambdas, means)), "by_task": by_task}


def _said(heights: Mapping[str, float] | None, form: str) -> str:
    if heights is None:
        return "-"
    middle, low, high = (format(heights[name], form) for name in ("median", "low", "high"))
    return f"{middle} ({low} to {high})"
