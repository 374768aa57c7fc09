"""A data set on one page: some of its episodes in pictures, and how it is distributed."""

import sys
import textwrap
from collections import Counter
from pathlib import Path

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from tqdm import tqdm

from fleet_tools.dataset import Dataset, Record
from fleet_tools.dataset.summary import short_name, summarize
from fleet_tools.errors import FleetToolsError, MissingLibraryError
from fleet_tools.storage.atomic_files import whole
from fleet_tools.utils.statistics import wilson_interval
from fleet_tools.visualization.annotations import OBJECT_COLOR, TOOL_COLOR
from fleet_tools.visualization.filmstrip import LENGTH, Picture, Strip, colour_cameras, take_strips

SUFFIXES = (".png", ".jpg", ".pdf", ".svg")

# All lengths are in pixels of the PNG.
PIXELS_PER_INCH = 100
MARGIN, GAP = 30, 8
TITLE_HEIGHT, CAPTION_HEIGHT, STEP_HEIGHT = 80, 40, 26
PLOT_HEIGHT, PLOT_LABELS_WIDTH, PLOT_LABELS_HEIGHT, TOOL_HEIGHT = 300, 140, 90, 40
PICTURE_WIDTHS = 200, 400
"""Pictures keep their size, unless they are smaller or larger than this."""

_FEW_POINTS = 20
"""Keypoints are drawn large, clouds small."""

_MOST_BARS = 30
_MOST_NUMBERS = 150
"""Up to so many pairs of tool and object, their counts are written out."""

INK, MUTED, GOOD, BAD = "#22262e", "#6b7280", "#2f7d4f", "#c0392b"


def write_contact_sheet(
    path: Path, dataset: Dataset, records: list[Record], *, quiet: bool = False
) -> None:
    """Writes a contact sheet; where nothing can be rendered, one without pictures, and says so.

    Args:
        path: Of the file, which appears when it is complete.
        dataset: What is shown.
        records: Of the episodes that are shown in pictures.
        quiet: Shows no progress.

    Raises:
        FleetToolsError: It is no picture's name, its folder does not exist, or an episode is
            damaged.
        OSError: It cannot be written.
    """
    if path.suffix not in SUFFIXES:
        raise FleetToolsError(
            f"A picture's name ends with {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}; "
            f"given: {path}"
        )
    if not path.absolute().parent.is_dir():
        raise FleetToolsError(
            f"There is no folder {path.absolute().parent} for {path.name}; make it first."
        )
    try:
        strips = list(
            tqdm(take_strips(dataset, records), total=len(records), unit="episode", disable=quiet)
        )
    except MissingLibraryError as error:
        print(f"No episodes are shown, only how they are distributed: {error}", file=sys.stderr)
        strips = []
    # Whatever the user's matplotlibrc says.
    with style.context("default"), whole(path) as aside:
        draw_contact_sheet(dataset, strips).savefig(aside)


def draw_contact_sheet(dataset: Dataset, strips: list[Strip]) -> Figure:
    """Draws a row for each strip, and below them the distributions of the whole data set."""
    width, height = _picture_size(strips)
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
    """A figure in which places are given in pixels from the upper left corner."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.figure = Figure(
            (width / PIXELS_PER_INCH, height / PIXELS_PER_INCH), PIXELS_PER_INCH, facecolor="white"
        )

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        bottom = self.height - top - height
        box = np.divide((left, bottom, width, height), [self.width, self.height] * 2)
        return self.figure.add_axes(box)

    def text(self, left: float, top: float, text: str, size: float, color=INK, **style) -> None:
        self.figure.text(
            left / self.width, 1.0 - top / self.height, text, fontsize=size, color=color,
            va="top", **style,
        )  # fmt: skip


def _picture_size(strips: list[Strip]) -> tuple[int, int]:
    """Returns width and height of a picture on the page."""
    if not strips:
        return 320, 0
    height, width, _ = strips[0].pictures[0].pixels.shape
    shown = int(np.clip(width, *PICTURE_WIDTHS))
    return shown, round(height * shown / width)


def _draw_title(page: _Page, dataset: Dataset, strips: list[Strip]) -> None:
    records = dataset.manifest()
    summary = summarize(dataset.folder, dataset.header, records)
    title = (
        f"{summary['task']}: {summary['stored_episodes']} episodes, {summary['stored_steps']} steps"
    )
    page.text(MARGIN, MARGIN, title, 20, weight="bold")
    low, high = summary["success_rate_interval_95"]
    rate = (
        f"{summary['successes']} of {summary['attempts']} attempts succeeded "
        f"({summary['success_rate']:.0%}; 95% interval {low:.0%} to {high:.0%})."
    )
    page.text(MARGIN, MARGIN + 38, f"{rate} {_what_is_shown(dataset, strips)}", 12, MUTED)
    if any(len(picture.tool) for strip in strips for picture in strip.pictures):
        right = page.width - MARGIN
        page.text(right - 90, MARGIN + 38, "● tool", 12, TOOL_COLOR, ha="right")
        page.text(right, MARGIN + 38, "● object", 12, OBJECT_COLOR, ha="right")


def _what_is_shown(dataset: Dataset, strips: list[Strip]) -> str:
    if not strips:
        return ""
    cameras = colour_cameras(dataset.header)
    if cameras:
        return f"Pictures: {' above '.join(cameras)}, as stored."
    return "Pictures: the stored actions run again; dots show what was observed."


def _draw_strip(
    page: _Page, strip: Strip, rate_hz: float, top: float, size: tuple[int, int]
) -> None:
    record = strip.record
    width, height = size
    page.text(MARGIN, top + 10, _caption(strip, rate_hz), 13, INK if record.success else BAD)
    for k, picture in enumerate(strip.pictures):
        axes = page.axes(MARGIN + k * (width + GAP), top + CAPTION_HEIGHT, width, height)
        _draw_picture(axes, picture, GOOD if record.success else BAD)
        axes.set_xlabel(
            f"step {picture.step}, {picture.step / rate_hz:.1f} s",
            fontsize=10,
            color=MUTED,
            labelpad=3,
        )


def _caption(strip: Strip, rate_hz: float) -> str:
    record = strip.record
    ended = "success" if record.success else f"FAILED: {record.outcome}"
    if record.error:
        ended += f" ({textwrap.shorten(record.error, 60)})"
    parts = [
        f"attempt {record.attempt}",
        f"{short_name(record.tool)} on {short_name(record.object)}",
        f"{ended} after {record.steps} steps, {record.steps / rate_hz:.1f} s",
        f"seed {record.seed}",
    ]
    if strip.parted is not None:
        parts.append(f"NOT AS STORED from step {strip.parted} on: see fleet_tools.replay")
    return "  ·  ".join(parts)


def _draw_picture(axes: Axes, picture: Picture, frame: str) -> None:
    height, width, _ = picture.pixels.shape
    axes.imshow(picture.pixels, extent=(0, width, height, 0), aspect="auto")
    for points, color in ((picture.object, OBJECT_COLOR), (picture.tool, TOOL_COLOR)):
        few = len(points) <= _FEW_POINTS
        axes.scatter(
            *points.T, s=18 if few else 1.5, color=color, edgecolors="white" if few else "none",
            linewidths=0.8 if few else 0.0,
        )  # fmt: skip
    axes.set(xlim=(0, width), ylim=(height, 0), xticks=[], yticks=[])
    axes.spines[:].set(color=frame, linewidth=2.5 if frame == BAD else 0.0)


# --- Distributions --------------------------------------------------------------------------


def _draw_distributions(page: _Page, dataset: Dataset, top: float, height: float) -> None:
    """Draws three plots side by side."""
    width = (page.width - 2 * MARGIN) / 3
    plots = (_draw_lengths, _draw_pairs, _draw_success)
    for k, draw in enumerate(plots):
        axes = page.axes(
            MARGIN + k * width + PLOT_LABELS_WIDTH, top + CAPTION_HEIGHT + 20,
            width - PLOT_LABELS_WIDTH, height,
        )  # fmt: skip
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=10, labelcolor=INK, color=MUTED)
        draw(axes, dataset)


def _draw_lengths(axes: Axes, dataset: Dataset) -> None:
    stored = dataset.stored()
    steps = {good: [r.steps for r in stored if r.success == good] for good in (True, False)}
    shortest, longest = min(r.steps for r in stored), max(r.steps for r in stored)
    stride = 1 + (longest - shortest) // _MOST_BARS  # whole steps, or some bars would be empty
    edges = np.arange(shortest, longest + stride + 1, stride) - 0.5
    axes.hist([steps[True], steps[False]], edges, stacked=True, color=[GOOD, BAD], rwidth=0.9)
    axes.set_xlabel(f"steps of {1 / dataset.header.control_rate_hz:.2g} s")
    axes.set_ylabel("stored episodes")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    failed = " (red: failed)" if steps[False] else ""
    axes.set_title(f"How long episodes are{failed}", loc="left", weight="bold")


def _draw_pairs(axes: Axes, dataset: Dataset) -> None:
    pairs = Counter((record.tool, record.object) for record in dataset.stored())
    tools, objects = (sorted({pair[k] for pair in pairs}, key=str) for k in (0, 1))
    counts = np.array([[pairs[tool, object] for object in objects] for tool in tools])
    axes.imshow(counts, cmap="Blues", vmin=0, vmax=2 * counts.max(), aspect="auto")
    axes.set_xticks(range(len(objects)), map(short_name, objects), rotation=30, ha="right")
    axes.set_yticks(range(len(tools)), map(short_name, tools))
    if counts.size <= _MOST_NUMBERS:
        for (row, column), count in np.ndenumerate(counts):
            axes.text(column, row, count or "·", ha="center", va="center", color=INK, fontsize=10)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.set_title("Stored episodes by tool and object", loc="left", weight="bold")


def _draw_success(axes: Axes, dataset: Dataset) -> None:
    attempts = Counter(record.tool for record in dataset.manifest())
    successes = Counter(record.tool for record in dataset.manifest() if record.success)
    tools = sorted(attempts, key=str)
    rates = np.array([successes[tool] / attempts[tool] for tool in tools])
    intervals = np.array([wilson_interval(successes[tool], attempts[tool]) for tool in tools])
    places = np.arange(len(tools))
    axes.hlines(places, *intervals.T, color=MUTED, linewidth=2)
    axes.scatter(rates, places, s=60, color=GOOD, zorder=3, clip_on=False)
    labels = [f"{short_name(tool)}\n{successes[tool]} of {attempts[tool]}" for tool in tools]
    axes.set_yticks(places, labels)
    axes.set(
        xlim=(0, 1),
        ylim=(-0.5, len(tools) - 0.5),
        xlabel="success rate of all attempts, with its 95% interval",
    )
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_title("Success by tool", loc="left", weight="bold")
