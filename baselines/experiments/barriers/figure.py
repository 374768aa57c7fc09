"""The figure of barriers: a column for each set of fleets, with losses above success rates."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fleet_tools.baselines.experiments.plot_scales import LABELS, Measure, set_scale
from fleet_tools.storage.atomic_files import atomic_write


def save_figure(report: Mapping[str, Any], path: Path) -> None:
    """Plots for each method the mean over pairs, in a band from the lowest to the highest.

    Args:
        report: See `report.make_report`.
        path: File of the image.
    """
    with style.context("default"), atomic_write(path) as aside:
        _figure(report).savefig(aside, dpi=150, format="png")


def _figure(report: Mapping[str, Any]) -> Figure:
    sets, methods = report["sets"], list(report["methods"])
    measures: list[Measure] = ["loss", "success"] if report["rollouts"] else ["loss"]
    figure = Figure(
        (max(5.4, 1.0 + 3.2 * len(sets)), 0.8 + 2.4 * len(measures)), layout="constrained"
    )
    grid = figure.subplots(len(measures), len(sets), sharex=True, squeeze=False)
    for row, measure in zip(grid, measures, strict=True):
        for axes, each in zip(row, sets, strict=True):
            for number, method in enumerate(methods):
                curves = [
                    curve[measure]
                    for curve in report["curves"]
                    if (curve["set"], curve["method"]) == (each["title"], method)
                ]
                if curves:
                    _plot(axes, f"C{number}", method, curves)
            axes.set_xlim(0, 1)
            set_scale(axes, measure)
        row[0].set_ylabel(LABELS[measure])
    for axes, each in zip(grid[0], sets, strict=True):
        axes.set_title(each["title"])
    for axes in grid[-1]:
        axes.set_xlabel("λ")
    plotted = {line.get_label(): line for axes in grid.flat for line in axes.get_lines()}
    if plotted:
        lines = [plotted[method] for method in methods if method in plotted]
        figure.legend(
            handles=lines, loc="outside lower center", ncols=min(3, len(lines)), frameon=False
        )
    return figure


def _plot(axes: Axes, color: str, label: str, curves: Sequence[Mapping[str, Any]]) -> None:
    lambdas, values = curves[0]["lambdas"], np.array([curve["values"] for curve in curves])
    axes.fill_between(lambdas, values.min(0), values.max(0), color=color, alpha=0.15, linewidth=0)
    axes.plot(lambdas, values.mean(0), "o-", color=color, label=label, markersize=3, clip_on=False)
