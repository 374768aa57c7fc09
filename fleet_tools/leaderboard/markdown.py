"""A leaderboard as Markdown, for whoever reads the repository."""

import re
from collections.abc import Iterator, Sequence
from html import escape

from fleet_tools.leaderboard.board import (
    READING,
    SUBMITTING,
    Board,
    errors,
    facts,
    heads,
    interval,
    percent,
    trainings,
    words,
)
from fleet_tools.leaderboard.standings import Standing, Success


def as_markdown(board: Board) -> str:
    """Returns the page; the same board gives the same text."""
    return "\n".join([*_lines(board), ""])


def _lines(board: Board) -> Iterator[str]:
    protocol = board.protocol
    yield "# Leaderboard"
    title, description = _plain(protocol.title), _plain(protocol.description)
    yield f"\nBy the protocol {title}, `{board.digest}`. {description}"
    yield ""
    tasks, splits = list(protocol.tasks), list(protocol.splits)
    yield from _table(
        [words(head) for head in heads(board)],
        [_row(board, row, tasks, splits) for row in board.rows],
    )
    for paragraph in READING:
        yield f"\n{paragraph}"
    for row in board.rows:
        yield f"\n## {_plain(row.name)}\n"
        yield from _table(
            ["", *map(words, splits)],
            [
                [_plain(task), *(_success(of_task[split]) for split in splits)]
                for task, of_task in row.strata.items()
            ],
        )
        for told in facts(board, row):
            yield ""
            yield from (f"- {name}: {_code(value)}" for name, value in told)
    if board.findings:
        yield "\n## Refused\n"
        for finding in board.findings:
            yield f"- {_code(finding.folder)} ({finding.kind}): {_code(finding.what)}"
    yield "\n## How to submit\n"
    for number, (what, command) in enumerate(SUBMITTING, 1):
        yield f"{number}. {what}\n\n   ```bash\n   {command}\n   ```\n"


def _row(board: Board, row: Standing, tasks: Sequence[str], splits: Sequence[str]) -> list[str]:
    spread = trainings(row)
    return [
        "" if row.rank is None else str(row.rank),
        _plain(row.name) + (f"<br>{spread}" if spread else ""),
        _success(row.total),
        *(_success(row.tasks.get(task)) for task in tasks),
        *(_success(row.splits.get(split)) for split in splits),
        "" if row.any_time is None else percent(row.any_time),
        ", ".join(f"{count} {who}" for who, count in errors(row).items()),
        *([_verified(board.verified(row))] if board.verifications else []),
    ]


def _verified(counts: tuple[int, int] | None) -> str:
    return "" if counts is None else f"{counts[0]} of {counts[1]}"


def _success(success: Success | None) -> str:
    return "" if success is None else f"{percent(success.rate)}<br>{interval(success)}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(map(_plain, heads))} |"
    yield f"|{'---|' * len(heads)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def _plain(text: str) -> str:
    """Returns text that no reader of Markdown or HTML takes for anything but text."""
    text = escape(re.sub(r"\s+", " ", text), quote=False)
    return re.sub(r"([\\`*_{}\[\]()#+!|~:@])", r"\\\1", text)


def _code(text: str) -> str:
    """Returns text as code, whatever backticks are in it."""
    text = re.sub(r"\s+", " ", text).strip()
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence} {text} {fence}" if "`" in text else f"`{text}`"
