"""The figure of a sweep: a line for each arm over what varies, references dashed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import style
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
    if tried:
        axes.set_ylabel("scenes solved")
        axes.set_ylim(-0.02, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    else:
        axes.set_ylabel("held-out loss")
        axes.set_yscale("log")
    axes.grid(alpha=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return figure


def _said(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
