"""Figures of studies: curves of pairs, and accuracies of fleets."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from fleet_tools.baselines.experiments.line_figure import Line, save_line_figure
from fleet_tools.baselines.experiments.plot_scales import LABELS, Measure, set_scale
from fleet_tools.baselines.experiments.studies.fleets import CONTROLS
from fleet_tools.baselines.experiments.studies.tables import TableEntry
from fleet_tools.baselines.merging.barrier import lambdas_of
from fleet_tools.storage.atomic_files import atomic_write

_MEASURES: list[Measure] = ["loss", "accuracy"]

_OFFSET = 0.04
"""Horizontal distance of the methods' points at one value, so that their bars do not overlap."""

_MARKERS = "osD^"
"""Markers of the first ten methods, of the next ten, and so on."""


def save_pair_figure(entries: Sequence[TableEntry], path: Path) -> None:
    """Plots losses and accuracies on the lines between aligned networks, a column for each network.

    Args:
        entries: See `pairs.pair_study`; those without curves are left out.
        path: File of the image.
    """
    with_curves = [entry for entry in entries if entry.curves]
    lines = [
        Line(
            entry.column,
            entry.row,
            {measure: lambdas_of(len(entry.curves[measure])).tolist() for measure in _MEASURES},
            {measure: entry.curves[measure] for measure in _MEASURES},
        )
        for entry in with_curves
    ]
    names = list(dict.fromkeys(entry.column for entry in with_curves))
    methods = list(dict.fromkeys(entry.row for entry in with_curves))
    save_line_figure(lines, names, methods, _MEASURES, path)


def save_fleet_figure(entries: Sequence[TableEntry], path: Path) -> None:
    """Plots accuracies: medians over seeds, with bars from the lowest to the highest.

    Over alpha, with a panel for each number of models; over the number of models if only that
    varies; the methods below one another if there is one kind of fleet. Controls are dashed.

    Args:
        entries: See `fleets.fleet_study`; those without settings, of pairs, are left out.
        path: File of the image.
    """
    with style.context("default"), atomic_write(path) as aside:
        _fleet_figure([entry for entry in entries if entry.settings]).savefig(
            aside, dpi=150, format="png"
        )


def _fleet_figure(entries: Sequence[TableEntry]) -> Figure:
    varied = [key for key in ("alpha", "models") if len(_values(entries, key)) > 1]
    if not varied:
        return _method_figure(entries)
    x, other = ("alpha", "models") if "alpha" in varied else ("models", "alpha")
    others = _values(entries, other)
    methods = list(dict.fromkeys(entry.row for entry in entries))
    height = max(3.8, 0.8 + 0.22 * len(methods))
    figure = Figure((2.6 + 3.8 * len(others), height), layout="constrained")
    panels = figure.subplots(1, len(others), squeeze=False, sharey=True)[0]
    for value, axes in zip(others, panels, strict=True):
        shown = [entry for entry in entries if entry.settings[other] == value]
        _plot_methods(axes, shown, methods, x)
        axes.set_title(f"alpha {value:g}" if other == "alpha" else f"{value:g} models")
        axes.set_xlabel("alpha" if x == "alpha" else "number of models")
        axes.set_ylabel(LABELS["accuracy"])
        set_scale(axes, "accuracy")
        axes.label_outer()
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False)
    return figure


def _plot_methods(
    axes: Axes, entries: Sequence[TableEntry], methods: Sequence[str], x: str
) -> None:
    values = _values(entries, x)
    for number, method in enumerate(methods):
        offset = _OFFSET * (number - (len(methods) - 1) / 2)
        accuracies = [_accuracies(entries, method, x, value) for value in values]
        places = [index + offset for index, found in enumerate(accuracies) if found]
        found = [each for each in accuracies if each]
        marker, line = _MARKERS[number // 10 % len(_MARKERS)], "--" if method in CONTROLS else "-"
        axes.errorbar(
            places,
            [median(each) for each in found],
            yerr=_spreads(found),
            fmt=f"{marker}{line}",
            color="0.2" if method == "joint" else f"C{number % 10}",
            capsize=3,
            markersize=4,
            label=method,
        )
    axes.set_xticks(range(len(values)), [f"{value:g}" for value in values])


def _method_figure(entries: Sequence[TableEntry]) -> Figure:
    """Plots the methods below one another; the axis is that of what was found."""
    methods = list(dict.fromkeys(entry.row for entry in entries))
    figure = Figure((6.0, 0.8 + 0.26 * len(methods)), layout="constrained")
    axes = figure.subplots()
    for number, method in enumerate(methods):
        found = [entry.value["accuracy"] for entry in entries if entry.row == method]
        color, marker = f"C{int(method in CONTROLS)}", "s" if method in CONTROLS else "o"
        middle, spread = [median(found)], _spreads([found])
        axes.errorbar(middle, [number], xerr=spread, fmt=marker, color=color, capsize=3)
    axes.set_yticks(range(len(methods)), methods)
    axes.set_ylim(len(methods) - 0.5, -0.5)
    axes.set_xlabel(f"{LABELS['accuracy']}, {entries[0].column}")
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.grid(alpha=0.3)
    return figure


def _values(entries: Sequence[TableEntry], key: str) -> list[float]:
    return sorted({entry.settings[key] for entry in entries})


def _accuracies(entries: Sequence[TableEntry], method: str, key: str, value: float) -> list[float]:
    chosen = [entry for entry in entries if (entry.row, entry.settings[key]) == (method, value)]
    return [entry.value["accuracy"] for entry in chosen]


def _spreads(found: Sequence[Sequence[float]]) -> tuple[list[float], list[float]]:
    """Returns how far the lowest and the highest values are from the medians."""
    below = [median(each) - min(each) for each in found]
    return below, [max(each) - median(each) for each in found]
