"""Figures of lines between models: a row of panels for each measure, a column for each set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fleet_tools.baselines.experiments.plot_scales import LABELS, Measure, set_scale
from fleet_tools.storage.atomic_files import atomic_write


@dataclass(frozen=True)
class Line:
    """What was measured on the line between two models.

    Attributes:
        set: Title of the column.
        method: How the models were aligned.
        lambdas: Positions on the line, by measure.
        values: Values at these positions, by measure.
    """

    set: str
    method: str
    lambdas: Mapping[Measure, Sequence[float]]
    values: Mapping[Measure, Sequence[float]]


def save_line_figure(
    lines: Sequence[Line],
    sets: Sequence[str],
    methods: Sequence[str],
    measures: Sequence[Measure],
    path: Path,
) -> None:
    """Plots for each method the mean over pairs, in a band from the lowest to the highest.

    Args:
        lines: What was measured.
        sets: Titles of the columns, in their order.
        methods: Methods in the order of their colors.
        measures: Measures of the rows.
        path: File of the image.
    """
    with style.context("default"), atomic_write(path) as aside:
        _figure(lines, sets, methods, measures).savefig(aside, dpi=150, format="png")


def _figure(
    lines: Sequence[Line],
    sets: Sequence[str],
    methods: Sequence[str],
    measures: Sequence[Measure],
) -> Figure:
    figure = Figure(
        (max(5.4, 1.0 + 3.2 * len(sets)), 0.8 + 2.4 * len(measures)), layout="constrained"
    )
    grid = figure.subplots(len(measures), len(sets), sharex=True, squeeze=False)
    for row, measure in zip(grid, measures, strict=True):
        for axes, title in zip(row, sets, strict=True):
            for number, method in enumerate(methods):
                shown = [line for line in lines if (line.set, line.method) == (title, method)]
                if shown:
                    _plot(axes, f"C{number}", method, shown, measure)
            axes.set_xlim(0, 1)
            set_scale(axes, measure)
        row[0].set_ylabel(LABELS[measure])
    for axes, title in zip(grid[0], sets, strict=True):
        axes.set_title(title)
    for axes in grid[-1]:
        axes.set_xlabel("λ")
    plotted = {line.get_label(): line for axes in grid.flat for line in axes.get_lines()}
    if plotted:
        handles = [plotted[method] for method in methods if method in plotted]
        figure.legend(
            handles=handles, loc="outside lower center", ncols=min(3, len(handles)), frameon=False
        )
    return figure


def _plot(axes: Axes, color: str, label: str, lines: Sequence[Line], measure: Measure) -> None:
    lambdas = lines[0].lambdas[measure]
    values = np.array([line.values[measure] for line in lines])
    axes.fill_between(lambdas, values.min(0), values.max(0), color=color, alpha=0.15, linewidth=0)
    axes.plot(lambdas, values.mean(0), "o-", color=color, label=label, markersize=3, clip_on=False)
