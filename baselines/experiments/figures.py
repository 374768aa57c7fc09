"""The figures of an experiment: a line for each arm, dashed for arms that do not merge."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import style
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import (
    LogLocator,
    NullFormatter,
    PercentFormatter,
    StrMethodFormatter,
)

from fleet_tools.baselines.experiments.form import Experiment
from fleet_tools.baselines.experiments.life import MEASURES, TOLD
from fleet_tools.baselines.experiments.life_figure import save_life
from fleet_tools.baselines.experiments.result import Row
from fleet_tools.storage.atomic_files import atomic_write

LABELS = {
    "loss": "held-out loss",
    "success": "success rate",
    "fine_tuned": "after fine-tuning",
    "retained": "in the backbone's tasks",
    "accuracy": "test accuracy",
}
"""Labels of axes, by measure; other measures show their names."""

_RATES = ("success", "fine_tuned", "retained", "accuracy")

_OFFSET = 0.04
"""Horizontal distance of the arms' points at one value, so that their intervals do not overlap."""

_MARKERS = "osD^"
"""Markers of the first ten arms, of the next ten, and so on."""

_NOT_DRAWN = (
    "bytes", "uploaded", "moved", "barrier", "seconds", "single", "against", "backward", "forward",
    *MEASURES, *TOLD,
)  # fmt: skip

_LETTERS = 45
"""Number of letters of all labels that fit side by side below a panel."""


def save_figures(
    experiment: Experiment, result: Mapping[str, Any], folder: Path, stem: str
) -> list[str]:
    """Draws the figures of a result, and returns the names of the files.

    Lines have a row of panels for each measure, and a column for each value. Otherwise there are
    figures of the measures by value, or by arm where values are words, and of success rates or
    losses over transferred bytes. Instead of the last, a life has an animation by month, see
    `life_figure`.

    Args:
        experiment: The experiment.
        result: Its result, see `result.make_result`.
        folder: Folder of the files.
        stem: Name of the experiment.
    """
    rows, figures = result["rows"], dict[str, Figure]()
    with style.context("default"):
        if experiment.lines is not None:
            figures[f"{stem}.png"] = _line_figure(experiment, result["cells"])
        else:
            figures[f"{stem}.png"] = _value_figure(experiment, rows)
            if experiment.life is None and any(row.get("curve") for row in rows):
                figures[f"{stem}_bytes.png"] = _byte_figure(experiment, rows)
        for name, figure in figures.items():
            with atomic_write(folder / name) as aside:
                figure.savefig(aside, dpi=150, format="png")
        has_life = experiment.life is not None
        animation = save_life(experiment, result["cells"], folder, stem) if has_life else []
    return [*animation, *figures]


def set_scale(axes: Axes, measure: str, horizontal: bool = False) -> None:
    """Sets the scale and the grid of an axis: 0 to 100% for rates, else logarithmic.

    Args:
        axes: The axes.
        measure: The measure of the axis.
        horizontal: Whether it is the horizontal axis.
    """
    axis = axes.xaxis if horizontal else axes.yaxis
    if measure in _RATES:
        (axes.set_xlim if horizontal else axes.set_ylim)(-0.02, 1.02)
        axis.set_major_formatter(PercentFormatter(1.0))
    else:
        (axes.set_xscale if horizontal else axes.set_yscale)("log")
        axis.set_major_locator(_LossLocator())
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.3)


class _LossLocator(LogLocator):
    """Ticks at 1, 2 and 5 times powers of ten; on three decades or more, only at powers of ten."""

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        self.set_params(subs=(1,) if vmax > 1e3 * vmin else (1, 2, 5))
        return super().tick_values(vmin, vmax)


def _drawn(experiment: Experiment, rows: Sequence[Row]) -> list[str]:
    """Returns the measures with spreads of numbers or with success rates."""
    found = dict.fromkeys(
        name for row in rows for name in row if isinstance(row[name], Mapping) and name != "tasks"
    )
    chosen = experiment.measures or tuple(found)
    return [name for name in found if name in chosen and name not in _NOT_DRAWN]


def _value_figure(experiment: Experiment, rows: Sequence[Row]) -> Figure:
    measures = _drawn(experiment, rows)
    if len(experiment.cases) == 1 or not all(case[0].isdigit() for case in experiment.cases):
        return _arm_figure(experiment, rows, measures)
    arms = experiment.compared
    height = max(3.8, 0.8 + 0.22 * len(arms))
    figure = Figure((2.6 + 4.0 * max(1, len(measures)), height), layout="constrained")
    panels = figure.subplots(1, max(1, len(measures)), squeeze=False)[0]
    for measure, axes in zip(measures, panels, strict=False):
        _plot_arms(axes, experiment, rows, measure)
        axes.set_xticks(range(len(experiment.cases)), list(experiment.cases))
        if sum(map(len, experiment.cases)) > _LETTERS:  # longer labels would overlap
            axes.tick_params("x", rotation=30)
            for text in axes.get_xticklabels():
                text.set_horizontalalignment("right")
        axes.set_xlabel(experiment.vary or "")
        axes.set_ylabel(LABELS.get(measure, measure))
        set_scale(axes, measure)
    _add_legend(figure, arms)
    return figure


def _arm_figure(experiment: Experiment, rows: Sequence[Row], measures: Sequence[str]) -> Figure:
    """Plots the arms below one another, with a color for each value. Squares do not merge."""
    arms, cases = experiment.compared, list(experiment.cases)
    apart = min(0.25, 0.7 / len(cases))
    size = (2.6 + 3.2 * max(1, len(measures)), 0.8 + (0.14 + 0.1 * len(cases)) * len(arms))
    figure = Figure(size, layout="constrained")
    panels = figure.subplots(1, max(1, len(measures)), squeeze=False, sharey=True)[0]
    for measure, axes in zip(measures, panels, strict=False):
        for row in rows:
            if point := row.get(measure):
                middle, spread = _middles([point])
                number = cases.index(row["value"])
                axes.errorbar(
                    middle,
                    [arms.index(row["arm"]) + apart * (number - (len(cases) - 1) / 2)],
                    xerr=spread,
                    fmt="s" if _is_dashed(experiment, row["arm"]) else "o",
                    color=_color(number),
                    capsize=2 if len(cases) > 1 else 3,
                    markersize=4,
                )
        axes.set_yticks(range(len(arms)), arms)
        axes.set_ylim(len(arms) - 0.5, -0.5)
        axes.set_xlabel(LABELS.get(measure, measure))
        set_scale(axes, measure, horizontal=True)
    if len(cases) > 1:
        marks = [
            Line2D([], [], marker="o", linestyle="", color=_color(k)) for k in range(len(cases))
        ]
        columns = 1 if sum(map(len, cases)) > _LETTERS else len(cases)
        figure.legend(
            marks, cases, title=experiment.vary, loc="outside lower center", ncols=columns,
            frameon=False,
        )  # fmt: skip
    return figure


def _middles(points: Sequence[Row]) -> tuple[list[float], tuple[list[float], list[float]]]:
    """Returns the middles of points, and the distances of their low and high ends from these.

    Infinite numbers and ends are not drawn.
    """
    middles = [_finite(each.get("rate", each.get("median"))) for each in points]
    pairs = list(zip(points, middles, strict=True))
    below = [max(0.0, middle - _finite(each["low"], middle)) for each, middle in pairs]
    return middles, (below, [max(0.0, _finite(each["high"], m) - m) for each, m in pairs])


def _finite(number: float | None, otherwise: float = float("nan")) -> float:
    return otherwise if number is None else number


def _is_dashed(experiment: Experiment, arm: str) -> bool:
    return arm in (*experiment.controls, *experiment.references)


def _format(experiment: Experiment, number: int, arm: str) -> str:
    marker = _MARKERS[number // 10 % len(_MARKERS)]
    return f"{marker}{'--' if _is_dashed(experiment, arm) else '-'}"


def _plot_arms(axes: Axes, experiment: Experiment, rows: Sequence[Row], measure: str) -> None:
    arms, cases = experiment.compared, list(experiment.cases)
    found = {(row["arm"], row["value"]): row.get(measure) for row in rows}
    for number, arm in enumerate(arms):
        offset = _OFFSET * (number - (len(arms) - 1) / 2)
        points = [
            (index + offset, point)
            for index, value in enumerate(cases)
            if (point := found.get((arm, value)))
        ]
        if points:
            x, shown = zip(*points, strict=True)
            axes.errorbar(
                x,
                *_middles(shown),
                fmt=_format(experiment, number, arm),
                color=_color(number),
                capsize=3,
                markersize=4,
                label=arm,
            )


def _byte_figure(experiment: Experiment, rows: Sequence[Row]) -> Figure:
    """Plots curves over transferred bytes: success rates, or losses if some rounds have none.

    The success rates of the final policies are below. Each value has a panel, with a dotted line at
    the size of the robots' data.
    """
    merged = [row for row in rows if row["arm"] in experiment.arms and row.get("curve")]
    by_round = all(point["success"] for row in merged for point in row["curve"])
    measures = ["success"] if by_round else ["loss"]
    if not by_round and any(row["success"] for row in merged):
        measures.append("success")
    cases = list(experiment.cases)
    size = (2.2 + 3.0 * len(cases), 0.6 + 3.0 * len(measures))
    figure = Figure(size, layout="constrained")
    grid = figure.subplots(len(measures), len(cases), sharey="row", squeeze=False)
    for measure, panels in zip(measures, grid, strict=True):
        is_final = measure != measures[0]
        for value, axes in zip(cases, panels, strict=True):
            shown = [row for row in merged if row["value"] == value]
            for row in shown:
                number = list(experiment.arms).index(row["arm"])
                curve = row["curve"]
                if is_final:
                    curve = [{"bytes": row["bytes"], "success": row["success"]}]
                x = [point["bytes"] / 1e6 for point in curve if point[measure]]
                y = [
                    point["success"]["rate"] if measure == "success" else point["loss"]
                    for point in curve
                    if point[measure]
                ]
                fmt = f"{_MARKERS[number // 10 % len(_MARKERS)]}-"
                axes.plot(x, y, fmt, color=_color(number), markersize=4, label=row["arm"])
            for row in shown[:1]:
                axes.axvline(row["data_at_home"] / 1e6, color="black", linestyle=":", linewidth=1)
            title = f"{experiment.vary} {value}" if experiment.vary else value
            axes.set_title(title, fontsize="medium")
            axes.set_xlabel("transferred MB")
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.set_ylabel(LABELS[measure])
            set_scale(axes, measure)
            axes.label_outer()
    _add_legend(figure, list(experiment.arms))
    return figure


def _line_figure(experiment: Experiment, cells: Sequence[Mapping[str, Any]]) -> Figure:
    """Plots for each method the mean over pairs, in a band from the lowest to the highest."""
    lines = [(cell["value"], cell["arm"], line) for cell in cells for line in cell.get("lines", ())]
    measures = [name for name in LABELS if any(line.get(name) for *_, line in lines)] or ["loss"]
    cases, arms = list(experiment.cases), list(experiment.arms)
    size = (max(5.4, 1.0 + 3.2 * len(cases)), 0.8 + 2.4 * len(measures))
    figure = Figure(size, layout="constrained")
    grid = figure.subplots(len(measures), len(cases), sharex=True, squeeze=False)
    for measure, panels in zip(measures, grid, strict=True):
        for value, axes in zip(cases, panels, strict=True):
            for number, arm in enumerate(arms):
                found = [
                    line[measure] for of, by, line in lines if (of, by) == (value, arm)
                    and line.get(measure)
                ]  # fmt: skip
                if found:
                    _plot_band(axes, _color(number), arm, found)
            axes.set_xlim(0, 1)
            set_scale(axes, measure)
        panels[0].set_ylabel(LABELS[measure])
    for value, above, below in zip(cases, grid[0], grid[-1], strict=True):
        above.set_title(value)
        below.set_xlabel("λ")
    plotted = {line.get_label(): line for axes in grid.flat for line in axes.get_lines()}
    handles = [plotted[arm] for arm in arms if arm in plotted]
    if handles:
        columns = min(3, len(handles))
        figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False)
    return figure


def _plot_band(axes: Axes, color: str, label: str, lines: Sequence[Mapping[str, Any]]) -> None:
    lambdas = lines[0]["lambdas"]
    values = np.array([line["values"] for line in lines])
    axes.fill_between(lambdas, values.min(0), values.max(0), color=color, alpha=0.15, linewidth=0)
    axes.plot(lambdas, values.mean(0), "o-", color=color, label=label, markersize=3, clip_on=False)


def _add_legend(figure: Figure, names: Sequence[str]) -> None:
    handles: dict[str, Artist] = {}
    for axes in figure.axes:
        plotted, labels = axes.get_legend_handles_labels()
        handles |= dict(zip(labels, plotted, strict=True))
    present = [name for name in names if name in handles]
    figure.legend(
        [handles[name] for name in present], present, loc="outside right center", frameon=False
    )


def _color(number: int) -> str:
    return f"C{number % 10}"
