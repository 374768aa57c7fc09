"""The tables of the leaderboard as texts, for the HTML and Markdown pages."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fleet_tools.leaderboard.board import Board, LevelScore, Method, SuccessRate

READS: dict[str, str] = {
    "privileged": "simulator",
    "keypoints": "keypoints",
    "clouds": "point clouds",
    "images": "images",
}
"""Inputs of the methods of a track besides the robot's own sensors."""

NONE = "\N{EN DASH}"
"""Stands where a method has no result."""


class Cell(NamedTuple):
    """A cell of a table.

    Attributes:
        text: Its text.
        note: Small print behind it.
        kind: Class of the page's style: the column, or "costly" at a level that costs for sure.
        bar: The rate and its interval, in %, if they are drawn.
    """

    text: str
    note: str = ""
    kind: str = ""
    bar: tuple[float, float, float] | None = None


class Table(NamedTuple):
    """A table in a method's details.

    Attributes:
        columns: Names of its columns.
        rows: Its rows.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


def columns(board: Board, *, ranked: bool) -> list[Cell]:
    """Returns the headings of the table of methods."""
    names = ["rank"] * ranked + ["method", "reads", "success"] + ["letters"] * ranked
    levels = [Cell(readable(name), kind="level") for name, _ in board.levels]
    return [*(Cell(name, kind=name) for name in names), *levels]


def method_cells(method: Method, board: Board, *, ranked: bool) -> list[Cell]:
    """Returns the row of a method, a cell for each of `columns`."""
    places = [Cell(NONE if method.rank is None else str(method.rank), kind="rank")] * ranked
    letters = [Cell(method.letters, kind="letters")] * ranked
    return [
        *places,
        Cell(method.title, same_actions(method), "method"),
        Cell(READS.get(method.track, readable(method.track)), kind="reads"),
        _success(method.score, "success"),
        *letters,
        *(_level(method.levels.get(name)) for name, _ in board.levels),
    ]


def details(method: Method, board: Board) -> list[Table]:
    """Returns the tables of a method's details; those without rows are left out."""
    levels = [
        [Cell(readable(name)), _rate(found), Cell(*_cost(found))]
        for name, _ in board.levels
        if (found := method.levels.get(name)) is not None
    ]
    failures = sorted(method.failures.items(), key=lambda item: (-item[1], item[0]))
    tables = [
        Table(["level", "success", "against nominal, points"], levels),
        _rates("task", method.tasks),
        _rates("split", method.splits),
        Table(["fails at", "episodes"], [[Cell(readable(s)), Cell(str(n))] for s, n in failures]),
    ]
    return [table for table in tables if table.rows]


def by_stratum(board: Board) -> Table:
    """Returns the success rates of all methods by task, then by split."""
    tasks = dict.fromkeys(task for each in board.methods for task in each.tasks)
    splits = dict.fromkeys(split for each in board.methods for split in each.splits)
    rows = [
        [
            Cell(each.title),
            *(_rate(each.tasks.get(task)) for task in tasks),
            *(_rate(each.splits.get(split)) for split in splits),
        ]
        for each in board.methods
        if each.tasks or each.splits
    ]
    return Table(["method", *map(readable, [*tasks, *splits])], rows)


def same_actions(method: Method) -> str:
    """Returns which methods act alike, as a sentence; empty if none does."""
    return f"same actions as {', '.join(names)}" if (names := method.same_actions_as) else ""


def percent(rate: float | None) -> str:
    """Returns a rate such as "71%"; only 0 and 1 are "0%" and "100%"."""
    if rate is None:
        return NONE
    whole = f"{rate:.0%}"
    return whole if whole not in ("0%", "100%") or rate in (0, 1) else _inner(rate)


def _inner(rate: float) -> str:
    return f"{min(max(rate, 0.001), 0.999):.1%}"


def interval(low: float, high: float) -> str:
    """Returns an interval of rates such as "64% to 78%"."""
    return f"{percent(low)} to {percent(high)}"


def points(difference: float) -> str:
    """Returns a difference of rates in percentage points with its sign, such as "-14"."""
    return f"{value:+d}" if (value := round(100 * difference)) else "0"


def readable(name: str) -> str:
    """Returns a name with spaces, such as "unseen tools"."""
    return name.replace("_", " ")


def _rates(name: str, rates: Mapping[str, SuccessRate]) -> Table:
    rows = [[Cell(readable(each)), _rate(rate)] for each, rate in rates.items()]
    return Table([name, "success"], rows)


def _rate(found: SuccessRate | LevelScore | None) -> Cell:
    if found is None or found.rate is None:
        return Cell(NONE)
    return Cell(percent(found.rate), f"({interval(found.low, found.high)})")


def _success(found: SuccessRate | None, kind: str) -> Cell:
    cell = _rate(found)._replace(kind=kind)
    if found is None or found.rate is None:
        return cell
    return cell._replace(bar=(100 * found.rate, 100 * found.low, 100 * found.high))


def _level(found: LevelScore | None) -> Cell:
    if found is None or found.rate is None:
        return Cell(NONE, kind="level")
    if found.cost is None:
        return Cell(percent(found.rate), kind="level")
    costly = found.cost.low > 0
    note = f"({points(-found.cost.difference)})"
    return Cell(percent(found.rate), note, "level costly" if costly else "level")


def _cost(found: LevelScore) -> tuple[str, str]:
    if found.cost is None:
        return "", ""
    cost = found.cost
    note = f"({points(-cost.high)} to {points(-cost.low)}, {cost.pairs} pairs)"
    return points(-cost.difference), note
