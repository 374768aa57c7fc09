"""The figures of a sweep: a line for each arm, and a dashed one for each reference."""

from collections.abc import Sequence
from pathlib import Path

import pydantic
from matplotlib import style
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, StrMethodFormatter

from fleet_tools.baselines.experiments.plot_scales import LABELS, Measure, set_scale
from fleet_tools.baselines.experiments.sweeps.summary import Row
from fleet_tools.baselines.experiments.sweeps.sweep import Sweep
from fleet_tools.storage.atomic_files import atomic_write

_OFFSET = 0.04
"""Horizontal distance of the arms' points at one value, so that their intervals do not overlap."""


_MARKERS = "osD^"
"""Markers of the first ten arms, of the next ten, and so on."""


def save_value_figure(sweep: Sweep, rows: Sequence[Row], path: Path) -> None:
    """Plots success rates with 95% intervals, if there are any, and losses with their range.

    Args:
        sweep: The sweep.
        rows: Its results, see `summary.summarize_arm`.
        path: File of the image.
    """
    with style.context("default"), atomic_write(path) as aside:
        _value_figure(sweep, rows).savefig(aside, dpi=150, format="png")


def save_byte_figure(sweep: Sweep, rows: Sequence[Row], path: Path) -> None:
    """Plots success rates, or losses if some rounds have no rollouts, over transferred bytes.

    There is a panel for each value, with a dotted line at the size of the robots' data.

    Args:
        sweep: The sweep.
        rows: Its results, see `summary.summarize_arm`.
        path: File of the image.
    """
    with style.context("default"), atomic_write(path) as aside:
        _byte_figure(sweep, rows).savefig(aside, dpi=150, format="png")


def _value_figure(sweep: Sweep, rows: Sequence[Row]) -> Figure:
    with_success = any(row["success"] for row in rows)
    measures: list[Measure] = ["success", "loss"] if with_success else ["loss"]
    if len(sweep.values) == 1:
        return _arm_figure(sweep, rows, measures)
    figure = Figure((2.2 + 4.0 * len(measures), 3.8), layout="constrained")
    panels = figure.subplots(1, len(measures), squeeze=False)[0]
    for measure, axes in zip(measures, panels, strict=True):
        _plot_arms(axes, sweep, rows, measure)
        axes.set_xticks(range(len(sweep.values)), [_label(value) for value in sweep.values])
        axes.set_xlabel(sweep.vary)
        axes.set_ylabel(LABELS[measure])
        set_scale(axes, measure)
    _add_legend(figure, [*sweep.arms, *sweep.references])
    return figure


def _arm_figure(sweep: Sweep, rows: Sequence[Row], measures: Sequence[Measure]) -> Figure:
    """Plots the arms below one another, since nothing varies but they."""
    arms = [*sweep.arms, *sweep.references]
    figure = Figure((2.6 + 3.2 * len(measures), 0.8 + 0.24 * len(arms)), layout="constrained")
    panels = figure.subplots(1, len(measures), squeeze=False, sharey=True)[0]
    for measure, axes in zip(measures, panels, strict=True):
        for row in rows:
            if point := row[measure]:
                middle, spread = _middles([point], measure)
                axes.errorbar(
                    middle,
                    [arms.index(row["arm"])],
                    xerr=spread,
                    fmt="s" if row["arm"] in sweep.references else "o",
                    color=_color(0),
                    capsize=3,
                    markersize=4,
                )
        axes.set_yticks(range(len(arms)), arms)
        axes.set_ylim(len(arms) - 0.5, -0.5)
        axes.set_xlabel(LABELS[measure])
        set_scale(axes, measure, horizontal=True)
    return figure


def _middles(
    points: Sequence[Row], measure: Measure
) -> tuple[list[float], tuple[list[float], list[float]]]:
    """Returns the middles of points, and how far their low and high ends are from these."""
    middles = [each["rate" if measure == "success" else "median"] for each in points]
    pairs = list(zip(points, middles, strict=True))
    below = [max(0.0, middle - each["low"]) for each, middle in pairs]
    return middles, (below, [max(0.0, each["high"] - middle) for each, middle in pairs])


def _plot_arms(axes: Axes, sweep: Sweep, rows: Sequence[Row], measure: Measure) -> None:
    arms = [*sweep.arms, *sweep.references]
    found = {
        (row["arm"], index): row[measure]
        for index, value in enumerate(sweep.values)
        for row in rows
        if row[sweep.vary] == value
    }
    for number, arm in enumerate(arms):
        offset = _OFFSET * (number - (len(arms) - 1) / 2)
        points = [
            (index + offset, point)
            for index in range(len(sweep.values))
            if (point := found.get((arm, index)))
        ]
        if points:
            x, shown = zip(*points, strict=True)
            axes.errorbar(
                x,
                *_middles(shown, measure),
                fmt="o--" if arm in sweep.references else "o-",
                color=_color(number),
                capsize=3,
                markersize=4,
                label=arm,
            )


def _byte_figure(sweep: Sweep, rows: Sequence[Row]) -> Figure:
    merged = [row for row in rows if row["arm"] in sweep.arms and row["curve"]]
    with_success = all(point["success"] for row in merged for point in row["curve"])
    measure: Measure = "success" if with_success else "loss"
    figure = Figure((2.2 + 3.0 * len(sweep.values), 3.6), layout="constrained")
    panels = figure.subplots(1, len(sweep.values), sharey=True, squeeze=False)[0]
    for value, axes in zip(sweep.values, panels, strict=True):
        shown = [row for row in merged if row[sweep.vary] == value]
        for row in shown:
            curve = row["curve"]
            x = [point["bytes"] / 1e6 for point in curve]
            y = [point["success"]["rate"] if with_success else point["loss"] for point in curve]
            color = _color(list(sweep.arms).index(row["arm"]))
            marker = _MARKERS[list(sweep.arms).index(row["arm"]) // 10 % len(_MARKERS)]
            axes.plot(x, y, f"{marker}-", color=color, markersize=4, label=row["arm"])
        for row in shown[:1]:
            axes.axvline(row["data_at_home"] / 1e6, color="black", linestyle=":", linewidth=1)
        axes.set_title(f"{sweep.vary} {_label(value)}", fontsize="medium")
        axes.set_xlabel("transferred MB")
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_ylabel(LABELS[measure])
        set_scale(axes, measure)
        axes.label_outer()
    _add_legend(figure, list(sweep.arms))
    return figure


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


def _label(value: pydantic.JsonValue) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
