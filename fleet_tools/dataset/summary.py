"""What a data set amounts to: counts, rates, and why attempts failed."""

from pathlib import Path
from typing import Any

from fleet_tools.dataset.header import Header
from fleet_tools.dataset.reader import Record
from fleet_tools.statistics import wilson_interval


def summarize(folder: Path, header: Header, records: list[Record]) -> dict[str, Any]:
    """Returns the summary as plain JSON data."""
    successes = sum(record.success for record in records)
    return {
        "task": header.task.name,
        "seed": header.seed,
        "attempts": len(records),
        "successes": successes,
        "success_rate": successes / len(records) if records else None,
        "success_rate_interval_95": wilson_interval(successes, len(records)),
        "causes": _causes(records),
        "stored_episodes": sum(record.file is not None for record in records),
        "stored_steps": sum(record.steps for record in records if record.file is not None),
        "bytes": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
        "output": str(folder),
    }


def as_text(summary: dict[str, Any]) -> str:
    """Returns the summary for people."""
    lines = [
        f"{summary['task']}: {summary['stored_episodes']} episodes, {summary['stored_steps']} "
        f"steps, {summary['bytes'] / 1e6:.2f} MB in {summary['output']}"
    ]
    if summary["attempts"]:
        low, high = summary["success_rate_interval_95"]
        lines.append(
            f"  {summary['successes']} of {summary['attempts']} attempts succeeded: "
            f"{summary['success_rate']:.1%} (95% interval {low:.1%} to {high:.1%})"
        )
    for outcome, cause in summary["causes"].items():
        lines.append(f"  {cause['count']} ended as {outcome}, such as {cause['example']}")
    return "\n".join(lines)


def _causes(records: list[Record]) -> dict[str, dict[str, Any]]:
    """Counts failed attempts by outcome, each with the first one as example."""
    causes: dict[str, dict[str, Any]] = {}
    for record in records:
        if not record.success:
            error = f": {record.error}" if record.error else ""
            example = f"attempt {record.attempt} (seed {record.seed}){error}"
            causes.setdefault(record.outcome, {"count": 0, "example": example})["count"] += 1
    return causes
