"""Axes of plotted losses, success rates and accuracies."""

from collections.abc import Sequence
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter, PercentFormatter, StrMethodFormatter

Measure = Literal["loss", "success", "accuracy"]
"""What an axis shows."""

LABELS: dict[Measure, str] = {
    "loss": "held-out loss",
    "success": "success rate",
    "accuracy": "test accuracy",
}


def set_scale(axes: Axes, measure: Measure, horizontal: bool = False) -> None:
    """Sets the scale and the grid of an axis: logarithmic for losses, else 0 to 100%.

    Args:
        axes: The axes.
        measure: What the axis shows.
        horizontal: Whether it is the horizontal axis.
    """
    axis = axes.xaxis if horizontal else axes.yaxis
    if measure != "loss":
        (axes.set_xlim if horizontal else axes.set_ylim)(-0.02, 1.02)
        axis.set_major_formatter(PercentFormatter(1.0))
    else:
        (axes.set_xscale if horizontal else axes.set_yscale)("log")
        axis.set_major_locator(_LossLocator())
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.3)


class _LossLocator(LogLocator):
    """Ticks at 1, 2 and 5 times powers of ten; on three decades or more, at powers of ten alone."""

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        self.set_params(subs=(1,) if vmax > 1e3 * vmin else (1, 2, 5))
        return super().tick_values(vmin, vmax)
