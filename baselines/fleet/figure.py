"""The figures of a sweep: a line for each arm, references dashed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from fleet_tools.baselines.fleet.sweep import Sweep
from fleet_tools.files import whole

_ASIDE = 0.04
"""How far points of one value stand apart, so that their intervals can be told apart."""


def save_figure(sweep: Sweep, rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draws success with its 95% intervals, or where nothing was tried, held-out losses.

    Args:
        sweep: The sweep.
        rows: As `sweep.row` has them.
        path: Of the picture.
    """
    with style.context("default"), whole(path) as aside:
        _figure(sweep, rows).savefig(aside, dpi=150, format="png")


def save_curves(sweep: Sweep, rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draws success (held-out losses where a round was not tried) over the bytes that crossed.

    A panel for each value; a dotted line where as many bytes crossed as data stayed at home.

    Args:
        sweep, rows, path: See `save_figure`.
    """
    with style.context("default"), whole(path) as aside:
        _curves(sweep, rows).savefig(aside, dpi=150, format="png")


def _curves(sweep: Sweep, rows: Sequence[Mapping[str, Any]]) -> Figure:
    merged = [row for row in rows if row["arm"] in sweep.arms and row["curve"]]
    tried = any(point["success"] for row in merged for point in row["curve"][:-1])
    figure = Figure((2.2 + 3.2 * len(sweep.values), 3.4), layout="constrained")
    panels = figure.subplots(1, len(sweep.values), sharey=True, squeeze=False)[0]
    for value, axes in zip(sweep.values, panels, strict=True):
        here = [row for row in merged if row[sweep.vary] == value]
        for row in here:
            points = [point for point in row["curve"] if point["success"] or not tried]
            x = [point["bytes"] / 1e6 for point in points]
            y = [point["success"]["rate"] if tried else point["loss"] for point in points]
            colour = f"C{list(sweep.arms).index(row['arm'])}"
            axes.plot(x, y, "o-", color=colour, markersize=3, label=row["arm"])
        if here:
            axes.axvline(here[0]["data_at_home"] / 1e6, color="black", linestyle=":", linewidth=1)
        axes.set_title(f"{sweep.vary} {_said(value)}", fontsize="medium")
        axes.set_xlabel("MB sent and received")
        axes.set_xscale("log")
        axes.grid(alpha=0.3)
    _scale(panels[0], tried)
    handles = {line.get_label(): line for axes in panels for line in axes.get_lines()}
    handles = {name: line for name, line in handles.items() if name in sweep.arms}
    figure.legend(handles.values(), handles, loc="outside right center", frameon=False)
    return figure


def _scale(axes: Axes, tried: bool) -> None:
    if tried:
        axes.set_ylabel("scenes solved")
        axes.set_ylim(-0.02, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    else:
        axes.set_ylabel("held-out loss")
        axes.set_yscale("log")


def _figure(sweep: Sweep, rows: Sequence[Mapping[str, Any]]) -> Figure:
    tried = any(row["success"] for row in rows)
    figure = Figure((6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    arms = [*sweep.arms, *sweep.references]
    for number, arm in enumerate(arms):
        points = []
        for place, value in enumerate(sweep.values):
            of_arm = (row for row in rows if row["arm"] == arm and row[sweep.vary] == value)
            point = next(of_arm, {}).get("success" if tried else "loss")
            if point:
                shift = _ASIDE * (number - (len(arms) - 1) / 2)
                points.append((place + shift, point["rate" if tried else "median"], point))
        if points:
            x, y, spread = zip(*points, strict=True)
            below = [max(0.0, middle - each["low"]) for middle, each in zip(y, spread, strict=True)]
            above = [
                max(0.0, each["high"] - middle) for middle, each in zip(y, spread, strict=True)
            ]
            line = "--" if arm in sweep.references else "-"
            axes.errorbar(x, y, (below, above), fmt=f"o{line}", capsize=3, label=arm, markersize=4)
    axes.set_xticks(range(len(sweep.values)), [_said(value) for value in sweep.values])
    axes.set_xlabel(sweep.vary)
    _scale(axes, tried)
    axes.grid(alpha=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return figure


def _said(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
