"""The page of a sweep, as Markdown: a table for each measure, and the figures."""

from collections.abc import Callable, Mapping, Sequence
from urllib.parse import quote

from fleet_tools.baselines.experiments.sweeps.summary import Row
from fleet_tools.baselines.experiments.sweeps.sweep import Sweep


def markdown_page(sweep: Sweep, rows: Sequence[Row], stem: str) -> str:
    """Returns the page of a sweep.

    Args:
        sweep: The sweep.
        rows: Its results, see `summary.summarize_arm`.
        stem: File name of the sweep, without its suffix.
    """
    seeds = f"{sweep.seeds} seed{'s' * (sweep.seeds != 1)}"
    url = quote(stem)
    lines = [f"# {stem}", "", f"`{sweep.vary}` varies; {seeds} each ([sweep]({url}.yaml))."]
    for title, entry in _ENTRIES.items():
        arms = (*sweep.arms, *(() if entry in _OF_MERGES else sweep.references))
        entries = {
            (row["arm"], str(row[sweep.vary])): entry(row) for row in rows if row["arm"] in arms
        }
        if not any(entries.values()):
            continue
        lines += ["", f"## {title}", "", _table_row(["", *map(str, sweep.values)])]
        lines.append(_table_row(["---"] * (1 + len(sweep.values))))
        for arm in arms:
            shown = [entries.get((arm, str(value))) or "-" for value in sweep.values]
            lines.append(_table_row([arm, *shown]))
    lines += _task_table(sweep, rows)
    lines += ["", f"![Results by {sweep.vary}]({url}.png)"]
    lines += ["", f"![Results over transferred bytes, round by round]({url}_bytes.png)"]
    return "\n".join(lines) + "\n"


def _task_table(sweep: Sweep, rows: Sequence[Row]) -> list[str]:
    """Returns a table of solved scenes by task; none of a single task.

    The larger number, of tasks or of policies, is listed downwards; rows without counts are left
    out.
    """
    counts = {_policy_name(sweep, row): row.get("tasks") or {} for row in rows}
    tasks = sorted({task for each in counts.values() for task in each})
    if len(tasks) < 2:
        return []
    lines = ["", "## Solved scenes by task", ""]
    policies = [name for name, each in counts.items() if each]
    if len(tasks) <= len(policies):
        head, table = tasks, {name: [counts[name].get(task) for task in tasks] for name in policies}
    else:
        head = policies
        table = {task: [counts[name].get(task) for name in policies] for task in tasks}
    lines += [_table_row(["", *head]), _table_row(["---"] * (1 + len(head)))]
    for title, entries in table.items():
        texts = ["-" if each is None else f"{each[0]} of {each[1]}" for each in entries]
        lines.append(_table_row([title, *texts]))
    return lines


def _policy_name(sweep: Sweep, row: Row) -> str:
    return row["arm"] if len(sweep.values) == 1 else f"{row['arm']}, {row[sweep.vary]}"


def _success(row: Row) -> str | None:
    return _rate(row["success"])


def _fine_tuned(row: Row) -> str | None:
    return _rate(row["fine_tuned"])


def _rate(success: Mapping[str, float] | None) -> str | None:
    if success is None:
        return None
    return f"{success['rate']:.0%} ({success['low']:.0%} to {success['high']:.0%})"


def _loss(row: Row) -> str | None:
    loss = row["loss"]
    if loss is None:
        return None
    return f"{loss['median']:.4f} ({loss['low']:.4f} to {loss['high']:.4f})"


def _moved(row: Row) -> str | None:
    fractions = [point["moved"] for point in row["curve"]]
    ends = [each for each in (fractions[:1] + fractions[-1:]) if each is not None]
    return " then ".join(dict.fromkeys(f"{each:.0%}" for each in ends)) if any(fractions) else None


def _transferred(row: Row) -> str | None:
    if not row["bytes"]:
        return None
    return f"{row['bytes'] / 1e6:.1f} of {row['data_at_home'] / 1e6:.1f}"


_ENTRIES: dict[str, Callable[[Row], str | None]] = {
    "Success rate (95% interval over training runs and scenes)": _success,
    "Success rate after fine-tuning": _fine_tuned,
    "Held-out loss (median, lowest and highest of seeds)": _loss,
    "Units that alignment moved, in the first and the last round": _moved,
    "MB transferred, of MB of the robots' data": _transferred,
}
"""Titles of the tables, and the functions that return their entries."""

_OF_MERGES = (_moved, _transferred)
"""Entries that references, which do not merge, do not have."""


def _table_row(entries: Sequence[str]) -> str:
    return f"| {' | '.join(entries)} |"
