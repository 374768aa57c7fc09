"""Draws the figure of "What we found", and its table: `python docs/images/findings_images.py`.

`findings.png` has success rates over the bytes that a robot uploads, and `findings.md` has them
with tests. Experiments, arms and titles are in `findings.yaml`. With `--results DIR` the results
are of another folder; `--output DIR` writes elsewhere.
"""

import argparse
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.transforms import Bbox

from fleet_tools.baselines.experiments.figures import set_scale
from fleet_tools.baselines.experiments.form import Experiment
from fleet_tools.baselines.experiments.result import Row, read_result
from fleet_tools.baselines.experiments.success import compared
from fleet_tools.utils.statistics import CONFIDENCE, adjusted_p_values

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "experiments" / "budget"
TABLES = HERE.parent / "results" / "tables"
SHOWN: dict[str, Any] = yaml.safe_load((HERE / "findings.yaml").read_text())
JOINT, SERVER, RAW_DATA = "joint", "server", "raw data"
_NEAR = 1.1  # uploads of one budget differ, since episodes are whole
RAW, MERGE, LINES = "tab:blue", "tab:red", "0.3"
FILL = {"one": MERGE, "five": "white"}  # by the number of networks

Label = tuple[str, float, float, str]
"""A text, its point in data coordinates, and its color."""


@dataclass(frozen=True)
class Panel:
    """The result of an experiment whose values are budgets in bytes.

    Attributes:
        experiment: The experiment.
        result: Its result.
        raw: Its arms of raw data.
    """

    experiment: Experiment
    result: Mapping[str, Any]
    raw: Sequence[str]

    def rows(self, arm: str) -> list[Row]:
        """Returns the rows of an arm with success rates, by rising budgets."""
        found = [each for each in self.result["rows"] if each["arm"] == arm and each.get("success")]
        return sorted(found, key=lambda row: int(row["value"]))

    @property
    def shown(self) -> dict[str, Row]:
        """Rows of the policies in the order of the table, each with the largest budget."""
        return {arm: rows[-1] for arm in SHOWN["policies"] if (rows := self.rows(arm))}

    @property
    def merges(self) -> dict[str, Row]:
        """The rows of arms that send no raw data."""
        arms = self.experiment.arms
        return {a: row for a, row in self.shown.items() if a in arms and "raw_data" not in arms[a]}

    def raw_above(self, merge: Row) -> Row | None:
        """Returns the best row of raw data up to the next larger budget; None if all failed.

        The budget is the smallest one at which robots upload no less than for the merge. So the
        comparison favours raw data.
        """
        rows = [row for arm in self.raw for row in self.rows(arm)]
        if not rows:
            return None
        sizes = [row["uploaded"] for row in rows]
        least = min((size for size in sizes if size >= merge["uploaded"]), default=max(sizes))
        near = [row for row, size in zip(rows, sizes, strict=True) if size <= _NEAR * least]
        return max(near, key=lambda row: row["success"]["rate"])

    def difference(self, row: Row, other: Row | None) -> dict[str, Any] | None:
        """Compares two rows, paired by seed and scene, see `compared`; None without pairs.

        As in the leaderboard, the test is about the policies as they were trained, since few
        training runs tell too little about the next one. So the scenes of all seeds count together.
        """
        if other is None:
            return None
        both = [self._cells(each) for each in (row, other)]
        pairs = [[cells[seed]["success"] for cells in both] for seed in both[0] if seed in both[1]]
        tasks = dict.fromkeys(task for pair in pairs for each in pair for task in each)
        return compared(
            *({0: {task: [[scene for pair in pairs for scene in pair[k][task][0]]]
                   for task in tasks}} for k in (0, 1)),
            own_scenes=True,
            margin=None,
        )  # fmt: skip

    def _cells(self, row: Row) -> dict[int, Mapping[str, Any]]:
        """Returns the measurements of a row with success rates, by seed."""
        return {
            each["seed"]: each
            for each in self.result["cells"]
            if (each["arm"], each["value"]) == (row["arm"], row["value"]) and each.get("success")
        }


def read_panels(results: Path = RESULTS) -> dict[str, Panel]:
    """Returns the panels by title."""

    def read(stem: str) -> tuple[Experiment, Mapping[str, Any]]:
        return read_result(results / f"{Path(stem).name}.json")

    panels = {}
    for title, shown in SHOWN["experiments"].items():
        experiment, result = read(shown["result"])
        for name, (stem, arm) in shown.get("others", {}).items():
            _, other = read(stem)
            result = dict(result) | {
                part: [
                    *result[part],
                    *({**each, "arm": name} for each in other[part] if each["arm"] == arm),
                ]
                for part in ("rows", "cells")
            }
        panels[title] = Panel(experiment, result, shown["raw"])
    return panels


def table(panels: Mapping[str, Panel], privacy: Mapping[str, Mapping[str, str]]) -> str:
    """Returns the table as Markdown.

    Differences are in points, with the 95% interval of each alone. All p-values are adjusted
    together (Holm 1979). Significant differences are bold.

    Args:
        panels: The panels by title.
        privacy: By title and arm, how well attacks recognize episodes; if empty, its column is
            left out.
    """
    found = {
        (title, arm, to): difference
        for title, panel in panels.items()
        for arm, row in panel.merges.items()
        for to, other in ((JOINT, panel.shown.get(JOINT)), (RAW_DATA, panel.raw_above(row)))
        if (difference := panel.difference(row, other))
    }
    adjusted = adjusted_p_values([each["p"] for each in found.values()])
    told = {key: _difference(found[key], p) for key, p in zip(found, adjusted, strict=True)}
    head = ["policy", "a robot uploads", "kB", "networks", "success", "minus joint training",
            "minus raw data", *["membership"] * bool(privacy)]  # fmt: skip
    lines = [head, ["---"] * len(head)]
    for title, panel in panels.items():
        lines.append([f"**{title}**", *[""] * (len(head) - 1)])
        for arm, row in panel.shown.items():
            words, uploads, networks = SHOWN["policies"][arm]
            size, rate = (
                f"{row['uploaded'] / 1e3:,.0f}" * (arm not in panel.experiment.references),
                row["success"],
            )
            shown = f"{rate['rate']:.0%} ({rate['low']:.0%} to {rate['high']:.0%})"
            differences = (told.get((title, arm, to), "") for to in (JOINT, RAW_DATA))
            lines.append([words, uploads, size, networks, shown, *differences])
            lines[-1] += [privacy.get(title, {}).get(arm, "")] * bool(privacy)
    return "".join(f"| {' | '.join(each)} |\n" for each in lines)


def _difference(found: Mapping[str, Any], p: float) -> str:
    middle, low, high = (round(100 * found[name]) for name in ("difference", "low", "high"))
    text = f"{middle} ({low} to {high})"
    text = f"**{text}**" if p < 1 - CONFIDENCE else text
    return f"{text}, p {'< 0.001' if p < 0.001 else f'= {p:.2g}'}"


def attacks() -> dict[str, dict[str, str]]:
    """Returns how well attacks recognize episodes, by title and arm; see `recognized`."""
    return {
        title: recognized(TABLES / shown["attacks"])
        for title, shown in SHOWN["experiments"].items()
        if "attacks" in shown
    }


def recognized(file: Path) -> dict[str, str]:
    """Returns how well attacks on each kind of upload recognize episodes, by arm.

    Args:
        file: Table of `benchmarks/upload_privacy.py`; none is returned without it.
    """
    if not file.is_file():
        return {}
    head, _, *rows = (
        [cell.strip(" `") for cell in line.strip()[1:-1].split("|")]  # also empty ones
        for line in file.read_text(encoding="utf-8").splitlines()
    )
    found: dict[str, list[str]] = {}
    for row in (dict(zip(head, each, strict=True)) for each in rows):
        found.setdefault(row["method"], []).append(
            f"{row['upload']} {row['membership'].partition(' ')[0]}"
        )
    return {arm: "; ".join(kinds) for arm, kinds in found.items()}


def figure(panels: Mapping[str, Panel]) -> Figure:
    """Returns success rates over the kilobytes that a robot uploads, a panel for each experiment.

    It is narrow, so that its words can be read on a telephone.
    """
    drawn = Figure((5.2, 0.4 + 3.7 * len(panels)), dpi=72, layout="constrained")  # pixels: points
    grid = drawn.subplots(len(panels), 1, squeeze=False)[:, 0]
    labels = list(map(_plot, grid, panels, panels.values()))
    grid[-1].set_xlabel("kB that a robot uploads")
    marks = [Line2D([], [], marker="o", linestyle="", color=MERGE, markerfacecolor=fill)
             for fill in FILL.values()]  # fmt: skip
    names = ["merge to one network", "five networks"]
    drawn.legend(marks, names, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    drawn.draw_without_rendering()
    drawn.set_layout_engine("none")  # labels are placed for this size
    for axes, found in zip(grid, labels, strict=True):
        place_labels(axes, found)
    return drawn


def _plot(axes: Axes, title: str, panel: Panel) -> list[Label]:
    """Draws a panel, and returns the labels of its lines and points."""
    x, labels = [], []
    for raw, line in zip(panel.raw, itertools.cycle(("-", "--"))):
        rows = panel.rows(raw)
        sizes = [row["uploaded"] / 1e3 for row in rows]
        low, rate, high = ([row["success"][k] for row in rows] for k in ("low", "rate", "high"))
        axes.fill_between(sizes, low, high, color=RAW, alpha=0.15, linewidth=0)
        axes.plot(sizes, rate, color=RAW, marker=".", linestyle=line)
        if rows:
            middle = len(rows) // 2
            labels.append((SHOWN["policies"][raw][0], sizes[middle], rate[middle], RAW))
        x += sizes
    for arm, row in panel.merges.items():
        words, _, networks = SHOWN["policies"][arm]
        x.append(row["uploaded"] / 1e3)
        rate = row["success"]
        axes.vlines(x[-1], rate["low"], rate["high"], color=MERGE, linewidth=0.8)
        axes.scatter(x[-1], rate["rate"], 25, FILL[networks], edgecolors=MERGE, zorder=3)
        labels.append((words, x[-1], rate["rate"], MERGE))
    left = min(x) / 1.6
    for arm, dashes in ((JOINT, "--"), (SERVER, ":")):
        if row := panel.shown.get(arm):
            rate = row["success"]["rate"]
            axes.axhline(rate, color=LINES, linewidth=1, linestyle=dashes)
            labels.insert(0, (SHOWN["policies"][arm][0], left, rate, LINES))
    axes.set_title(title, fontsize=10, loc="left")
    set_scale(axes, "success")
    set_scale(axes, "bytes", horizontal=True)
    axes.set_xlim(left, max(x) * 1.6)
    axes.set_ylabel("success rate")
    return labels


def place_labels(axes: Axes, labels: Sequence[Label]) -> None:
    """Writes labels beside their points: the nearest place that covers no point and no label.

    A line leads to a label that is far from its point.
    """
    points = axes.transData.transform([(x, y) for _, x, y, _ in labels])
    taken = [Bbox([point - 4, point + 4]) for point in points]
    for (words, x, y, color), point in zip(labels, points, strict=True):
        text = axes.annotate(words, (x, y), (0, 0), textcoords="offset points", ha="center",
                             va="center", fontsize=8.5, color=color)  # fmt: skip
        text.set_path_effects([withStroke(linewidth=2.5, foreground="white")])
        box = text.get_window_extent()
        for distance, angle in itertools.product(range(6, 250, 4), range(0, 360, 15)):
            dx = math.cos(math.radians(angle)) * (distance + box.width / 2)
            dy = math.sin(math.radians(angle)) * (distance + box.height / 2)
            moved = box.translated(dx, dy)
            is_inside = all(map(axes.bbox.contains, *moved.get_points().T))
            if is_inside and not moved.count_overlaps(taken):
                text.set_position((dx, dy))
                taken.append(moved)
                if distance > 12:
                    end = (point[0] + dx, point[1] + dy)
                    ends = axes.transData.inverted().transform([point, end])
                    axes.plot(*ends.T, color=color, linewidth=0.5, zorder=1)
                break


def main(results: Path = RESULTS, folder: Path = HERE, tables: Path = TABLES) -> None:
    """Writes the figure and the table to their folders."""
    panels = read_panels(results)
    folder.mkdir(parents=True, exist_ok=True)
    text = table(panels, attacks())
    (tables / "findings.md").write_text(text, encoding="utf-8")
    with style.context("default"):
        figure(panels).savefig(folder / "findings.png", dpi=150)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Draws the figure of What we found.")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    main(given.results, given.output or HERE, given.output or TABLES)
