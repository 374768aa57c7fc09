"""The figures of a sweep: a line for each arm, references dashed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from fleet_tools.baselines.experiments.plot_scales import LABELS, scale
from fleet_tools.baselines.experiments.sweeps.sweep import Sweep
from fleet_tools.storage.atomic_files import whole

Rows = Sequence[Mapping[str, Any]]

_ASIDE = 0.04
"""How far points of one value stand apart, so that their intervals can be told apart."""


def save_figure(sweep: Sweep, rows: Rows, path: Path) -> None:
    """Draws success with its 95% intervals where it was tried, and held-out losses over seeds.

    Args:
        sweep: The sweep.
        rows: As `sweep.row` has them.
        path: Of the picture.
    """
    with style.context("default"), whole(path) as aside:
        _figure(sweep, rows).savefig(aside, dpi=150, format="png")


def save_curves(sweep: Sweep, rows: Rows, path: Path) -> None:
    """Draws success, or where not all rounds were tried held-out losses, over bytes that crossed.

    A panel for each value; a dotted line where as many bytes crossed as data stayed at home.

    Args:
        sweep, rows, path: See `save_figure`.
    """
    with style.context("default"), whole(path) as aside:
        _curves(sweep, rows).savefig(aside, dpi=150, format="png")


def _figure(sweep: Sweep, rows: Rows) -> Figure:
    tried = any(row["success"] for row in rows)
    measures = ["success", "loss"] if tried else ["loss"]
    figure = Figure((2.2 + 4.0 * len(measures), 3.8), layout="constrained")
    panels = figure.subplots(1, len(measures), squeeze=False)[0]
    for measure, axes in zip(measures, panels, strict=True):
        _draw(axes, sweep, rows, measure)
        axes.set_xticks(range(len(sweep.values)), [_said(value) for value in sweep.values])
        axes.set_xlabel(sweep.vary)
        axes.set_ylabel(LABELS[measure])
        scale(axes, measure)
    _legend(figure, [*sweep.arms, *sweep.references])
    return figure


def _draw(axes: Axes, sweep: Sweep, rows: Rows, measure: str) -> None:
    arms = [*sweep.arms, *sweep.references]
    for number, arm in enumerate(arms):
        points = []
        for place, value in enumerate(sweep.values):
            of_arm = (row for row in rows if row["arm"] == arm and row[sweep.vary] == value)
            if point := next(of_arm, {}).get(measure):
                middle = point["rate" if measure == "success" else "median"]
                points.append((place + _ASIDE * (number - (len(arms) - 1) / 2), middle, point))
        if points:
            x, y, spread = zip(*points, strict=True)
            below = [max(0.0, middle - each["low"]) for middle, each in zip(y, spread, strict=True)]
            above = [
                max(0.0, each["high"] - middle) for middle, each in zip(y, spread, strict=True)
            ]
            how = {
                "fmt": f"o{'--' if arm in sweep.references else '-'}", "color": _colour(number),
                "capsize": 3, "markersize": 4, "label": arm,
            }  # fmt: skip
            axes.errorbar(x, y, (below, above), **how)


def _curves(sweep: Sweep, rows: Rows) -> Figure:
    merged = [row for row in rows if row["arm"] in sweep.arms and row["curve"]]
    tried = all(point["success"] for row in merged for point in row["curve"])
    measure = "success" if tried else "loss"
    figure = Figure((2.2 + 3.0 * len(sweep.values), 3.6), layout="constrained")
    panels = figure.subplots(1, len(sweep.values), sharey=True, squeeze=False)[0]
    for value, axes in zip(sweep.values, panels, strict=True):
        here = [row for row in merged if row[sweep.vary] == value]
        for row in here:
            x = [point["bytes"] / 1e6 for point in row["curve"]]
            y = [point["success"]["rate"] if tried else point["loss"] for point in row["curve"]]
            colour = _colour(list(sweep.arms).index(row["arm"]))
            axes.plot(x, y, "o-", color=colour, markersize=3, label=row["arm"])
        for row in here[:1]:
            axes.axvline(row["data_at_home"] / 1e6, color="black", linestyle=":", linewidth=1)
        axes.set_title(f"{sweep.vary} {_said(value)}", fontsize="medium")
        axes.set_xlabel("MB that crossed")
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.set_ylabel(LABELS[measure])
        scale(axes, measure)
        axes.label_outer()
    _legend(figure, list(sweep.arms))
    return figure


def _legend(figure: Figure, names: Sequence[str]) -> None:
    handles = {}
    for axes in figure.axes:
        drawn, labels = axes.get_legend_handles_labels()
        handles |= dict(zip(labels, drawn, strict=True))
    chosen = [name for name in names if name in handles]
    figure.legend(
        [handles[name] for name in chosen], chosen, loc="outside right center", frameon=False
    )


def _colour(number: int) -> str:
    return f"C{number % 10}"


def _said(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
