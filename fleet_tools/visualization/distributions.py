"""Plots of how a dataset is distributed: episode lengths, tools and objects, success rates."""

from collections import Counter

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from fleet_tools.dataset.dataset_folder import Dataset
from fleet_tools.dataset.summary import short_name
from fleet_tools.utils.statistics import wilson_interval
from fleet_tools.visualization.colors import (
    FAILURE_COLOR,
    MUTED_COLOR,
    SUCCESS_COLOR,
    TEXT_COLOR,
)

_MAX_BARS = 30
_MAX_NUMBERS = 150
"""Largest number of pairs of tool and object whose counts are written out."""


def draw_lengths(axes: Axes, dataset: Dataset) -> None:
    """Draws a histogram of the lengths of the stored episodes."""
    stored = dataset.stored()
    steps = {good: [r.steps for r in stored if r.success == good] for good in (True, False)}
    shortest, longest = min(r.steps for r in stored), max(r.steps for r in stored)
    width = 1 + (longest - shortest) // _MAX_BARS  # whole steps, or some bars would be empty
    edges = (np.arange(shortest, longest + width + 1, width) - 0.5).tolist()
    colors = [SUCCESS_COLOR, FAILURE_COLOR]
    axes.hist([steps[True], steps[False]], edges, stacked=True, color=colors, rwidth=0.9)
    axes.set_xlabel(f"steps of {1 / dataset.header.control_rate_hz:.2g} s")
    axes.set_ylabel("stored episodes")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    failed = " (red: failed)" if steps[False] else ""
    axes.set_title(f"Episode lengths{failed}", loc="left", weight="bold")


def draw_pairs(axes: Axes, dataset: Dataset) -> None:
    """Draws the number of stored episodes of each pair of tool and object."""
    pairs = Counter((record.tool, record.object) for record in dataset.stored())
    tools, objects = (sorted({pair[k] for pair in pairs}, key=str) for k in (0, 1))
    counts = np.array([[pairs[tool, object] for object in objects] for tool in tools])
    axes.imshow(counts, cmap="Blues", vmin=0, vmax=2 * counts.max(), aspect="auto")
    columns = [short_name(object) for object in objects]
    axes.set_xticks(range(len(objects)), columns, rotation=30, ha="right")
    axes.set_yticks(range(len(tools)), [short_name(tool) for tool in tools])
    if counts.size <= _MAX_NUMBERS:
        for (row, column), count in np.ndenumerate(counts):
            text = str(count) if count else "·"
            axes.text(column, row, text, ha="center", va="center", color=TEXT_COLOR, fontsize=10)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.set_title("Stored episodes by tool and object", loc="left", weight="bold")


def draw_success_rates(axes: Axes, dataset: Dataset) -> None:
    """Draws the success rate of all attempts with each tool, with its 95% interval."""
    attempts = Counter(record.tool for record in dataset.manifest())
    successes = Counter(record.tool for record in dataset.manifest() if record.success)
    tools = sorted(attempts, key=str)
    rates = np.array([successes[tool] / attempts[tool] for tool in tools])
    low, high = np.transpose([wilson_interval(successes[t], attempts[t]) for t in tools])
    rows = np.arange(len(tools))
    axes.hlines(rows, low, high, color=MUTED_COLOR, linewidth=2)
    axes.scatter(rates, rows, s=60, color=SUCCESS_COLOR, zorder=3, clip_on=False)
    labels = [f"{short_name(tool)}\n{successes[tool]} of {attempts[tool]}" for tool in tools]
    axes.set_yticks(rows, labels)
    axes.set(
        xlim=(0, 1),
        ylim=(-0.5, len(tools) - 0.5),
        xlabel="success rate of all attempts, with its 95% interval",
    )
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_title("Success rate by tool", loc="left", weight="bold")
