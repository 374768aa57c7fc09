"""The summary of a dataset: counts, rates, and reasons of failed attempts."""

import statistics
from collections import Counter
from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import Any

from fleet_tools.dataset.header import Header
from fleet_tools.dataset.stored_episode import AttemptRecord
from fleet_tools.rollouts.episode import Labels
from fleet_tools.rollouts.rollout import cause_lines, failure_causes
from fleet_tools.utils.statistics import wilson_interval

_LISTED = 8
"""Number of tools and objects that the text names."""


def summarize(folder: Path, header: Header, records: list[AttemptRecord]) -> dict[str, Any]:
    """Returns the summary as plain JSON data."""
    successes = sum(record.success for record in records)
    stored = [record for record in records if record.file is not None]
    return {
        "task": header.task.name,
        "seed": header.seed,
        "attempts": len(records),
        "successes": successes,
        "success_rate": successes / len(records) if records else None,
        "success_rate_interval_95": wilson_interval(successes, len(records)),
        "causes": failure_causes(
            records, lambda record: f"attempt {record.attempt} (seed {record.seed})"
        ),
        "stored_episodes": len(stored),
        "stored_steps": sum(record.steps for record in stored),
        "stored_steps_to_imitate": sum(_steps_to_imitate(record) for record in stored),
        "episode_steps": _lengths(stored),
        "tools": _counts(record.tool for record in stored if record.tool is not None),
        "objects": _counts(record.object for record in stored if record.object is not None),
        "mean_attempt_seconds": round(statistics.fmean(record.seconds for record in records), 3)
        if records
        else None,
        "bytes": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
        "output": str(folder),
        "order_dependence": header.order_dependence,
    }


def as_text(summary: dict[str, Any]) -> str:
    """Returns the summary as text."""
    not_imitated = summary["stored_steps"] - summary["stored_steps_to_imitate"]
    aside = f" ({not_imitated} not to be imitated)" if not_imitated else ""
    lines = [
        f"{summary['task']}: {summary['stored_episodes']} episodes, {summary['stored_steps']} "
        f"steps{aside}, "
        f"{summary['bytes'] / 1e6:.2f} MB in {summary['output']}"
    ]
    if summary["attempts"]:
        low, high = summary["success_rate_interval_95"]
        lines.append(
            f"  {summary['successes']} of {summary['attempts']} attempts succeeded: "
            f"{summary['success_rate']:.1%} (95% interval {low:.1%} to {high:.1%})"
        )
        lines[-1] += f", {summary['mean_attempt_seconds']:.2f} s an attempt"
    if (steps := summary["episode_steps"]) is not None:
        lines.append(
            f"  {steps['mean']:.1f} steps an episode (median {steps['median']:g}, longest "
            f"{steps['longest']})"
        )
    for kind in ("tools", "objects"):
        if summary[kind]:
            lines.append(f"  {kind}: {_listing(summary[kind])}")
    return "\n".join([*lines, *cause_lines(summary["causes"])])


def short_name(model: str | None) -> str:
    """Returns the name of a tool or object, which may be given by its path."""
    return "unknown" if model is None else PurePath(model).name


def _lengths(records: list[AttemptRecord]) -> dict[str, float] | None:
    steps = [record.steps for record in records]
    if not steps:
        return None
    mean, median = round(statistics.fmean(steps), 3), statistics.median(steps)
    return {"mean": mean, "median": median, "longest": max(steps)}


def _steps_to_imitate(record: AttemptRecord) -> int:
    labels = Labels.of(record.info, record.steps)
    return record.steps - len(labels.noise_steps)


def _counts(names: Iterable[str]) -> dict[str, int]:
    """Counts names, the most frequent first."""
    return dict(sorted(Counter(names).items(), key=lambda item: (-item[1], item[0])))


def _listing(counts: dict[str, int]) -> str:
    parts = [f"{short_name(name)} {count}" for name, count in counts.items()]
    rest = len(parts) - _LISTED
    return ", ".join(parts[:_LISTED]) + (f" and {rest} more" if rest > 0 else "")
