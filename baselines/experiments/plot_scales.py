"""Axes of plotted losses and success rates."""

from typing import Literal

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter, PercentFormatter, StrMethodFormatter

Measure = Literal["loss", "success"]
"""What a vertical axis shows."""

LABELS: dict[Measure, str] = {"loss": "held-out loss", "success": "success rate"}


def set_scale(axes: Axes, measure: Measure) -> None:
    """Sets the scale and the grid of a vertical axis: logarithmic for losses, else 0 to 100%."""
    if measure == "success":
        axes.set_ylim(-0.02, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    else:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.3)
