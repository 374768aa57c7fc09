"""Contact sheets: a page with frames of some of a dataset's episodes, and its distributions."""

import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from fleet_tools.dataset.dataset_folder import Dataset
from fleet_tools.dataset.stored_episode import AttemptRecord
from fleet_tools.dataset.summary import short_name, summarize
from fleet_tools.errors import FleetToolsError, MissingLibraryError
from fleet_tools.storage.atomic_files import atomic_write
from fleet_tools.studio.pictures.annotations import OBJECT_COLOR, TOOL_COLOR, Color
from fleet_tools.studio.pictures.filmstrip import (
    LENGTH,
    Filmstrip,
    Frame,
    color_cameras,
    make_filmstrips,
)
from fleet_tools.utils.progress import progress_bar
from fleet_tools.utils.statistics import wilson_interval

TEXT_COLOR, MUTED_COLOR = "#22262e", "#6b7280"
SUCCESS_COLOR, FAILURE_COLOR = "#2f7d4f", "#c0392b"

SUFFIXES = (".png", ".jpg", ".pdf", ".svg")

# All lengths are in pixels of the PNG.
PIXELS_PER_INCH = 100
MARGIN, GAP = 30, 8
TITLE_HEIGHT, CAPTION_HEIGHT, STEP_HEIGHT = 80, 40, 26
PLOT_HEIGHT, PLOT_LABELS_WIDTH, PLOT_LABELS_HEIGHT, TOOL_HEIGHT = 300, 140, 90, 40
FRAME_WIDTHS = 200, 400
"""Smallest and largest width of a frame on the page; frames between them keep their size."""

_FEW_POINTS = 20
"""Largest number of points that are drawn large; keypoints are few, clouds have more points."""

_MAX_BARS = 30
_MAX_NUMBERS = 150
"""Largest number of pairs of tool and object whose counts are written out."""


def write_contact_sheet(
    path: Path, dataset: Dataset, records: list[AttemptRecord], *, quiet: bool = False
) -> None:
    """Writes a contact sheet; if images cannot be rendered, one without frames, with a warning.

    Raises:
        FleetToolsError: The file name has another suffix than `SUFFIXES`, its folder does not
            exist, or an episode is damaged.
        OSError: The file cannot be written.
    """
    dataset.header.require_tool_use()
    if path.suffix not in SUFFIXES:
        raise FleetToolsError(
            "Expected an image file for the contact sheet, whose name ends with "
            f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}; given: {path}"
        )
    if not path.absolute().parent.is_dir():
        raise FleetToolsError(
            f"There is no folder {path.absolute().parent} for {path.name}. Create it first."
        )
    strips = []
    try:
        with progress_bar(len(records), "episode", quiet=quiet) as bar:
            for strip in make_filmstrips(dataset, records):
                strips.append(strip)
                bar.update()
    except MissingLibraryError as error:
        print(f"The page shows distributions, but no episodes: {error}", file=sys.stderr)
        strips = []
    # The user's matplotlibrc does not apply.
    with style.context("default"), atomic_write(path) as aside:
        draw_contact_sheet(dataset, strips).savefig(aside)


def draw_contact_sheet(dataset: Dataset, strips: list[Filmstrip]) -> Figure:
    """Draws a row for each filmstrip, and below them the distributions of the whole dataset."""
    width, height = _frame_size(strips)
    tools = len({record.tool for record in dataset.manifest()})
    plot_height = max(PLOT_HEIGHT, TOOL_HEIGHT * tools)
    row_height = CAPTION_HEIGHT + height + STEP_HEIGHT
    page = _Page(
        width=2 * MARGIN + LENGTH * width + (LENGTH - 1) * GAP,
        height=2 * MARGIN + TITLE_HEIGHT + len(strips) * row_height + plot_height
        + PLOT_LABELS_HEIGHT + CAPTION_HEIGHT,
    )  # fmt: skip
    _draw_title(page, dataset, strips)
    for k, strip in enumerate(strips):
        top = MARGIN + TITLE_HEIGHT + k * row_height
        _draw_strip(page, strip, dataset.header.control_rate_hz, top, (width, height))
    top = MARGIN + TITLE_HEIGHT + len(strips) * row_height
    _draw_distributions(page, dataset, top, plot_height)
    return page.figure


class _Page:
    """A figure whose positions are given in pixels from the upper left corner."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.figure = Figure(
            (width / PIXELS_PER_INCH, height / PIXELS_PER_INCH), PIXELS_PER_INCH, facecolor="white"
        )

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        bottom = self.height - top - height
        box = np.divide((left, bottom, width, height), [self.width, self.height] * 2)
        return self.figure.add_axes(tuple(box.tolist()))

    def text(
        self,
        left: float,
        top: float,
        text: str,
        size: float,
        color: str | Color = TEXT_COLOR,
        **others: Any,
    ) -> None:
        x, y = left / self.width, 1.0 - top / self.height
        self.figure.text(x, y, text, fontsize=size, color=color, va="top", **others)


def _frame_size(strips: list[Filmstrip]) -> tuple[int, int]:
    """Returns width and height of a frame on the page."""
    if not strips:
        return 320, 0
    height, width, _ = strips[0].frames[0].image.shape
    shown = int(np.clip(width, *FRAME_WIDTHS))
    return shown, round(height * shown / width)


# --- Title ----------------------------------------------------------------------------------


def _draw_title(page: _Page, dataset: Dataset, strips: list[Filmstrip]) -> None:
    summary = summarize(dataset.folder, dataset.header, dataset.manifest())
    title = (
        f"{summary['task']}: {summary['stored_episodes']} episodes, {summary['stored_steps']} steps"
    )
    page.text(MARGIN, MARGIN, title, 20, weight="bold")
    low, high = summary["success_rate_interval_95"]
    rate = (
        f"{summary['successes']} of {summary['attempts']} attempts succeeded "
        f"({summary['success_rate']:.0%}; 95% interval {low:.0%} to {high:.0%})."
    )
    page.text(MARGIN, MARGIN + 38, f"{rate} {_content(dataset, strips)}", 12, MUTED_COLOR)
    if any(len(frame.tool) for strip in strips for frame in strip.frames):
        right = page.width - MARGIN
        page.text(right - 90, MARGIN + 38, "● tool", 12, TOOL_COLOR, ha="right")
        page.text(right, MARGIN + 38, "● object", 12, OBJECT_COLOR, ha="right")


def _content(dataset: Dataset, strips: list[Filmstrip]) -> str:
    """Returns what the frames show."""
    if not strips:
        return ""
    cameras = color_cameras(dataset.header)
    if cameras:
        return f"Images: {' above '.join(cameras)}, as stored."
    return "Images: replay of the stored actions; dots are the observed points."


# --- Filmstrips -----------------------------------------------------------------------------


def _draw_strip(
    page: _Page, strip: Filmstrip, rate_hz: float, top: float, size: tuple[int, int]
) -> None:
    success = strip.record.success
    width, height = size
    color = TEXT_COLOR if success else FAILURE_COLOR
    page.text(MARGIN, top + 10, _caption(strip, rate_hz), 13, color)
    for k, frame in enumerate(strip.frames):
        axes = page.axes(MARGIN + k * (width + GAP), top + CAPTION_HEIGHT, width, height)
        _draw_frame(axes, frame, success)
        axes.set_xlabel(
            f"step {frame.step}, {frame.step / rate_hz:.1f} s",
            fontsize=10,
            color=MUTED_COLOR,
            labelpad=3,
        )


def _caption(strip: Filmstrip, rate_hz: float) -> str:
    record = strip.record
    result = "success" if record.success else f"FAILED: {record.outcome}"
    if record.error:
        result += f" ({textwrap.shorten(record.error, 60)})"
    parts = [
        f"attempt {record.attempt}",
        f"{short_name(record.tool)} on {short_name(record.object)}",
        f"{result} after {record.steps} steps, {record.steps / rate_hz:.1f} s",
        f"seed {record.seed}",
    ]
    if strip.first_difference is not None:
        parts.append(f"NOT AS STORED from step {strip.first_difference} on: see fleet_tools.replay")
    return "  ·  ".join(parts)


def _draw_frame(axes: Axes, frame: Frame, success: bool) -> None:
    height, width, _ = frame.image.shape
    axes.imshow(frame.image, extent=(0, width, height, 0), aspect="auto")
    for points, color in ((frame.object, OBJECT_COLOR), (frame.tool, TOOL_COLOR)):
        few = len(points) <= _FEW_POINTS
        axes.scatter(
            points[:, 0], points[:, 1], s=18 if few else 1.5, color=color,
            edgecolors="white" if few else "none", linewidths=0.8 if few else 0.0,
        )  # fmt: skip
    axes.set(xlim=(0, width), ylim=(height, 0), xticks=[], yticks=[])
    border = {"color": SUCCESS_COLOR, "linewidth": 0.0}
    if not success:
        border = {"color": FAILURE_COLOR, "linewidth": 2.5}
    axes.spines[:].set(**border)


# --- Distributions --------------------------------------------------------------------------


def _draw_distributions(page: _Page, dataset: Dataset, top: float, height: float) -> None:
    """Draws three plots side by side."""
    width = (page.width - 2 * MARGIN) / 3
    for k, draw in enumerate((draw_lengths, draw_pairs, draw_success_rates)):
        axes = page.axes(
            MARGIN + k * width + PLOT_LABELS_WIDTH, top + CAPTION_HEIGHT + 20,
            width - PLOT_LABELS_WIDTH, height,
        )  # fmt: skip
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=10, labelcolor=TEXT_COLOR, color=MUTED_COLOR)
        draw(axes, dataset)


# --- How a dataset is distributed -----------------------------------------------------------


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
