"""How losses and successes look in pictures: their axes."""

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter, PercentFormatter, StrMethodFormatter

LABELS = {"loss": "held-out loss", "success": "scenes solved"}
"""Of what is measured."""


def scale(axes: Axes, measure: str) -> None:
    """Gives a y axis the scale of what is measured, one of `LABELS`, and draws a grid."""
    if measure == "success":
        axes.set_ylim(-0.02, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    else:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.3)
