"""Draws the figures of "What we found", and its table: `python docs/images/findings_images.py`.

They are `findings_success.png`, success rates by method, `findings_bytes.png`, the same over the
bytes that all robots together send and receive, and `findings_memory.png`, the same methods with
networks without memory, with memory, and on point clouds. What each shows is in `findings.yaml`.
With `--results DIR` they are of results of experiments in another folder; `--output DIR` writes
elsewhere.
"""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter, PercentFormatter, StrMethodFormatter

from fleet_tools.baselines.experiments.form import Experiment
from fleet_tools.baselines.experiments.result import Row, read_result

HERE = Path(__file__).parent
EXPERIMENTS = HERE.parents[1] / "experiments"
TABLE_OF = "findings_success"
"""Figure whose panels the table has as columns."""
TABLE_FILE = HERE.parent / "results" / "tables" / "findings.md"
SHOWN: dict[str, dict[str, list[str]]] = yaml.safe_load((HERE / "findings.yaml").read_text())
"""Stems of experiments, by the name of the figure, and by the title or legend in it."""

Stored = tuple[Experiment, Mapping[str, Any]]
"""An experiment and its result."""

KINDS = {
    "one network of one robot's size": "C0",
    "the robots' networks together": "C1",
    "control": "0.55",
    "trained on all data": "black",
}
"""Colours by the kind of policy."""

TABLE = {
    "joint": "trained on all data (`joint`)",
    "density_gated_ensemble": "five networks: `density_gated_ensemble`",
    "concatenation": "five networks: `concatenation`",
    "oracle_routing": "five networks: oracle of the task",
    "structured_compression": "one network: `structured_compression`",
    "distillation": "one network: `distillation`",
    "structured_compression_then_fed_sgd": (
        "one network: `structured_compression`, then 100 gradients"
    ),
    "structured_compression_narrow": "one network: `structured_compression` of narrow ones",
    "least_squares": "one network: `least_squares`",
    "fleet_merge": "one network: `fleet_merge`",
    "naive_average": "one network: average",
    "partition": "control: `partition`",
    "untrained_head_refit": "control: untrained, last layer fitted",
    "fed_sgd": "control: 300 gradients (`fed_sgd`)",
    "fed_sgd_100": "control: 100 gradients",
    "best_single": "control: best robot alone",
}
"""Rows of the table, and what figures show: the first cell, by arm or reference."""

_TOGETHER = ("concatenation", "density_gated_ensemble", "oracle_routing")


def main(
    experiments: Path = EXPERIMENTS, folder: Path = HERE, table_file: Path = TABLE_FILE
) -> None:
    """Writes the figures whose experiments have results, and the table.

    Args:
        experiments: Folder of the experiments' results.
        folder: That of the figures.
        table_file: File of the table.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, shown in SHOWN.items():
        files = [experiments / f"{stem}.json" for stems in shown.values() for stem in stems]
        if not all(file.is_file() for file in files):
            continue
        results = read_all(name, experiments)
        panels = {title: of_title[0] for title, of_title in results.items()}
        if name == TABLE_OF:
            table_file.write_text(table(panels), encoding="utf-8")
        with style.context("default"):
            if name == "findings_memory":
                figure = memory_figure(results)
            else:
                figure = (success_figure if name == TABLE_OF else bytes_figure)(panels)
            figure.savefig(folder / f"{name}.png", dpi=150)


def read_all(name: str, experiments: Path = EXPERIMENTS) -> dict[str, list[Stored]]:
    """Returns what a figure shows, by the title or legend in it."""
    return {
        title: [read_result(experiments / f"{stem}.json") for stem in stems]
        for title, stems in SHOWN[name].items()
    }


def table(panels: Mapping[str, Stored] | None = None) -> str:
    """Returns success rates of panels, and what the arms transfer, as Markdown.

    Args:
        panels: The panels; the stored ones if None.
    """
    if panels is None:
        panels = {title: of_title[0] for title, of_title in read_all(TABLE_OF).items()}
    columns = [
        {row["arm"]: row for row in rolled_out(result["rows"])} for _, result in panels.values()
    ]
    titles = [title.removeprefix("Meta-World ") for title in panels]
    lines = [f"| one merge | {' | '.join(titles)} | MB |", "|---" * (len(columns) + 2) + "|"]
    for arm, label in TABLE.items():
        rows = [column[arm] for column in columns]
        rates = " | ".join(f"{row['success']['rate']:.0%}" for row in rows)
        arms = [
            row
            for row, (experiment, _) in zip(rows, panels.values(), strict=True)
            if arm in experiment.arms
        ]
        sent = sorted(row["bytes"] / 1e6 for row in arms)
        span = " to ".join(f"{each:,.{1 if each < 10 else 0}f}" for each in (*sent[:1], *sent[-1:]))
        lines.append(f"| {label} | {rates} | {span} |")
    return "\n".join(lines) + "\n"


def success_figure(results: Mapping[str, Stored]) -> Figure:
    """Returns success rates with their intervals: a panel for each experiment."""
    rows = [row for _, result in results.values() for row in rolled_out(result["rows"])]
    names = list(dict.fromkeys(row["arm"] for row in rows))
    names.sort(key=lambda name: list(KINDS).index(kind_of(name, results)))
    figure = Figure((2.4 + 2.3 * len(results), 1.4 + 0.24 * len(names)), layout="constrained")
    panels = figure.subplots(1, len(results), squeeze=False, sharey=True)[0]
    for (title, (_, result)), axes in zip(results.items(), panels, strict=True):
        for row in rolled_out(result["rows"]):
            rate = row["success"]
            errors = [[rate["rate"] - rate["low"]], [rate["high"] - rate["rate"]]]
            color = KINDS[kind_of(row["arm"], results)]
            position = names.index(row["arm"])
            axes.errorbar(
                rate["rate"], position, xerr=errors, fmt="o", color=color, capsize=3, markersize=4
            )
            if row["arm"] == "joint":
                axes.axvline(rate["rate"], color="black", linewidth=0.8, linestyle=":")
        axes.set_title(title, fontsize="medium")
        axes.set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xlim(-0.03, 1.03)
        axes.xaxis.set_major_formatter(PercentFormatter(1.0))
        axes.set_xlabel("success rate")
        axes.grid(alpha=0.3)
    add_legend(figure)
    return figure


def bytes_figure(results: Mapping[str, Stored]) -> Figure:
    """Returns success rates over the megabytes of a merge; the dotted line is the robots' data."""
    figure = Figure((10.5, 8.4), layout="constrained")
    panels = figure.subplots(2, (len(results) + 1) // 2, squeeze=False, sharey=True).flat
    for (title, (experiment, result)), axes in zip(results.items(), panels, strict=True):
        rows = [row for row in rolled_out(result["rows"]) if row["arm"] in experiment.arms]
        for row in rows:
            position = (row["bytes"] / 1e6, row["success"]["rate"])
            axes.plot(*position, "o", color=KINDS[kind_of(row["arm"], results)], markersize=5)
        label_points(axes, [(r["arm"], r["bytes"] / 1e6, r["success"]["rate"]) for r in rows])
        for row in rows[:1]:
            axes.axvline(row["data_at_home"] / 1e6, color="black", linestyle=":", linewidth=1)
        for row in rolled_out(result["rows"]):
            if row["arm"] == "joint":
                axes.axhline(row["success"]["rate"], color="black", linewidth=0.8)
        axes.set_title(title, fontsize="medium")
        axes.set_xscale("log")
        axes.set_xlim(0.05, 2e4)
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_ylim(-0.05, 1.05)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.set_xlabel("transferred MB")
        axes.grid(alpha=0.3)
        axes.label_outer()
    add_legend(figure, columns=2)
    return figure


def memory_figure(results: Mapping[str, Sequence[Stored]]) -> Figure:
    """Returns success rates of the same methods by what policies read and are: a panel by arena."""
    names = (
        "least_squares",
        "partition",
        "structured_compression",
        "distillation",
        "concatenation",
        "density_gated_ensemble",
        "joint",
    )
    figure = Figure((11.0, 3.4), layout="constrained")
    arenas = ("Fleet-Tools", "Meta-World MT10")
    panels = figure.subplots(1, len(arenas), sharey=True, squeeze=False)[0]
    handles = []
    for number, (inputs, by_arena) in enumerate(results.items()):
        color = f"C{number}"
        handles.append(Line2D([], [], color=color, marker="o", label=inputs))
        for (_, result), axes in zip(by_arena, panels, strict=False):
            rows = {row["arm"]: row["success"] for row in reversed(rolled_out(result["rows"]))}
            for place, name in enumerate(names):
                if rate := rows.get(name):
                    errors = [[rate["rate"] - rate["low"]], [rate["high"] - rate["rate"]]]
                    place += 0.2 * (number - (len(results) - 1) / 2)
                    axes.errorbar(
                        place, rate["rate"], yerr=errors, fmt="o", color=color, markersize=5
                    )
    for title, axes in zip(arenas, panels, strict=True):
        axes.set_title(title, fontsize="medium")
        axes.set_xticks(
            range(len(names)), [name.replace("_", "\n") for name in names], fontsize="x-small"
        )
        axes.set_ylim(-0.03, 1.03)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("success rate")
    figure.legend(handles=handles, loc="outside lower center", ncols=len(results), frameon=False)
    return figure


def label_points(axes: Axes, points: Iterable[tuple[str, float, float]]) -> None:
    """Writes names beside points; where several lie at one place, further down with a line."""
    taken: list[tuple[float, float]] = []
    for name, x, y in sorted(points, key=lambda each: -each[2]):
        place = y
        while any(abs(place - other) < 0.055 and x / 6 < at < x * 6 for at, other in taken):
            place -= 0.055
        taken.append((x, place))
        axes.annotate(
            name.replace("_", " "),
            (x, y),
            (1.2 * x, place),
            verticalalignment="center",
            fontsize=6.5,
            arrowprops={"arrowstyle": "-", "linewidth": 0.5, "color": "0.5", "shrinkA": 0},
        )


def rolled_out(rows: Sequence[Row]) -> list[Row]:
    """Returns the rows of what the table lists, with success rates."""
    return [row for row in rows if row.get("success") and row["arm"] in TABLE]


def kind_of(arm: str, results: Mapping[str, Stored]) -> str:
    """Returns the kind of an arm or reference, of `KINDS`."""
    if arm == "joint":
        return "trained on all data"
    if arm in _TOGETHER:
        return "the robots' networks together"
    if any(arm in each.controls or arm in each.references for each, _ in results.values()):
        return "control"
    return "one network of one robot's size"


def add_legend(figure: Figure, columns: int = 4) -> None:
    """Adds what colours mean."""
    marks = [Line2D([], [], color=color, marker="o", linestyle="") for color in KINDS.values()]
    figure.legend(marks, list(KINDS), loc="outside lower center", ncols=columns, frameon=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Draws the figures of What we found.")
    parser.add_argument("--results", type=Path, default=EXPERIMENTS)
    parser.add_argument("--output", type=Path, default=HERE)
    given = parser.parse_args()
    elsewhere = given.output != HERE
    main(given.results, given.output, given.output / "findings.md" if elsewhere else TABLE_FILE)
