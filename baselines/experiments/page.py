"""The page of an experiment, as Markdown: a table for each measure, and the figures."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fleet_tools.baselines.experiments.figures import save_figures
from fleet_tools.baselines.experiments.form import Experiment
from fleet_tools.baselines.experiments.life import MEASURES, OF_MERGES, TOLD, success_by_month
from fleet_tools.baselines.experiments.result import Row
from fleet_tools.baselines.experiments.success import places_of, with_comparisons
from fleet_tools.storage.atomic_files import write_file

Entry = Callable[[Row], str | None]
"""Returns the entry of a row in a table; None if it has none."""


@dataclass(frozen=True)
class Table:
    """A table of a page.

    Attributes:
        title: Its heading.
        entry: Its entries.
        of_merges: Whether references, which do not merge, are left out.
    """

    title: str
    entry: Entry
    of_merges: bool = False


def write_page(experiment: Experiment, result: Mapping[str, Any], folder: Path, stem: str) -> None:
    """Writes the page and the figures of a result.

    Args:
        experiment: The experiment.
        result: Its result, see `result.make_result`.
        folder: Folder of the files.
        stem: Name of the experiment, and of its files without their suffixes.
    """
    names = save_figures(experiment, result, folder, stem)
    write_file(folder / f"{stem}.md", markdown_page(experiment, result, stem, names))


def markdown_page(
    experiment: Experiment, result: Mapping[str, Any], stem: str, figures: Sequence[str]
) -> str:
    """Returns the page of a result.

    Args:
        experiment: The experiment.
        result: Its result.
        stem: Name of the experiment.
        figures: File names of its figures.
    """
    url, rows = quote(stem), with_comparisons(experiment, result["rows"], result["cells"])
    seeds = f"{experiment.seeds} seed{'s' * (experiment.seeds != 1)}"
    varies = f"`{experiment.vary}` varies; " if experiment.vary else ""
    about = f"{experiment.about} " * bool(experiment.about)
    lines = [f"# {stem}", "", f"{about}{varies}{seeds} each ([experiment]({url}.yaml))."]
    for table in tables_of(experiment, rows):
        lines += ["", f"## {table.title}", "", *_lines(experiment, rows, table)]
    places = ["", *places_of(task for row in rows for task in row.get("tasks") or ())]
    for other, place in itertools.product(experiment.against, places):
        lines += _comparison(experiment, rows, other, place)
    lines += _task_table(experiment, rows)
    if experiment.life is not None:
        lines += _months(experiment, result["cells"])
    lines += _failures(result)
    for name in figures:
        lines += ["", _figure(quote(name), f"Results of {stem}")]
    return "\n".join(lines) + "\n"


def _figure(path: str, text: str) -> str:
    """Returns a figure; of an animation, readers who prefer reduced motion see the last frame."""
    still = path.replace(".webp", ".png")
    if path == still:
        return f"![{text}]({path})"
    reduced = f'media="(prefers-reduced-motion: reduce)" srcset="{still}"'
    return f'<picture><source {reduced}><img src="{path}" alt="{text}"></picture>'


def _lines(experiment: Experiment, rows: Sequence[Row], table: Table) -> list[str]:
    arms = experiment.arms if table.of_merges else experiment.compared
    return _grid(experiment, arms, rows, table.entry, table.title.startswith("Barrier"))


def _grid(
    experiment: Experiment,
    arms: Iterable[str],
    rows: Sequence[Row],
    entry: Entry,
    without_empty: bool = False,
) -> list[str]:
    """Returns a table with a column for each value."""
    columns = [(value, value, entry) for value in experiment.cases]
    return grid(columns, {arm: arm for arm in arms}, rows, without_empty)


def grid(
    columns: Sequence[tuple[str, str, Entry]],
    arms: Mapping[str, str],
    rows: Sequence[Row],
    without_empty: bool = False,
) -> list[str]:
    """Returns a table with a line for each arm.

    Args:
        columns: Heading, value and entry of each.
        arms: Titles of arms and references by name.
        rows: Rows of a result.
        without_empty: Whether lines without entries are left out.
    """
    found = {(row["arm"], row["value"]): row for row in rows}
    lines = [_table_row(["", *(each for each, *_ in columns)])]
    lines.append(_table_row(["---"] * (1 + len(columns))))
    for arm, title in arms.items():
        shown = [
            entry(found[arm, value]) if (arm, value) in found else None
            for _, value, entry in columns
        ]
        if any(shown) or not without_empty:
            lines.append(_table_row([title, *(each or "-" for each in shown)]))
    return lines


def tables_of(experiment: Experiment, rows: Sequence[Row]) -> list[Table]:
    """Returns the tables of all measures on the page."""
    measured = dict.fromkeys(name for row in rows for name in row if name not in _NO_MEASURES)
    known = [name for name in TABLES if name in measured or name == "moved"]
    others = [name for name in measured if name not in TABLES]
    found = []
    for name in [*known, *others] if experiment.measures is None else experiment.measures:
        table = table_of(name)
        arms = experiment.arms if table.of_merges else experiment.compared
        if any(table.entry(row) for row in rows if row["arm"] in arms):
            found.append(table)
    return found


def table_of(measure: str) -> Table:
    """Returns the table of a measure."""
    return TABLES.get(measure) or Table(
        f"{measure.capitalize()}{_OVER_SEEDS}", _numbers(measure, ".4g")
    )


def _comparison(experiment: Experiment, rows: Sequence[Row], other: str, place: str) -> list[str]:
    """Returns the table of differences to an arm or a reference, everywhere or in a place."""

    def entry(row: Row) -> str | None:
        if (found := row["against"].get(f"{other}{place}")) is None:
            return None
        seeds = f", {found['seeds']} seed{'s' * (found['seeds'] != 1)}"
        seeds *= found["seeds"] != experiment.seeds
        return f"{_difference(found)}, p {_p_value(found['p'])}{seeds}: {found['verdict']}"

    margin = experiment.against[other]
    tuned = " after fine-tuning" * any(row.get("fine_tuned") for row in rows)
    lines = [
        "",
        f"## Difference of success rates{tuned} to {other}{place}, in points (95% interval, "
        "p-value, verdict)",
        "",
        f"Each less {other}, paired by seed and scene; several policies of a seed count by their "
        f"mean.{'' if margin is None else _EQUIVALENT.format(100 * margin)}",
    ]
    shown = [row for row in rows if row["arm"] != other]
    if not any(entry(row) for row in shown):
        return [*lines, "", "No runs of both in the same scenes are in the result."]
    arms = [name for name in experiment.compared if name != other]
    return [*lines, "", *_grid(experiment, arms, shown, entry)]


def _difference(found: Mapping[str, float]) -> str:
    middle, low, high = (_points(found[name]) for name in ("difference", "low", "high"))
    return f"{middle} ({low} to {high})"


def _points(rate: float) -> str:
    return f"{round(100 * rate, 1) + 0.0:.1f}"  # no -0.0


def _p_value(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"= {p:.2g}"


def _task_table(experiment: Experiment, rows: Sequence[Row]) -> list[str]:
    """Returns a table of solved scenes by task; none of a single task.

    Rows are the tasks or the policies, by the larger number; rows without counts are left out.
    """
    counts = {experiment.title(row["arm"], row["value"]): row.get("tasks") or {} for row in rows}
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


def _months(experiment: Experiment, cells: Sequence[Row]) -> list[str]:
    """Returns a table of success rates by month and task for each arm, the means of its seeds."""
    lines: list[str] = []
    for (arm, value), months in success_by_month(experiment, cells).items():
        lines += ["", f"## Success by month: {experiment.title(arm, value)}", ""]
        lines += [_table_row(["month", *months[0]]), _table_row(["---"] * (1 + len(months[0])))]
        for number, rates in enumerate(months, 1):
            lines.append(_table_row([str(number), *(f"{rate:.0%}" for rate in rates.values())]))
    return lines


def _failures(result: Mapping[str, Any]) -> list[str]:
    if not result["failed"]:
        return []
    lines = [
        f"- {each['arm']}, {each['value']}, seed {each['seed']}: {each['why']}"
        for each in result["failed"]
    ]
    return ["", "## Failed", "", *lines]


def _rate(name: str, form: str = ".0%") -> Entry:
    def entry(row: Row) -> str | None:
        if (found := row.get(name)) is None:
            return None
        rate, low, high = (format(found[key], form) for key in ("rate", "low", "high"))
        return f"{rate} ({low} to {high})"

    return entry


def _backward(row: Row) -> str | None:
    found = row.get("backward")
    return None if found is None else _difference(found)


def _numbers(name: str, form: str) -> Entry:
    """Returns entries of a median, with the lowest and the highest if these differ from it."""

    def entry(row: Row) -> str | None:
        if (numbers := row.get(name)) is None or not isinstance(numbers, Mapping):
            return None
        middle, low, high = (
            "inf" if numbers[key] is None else format(numbers[key], form)
            for key in ("median", "low", "high")
        )
        return (
            f"{middle} ({low} to {high})" if max(row["seeds"], row.get("pairs", 0)) > 1 else middle
        )

    return entry


def _moved(row: Row) -> str | None:
    fractions = [point["moved"] for point in row.get("curve", [])]
    ends = [each for each in (fractions[:1] + fractions[-1:]) if each is not None]
    return " then ".join(dict.fromkeys(f"{each:.0%}" for each in ends)) if any(fractions) else None


def _of_one_robot(row: Row) -> str | None:
    if row.get("uploaded") is None:
        return None
    refused = "" if "curve" in row else " (refused)"
    return f"{row['uploaded'] / 1e3:.1f}, {row['downloaded'] / 1e3:.1f}{refused}"


def _transferred(row: Row) -> str | None:
    if not row.get("bytes"):
        return None
    return f"{row['bytes'] / 1e6:.1f} of {row['data_at_home'] / 1e6:.1f}"


_EQUIVALENT = " Equivalent: the interval lies within ±{:g} points."

_OVER_SEEDS = " (median, lowest and highest of seeds)"
_OVER_PAIRS = " (median, lowest and highest of pairs)"

TABLES: dict[str, Table] = {
    "success": Table("Success rate (95% interval over training runs and scenes)", _rate("success")),
    "fine_tuned": Table("Success rate after fine-tuning", _rate("fine_tuned")),
    "retained": Table("Success rate in the tasks of the backbone", _rate("retained")),
    "loss": Table(f"Held-out loss{_OVER_SEEDS}", _numbers("loss", ".4f")),
    "moved": Table(
        "Units that alignment moved, in the first and the last round", _moved, of_merges=True
    ),
    "bytes": Table("MB transferred, of MB of the robots' data", _transferred, of_merges=True),
    "uploaded": Table(
        "kB that one robot uploads at most, and downloads; refused if more than allowed",
        _of_one_robot,
        of_merges=True,
    ),
    "barrier": Table(f"Barrier of the loss{_OVER_PAIRS}", _numbers("barrier", ".3g")),
    "success_barrier": Table(
        f"Barrier of the success rate{_OVER_PAIRS}", _numbers("success_barrier", ".1%")
    ),
    "accuracy": Table(f"Test accuracy{_OVER_SEEDS}", _numbers("accuracy", ".3g")),
    "of_norms": Table(
        "Difference of parameters' norms, relative (over pairs and parameters)",
        _numbers("of_norms", ".1%"),
    ),
    "of_difference": Table(
        "Norm of parameters' difference, relative (over pairs and parameters)",
        _numbers("of_difference", ".1%"),
    ),
    "backward": Table(
        "Backward transfer: success at the end less that after the first month, in points (95% "
        "interval)",
        _backward,
    ),
    "forward": Table(
        "Forward transfer: success of a new robot's tasks before it trains", _rate("forward")
    ),
    **{name: Table(title, _rate(name, ".3f")) for name, title in TOLD.items()},
    **{
        name: Table(f"{title}{_OVER_SEEDS}", _numbers(name, form), name in OF_MERGES)
        for name, (title, form) in MEASURES.items()
    },
}
"""Tables by measure; others have tables of plain numbers."""

_NO_MEASURES = (
    "arm", "value", "seeds", "tasks", "curve", "data_at_home", "downloaded", "pairs", "seconds",
    "against",
)  # fmt: skip


def _table_row(entries: Sequence[str]) -> str:
    return f"| {' | '.join(entries)} |"
