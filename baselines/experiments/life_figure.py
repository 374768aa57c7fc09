"""The animated figure of a life: each frame adds a month to the matrices of success."""

import io
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image

from fleet_tools.baselines.experiments.form import Experiment
from fleet_tools.baselines.experiments.life import Matrices, Rates, life_of, success_by_month
from fleet_tools.baselines.experiments.result import Cell
from fleet_tools.baselines.federated.life import Arrival, Departure, Life
from fleet_tools.dataset.header import Header
from fleet_tools.storage.atomic_files import atomic_write

_MONTH_MS, _LAST_MS = 1200, 5000
"""Time of a frame, and of the last one."""

_CELL, _WIDTH = (0.34, 0.26), 8.0
"""Width and height of a cell, and greatest width of the figure, inches."""

_RANGE = (-0.1, 1.0)
"""Success rates of the lightest and the darkest color; 0% has a tint, too."""

_SIGNS = {
    "arrives": ("o", "C1", "black"),
    "is away": ("o", "white", "black"),
    "leaves": ("X", "C1", "black"),
    "is forgotten": ("X", "black", "white"),
}
"""Marker, color and edge of each kind of mark."""


def save_life(experiment: Experiment, cells: Sequence[Cell], folder: Path, stem: str) -> list[str]:
    """Draws the animation, and beside it its last frame as PNG.

    Args:
        experiment: An experiment with a life.
        cells: Its measurements.
        folder: Folder of the files.
        stem: Name of the experiment.

    Returns:
        Name of the animation; nothing if no arm has a matrix.
    """
    if not (matrices := success_by_month(experiment, cells)):
        return []
    frames = []
    for month in range(1, max(map(len, matrices.values())) + 1):
        file = io.BytesIO()
        life_figure(experiment, matrices, month).savefig(file, dpi=150, format="png")
        frames.append(Image.open(file).convert("RGB"))
    times = [*[_MONTH_MS] * (len(frames) - 1), _LAST_MS]
    options = {"duration": times, "loop": 0, "lossless": True, "method": 6}  # 6: smallest file
    path = folder / f"{stem}_months.webp"
    with atomic_write(path) as aside:
        frames[0].save(aside, save_all=True, append_images=frames[1:], **options)
    with atomic_write(path.with_suffix(".png")) as aside:
        frames[-1].save(aside)
    return [path.name]


def marks(life: Life, tasks: Sequence[str]) -> list[tuple[int, str, str]]:
    """Returns months, tasks and kinds of events; with the control "without", none of the forgotten.

    Args:
        life: The life.
        tasks: Names of tasks on arms, see `Header.setting`.

    Returns:
        Kinds are the keys of `_SIGNS`.
    """
    forgotten = {stay.arrivals for stay in life.stays() if stay.forgotten is not None}
    here: dict[str, list[str]] = {}
    found = []
    for number, event in enumerate(life.events):
        kind = event.type.replace("_", " ")
        if isinstance(event, Arrival):
            never = life.control == "without" and (number,) in forgotten
            here[event.robot] = [] if never else _of(event, tasks)
        elif isinstance(event, Departure) and event.forget:
            kind = "is forgotten"
        found += [(event.month, task, kind) for task in here[event.robot]]
    return found


def _of(arrival: Arrival, tasks: Sequence[str]) -> list[str]:
    """Returns the tasks that a robot may have."""
    return [each for each in tasks if arrival.has(*Header.task_and_robot(each))]


def life_figure(experiment: Experiment, matrices: Matrices, month: int) -> Figure:
    """Returns the figure after a month, with a panel for each arm that has a matrix.

    Args:
        experiment: An experiment with a life.
        matrices: At least one matrix, see `success_by_month`.
        month: Number of the month. Later rows are empty.
    """
    months, tasks = max(map(len, matrices.values())), max(len(m[0]) for m in matrices.values())
    width, height = _CELL[0] * tasks + 0.3, _CELL[1] * months + 1.1
    columns = min(len(matrices), max(1, int((_WIDTH - 0.4) / width)))
    rows = math.ceil(len(matrices) / columns)
    figure = Figure((0.4 + columns * width, 0.6 + rows * height), layout="constrained")
    title = f"Success in %, month {month} of {months} (gray names: no robot takes part)"
    figure.suptitle(title, fontsize=9)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for (place, matrix), axes in zip(matrices.items(), panels, strict=False):
        axes.set_title(experiment.title(*place), fontsize=8)
        _draw(axes, life_of(experiment, *place), matrix, month)
    for axes in panels[len(matrices) :]:
        axes.remove()
    signs = [
        Line2D([], [], marker=marker, color=color, mec=edge, linewidth=0, label=kind)
        for kind, (marker, color, edge) in _SIGNS.items()
    ]
    figure.legend(handles=signs, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return figure


def _draw(axes: Axes, life: Life, matrix: Sequence[Rates], month: int) -> None:
    """Draws a matrix up to a month; a task without a robot in this month has a gray name."""
    tasks, numbers = list(matrix[0]), [str(number) for number in range(1, len(matrix) + 1)]
    drawn = [list(each.values()) for each in matrix[:month]]
    low, high = _RANGE
    axes.pcolormesh(drawn, cmap="Blues", vmin=low, vmax=high, edgecolors="white", linewidth=1)
    axes.set(xlim=(0, len(tasks)), ylim=(len(matrix), 0), facecolor="0.95")
    for y, x in np.ndindex(len(drawn), len(tasks)):
        color = "white" if drawn[y][x] > 0.6 else "black"
        text = f"{100 * drawn[y][x]:.0f}"
        axes.text(x + 0.5, y + 0.55, text, color=color, fontsize=7, ha="center", va="center")
    for since, task, kind in marks(life, tasks):
        if since <= month:
            marker, color, edge = _SIGNS[kind]
            x = tasks.index(task) + (0.15 if kind == "arrives" else 0.85)
            axes.plot(x, since - 0.82, marker, color=color, mec=edge, markersize=6, mew=0.7)
    axes.set_yticks([k + 0.5 for k in range(len(matrix))], numbers, fontsize=7)
    axes.set_xticks([k + 0.5 for k in range(len(tasks))], tasks, fontsize=7, rotation=90)
    arrivals = dict(life.arrivals())
    present = (arrivals[n] for s in life.stays() for n in s.arrivals if month in s.rounds)
    here = {task for each in present for task in _of(each, tasks)}
    for label in axes.get_xticklabels():
        label.set_color("black" if label.get_text() in here else "0.5")
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
