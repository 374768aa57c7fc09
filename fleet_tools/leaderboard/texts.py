"""Words of the leaderboard's pages, and the leaderboard as text and plain data for the terminal."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from fleet_tools.leaderboard.board import Board, Method
from fleet_tools.leaderboard.tables import interval, percent, points, readable, same_actions

INTRO = (
    "Success on fresh scenes: the host runs each policy in scenes that it draws after the "
    "submission."
)
NOTHING = "No method has a rank yet: the entries are being measured again."
SELF_REPORTED = (
    "These results come without a policy that the host can run. They are as the submitters state "
    "them, at the level nominal, and have no rank."
)
READING = (
    "Methods have ranks among those that read the same. A rank is 1 plus the number of methods "
    "whose whole 95% interval of success lies above. Methods that share a letter cannot be told "
    "apart.",
    "The columns of levels show success by the submitted results. In brackets stands the "
    "difference to the same scenes at the level nominal, in points; it is bold if its 95% interval "
    "excludes zero. A dash means no result: a policy on keypoints, for instance, has no cameras.",
    "A method whose actions are identical to another one's in the same scenes says so, and only "
    "the one that was submitted first keeps its rank.",
)


def seed_text(board: Board) -> str:
    """Returns the seed of the fresh scenes in words."""
    if board.seed_published is None:
        return "Their seed is not published yet."
    return f"Their seed was {board.seed_published}."


def summary(board: Board, page: Path | None) -> dict[str, Any]:
    """Returns a board as plain data, for `--json`.

    Args:
        board: The board.
        page: Its page, if one was written.
    """
    values = asdict(board)
    for method in values["methods"]:
        del method["clip"]
    return {"page": None if page is None else str(page), **values}


def as_text(board: Board, page: Path | None) -> str:
    """Returns a board as text for the terminal, see `summary`."""
    lines = [f"  {_line(method, board)}" for method in board.methods]
    ranked = any(method.rank for method in board.methods)
    lines.append(seed_text(board) if ranked else NOTHING)
    if page is not None:
        lines.append(f"Written: {page} and {page.with_suffix('.md')}")
    return "\n".join(lines)


def _line(method: Method, board: Board) -> str:
    parts = [f"{method.track}, {percent(method.score and method.score.rate)}"]
    if method.score and method.score.rate is not None:
        parts[0] += f" ({interval(method.score.low, method.score.high)})"
    if method.letters:
        parts.append(f"letters {method.letters}")
    for name, _ in board.levels:
        if (found := method.levels.get(name)) is not None and found.rate is not None:
            cost = f" ({points(-found.cost.difference)})" if found.cost else ""
            parts.append(f"{readable(name)} {percent(found.rate)}{cost}")
    parts += ["self-reported"] * method.self_reported
    parts += filter(None, [same_actions(method)])
    return f"{method.rank or '-'}  {method.name}: {', '.join(parts)}"
