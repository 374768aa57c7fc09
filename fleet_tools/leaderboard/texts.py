"""The leaderboard as Markdown for the repository, and as text and plain data for the terminal."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any

from fleet_tools.evaluation.scores import score
from fleet_tools.leaderboard.board import (
    AcrossLevels,
    Board,
    Ranking,
    Reruns,
    across_levels,
    reruns,
)
from fleet_tools.leaderboard.facts import facts
from fleet_tools.leaderboard.standings import Standing, SuccessRate
from fleet_tools.leaderboard.submissions import Submission
from fleet_tools.leaderboard.wording import (
    ACROSS,
    HANDLING_NOTE,
    HEADINGS,
    PREVIEW,
    READING,
    SUBMITTING,
    SUBMITTING_PAGE,
    across_columns,
    column_names,
    error_counts,
    handling_cells,
    handling_columns,
    has_handling,
    has_reruns,
    heading,
    interval,
    level_text,
    notes,
    part_text,
    percent,
    policies_text,
    preview_columns,
    preview_rates,
    preview_row,
    ranking_notes,
    readable,
    reruns_text,
    training_run_note,
)


def as_markdown(board: Board) -> str:
    """Returns the page; the same board gives the same text."""
    return "\n".join([*_lines(board), ""])


def _lines(board: Board) -> Iterator[str]:
    yield "# Leaderboard"
    several = len(board.levels) > 1
    if several and board.standings:
        yield f"\n## Levels\n\n{ACROSS}\n"
        rows = [_across(each) for each in across_levels(board)]
        yield from _table(across_columns(board), rows)
    for level in board.levels:
        name = _plain(level.protocol.level_name.capitalize())
        yield f"\n## Level: {name}" if several else ""
        yield f"\nProtocol {_plain(level_text(level))} `{level.digest}`"
        rankings = board.rankings_of(level)
        for ranking in rankings:
            hashes = "###" if several else "##"
            yield f"\n{hashes} {heading(ranking)}\n\n{ranking_notes(ranking)}"
            yield from _table_of(ranking)
            yield from _handling_of(ranking)
        if several and not rankings:
            yield "\nNo results yet."
    if board.standings:
        yield "\n## How to read it"
        for paragraph in READING:
            yield f"\n{paragraph}"
    for standing in board.standings:
        yield from _method(standing)
    if board.previews:
        yield f"\n## Preview\n\n{PREVIEW}\n"
        yield from _table(
            [readable(name) for name in preview_columns(board)],
            [list(map(_plain, preview_row(board, each))) for each in board.previews],
        )
    if board.rejections:
        yield "\n## Rejected\n"
        for rejection in board.rejections:
            yield f"- {_code(rejection.folder)} ({rejection.kind}): {_code(rejection.reason)}"
    steps = SUBMITTING if board.takes_submissions else ()
    if steps:
        link = f"[{SUBMITTING_PAGE}](../{SUBMITTING_PAGE})"
        yield f"\n## How to submit\n\n{link} says more. In short:\n"
    for number, (step, commands) in enumerate(steps, 1):
        lines = "\n   ".join(("```bash", *commands, "```"))
        yield f"{number}. {step}\n\n   {lines}\n"


def _across(row: AcrossLevels) -> list[str]:
    """Returns the cells of a method in the table of all levels."""
    cells = [HEADINGS[row.track], _plain(row.name), _plain(policies_text(row.some))]
    for standing in row.standings:
        if standing is None:
            cells.append("")
        elif standing.overall is None:
            cells.append(_plain(part_text(standing)))
        else:
            cells.append(_success_rate(standing.overall.total))
    return cells


def _table_of(ranking: Ranking) -> Iterator[str]:
    """Yields the table of a ranking's methods."""
    yield ""
    yield from _table(
        [readable(name) for name in column_names(ranking)],
        [_row(ranking, standing) for standing in ranking.standings],
    )


def _handling_of(ranking: Ranking) -> Iterator[str]:
    """Yields the table of how the methods of a ranking handle the tasks, if that is known."""
    if has_handling(ranking):
        yield f"\n{HANDLING_NOTE}\n"
        rows = [
            [
                _plain(each.label),
                _success_rate(each.overall.total if each.overall else None),
                *(text for _, text in handling_cells(each)),
            ]
            for each in ranking.standings
        ]
        yield from _table([readable(name) for name in handling_columns()], rows)


def _row(ranking: Ranking, standing: Standing) -> list[str]:
    overall = standing.overall
    splits = overall.splits if overall else {}
    return [
        str(overall.rank) if overall and overall.rank else "",
        "<br>".join(map(_plain, [standing.label, *notes(standing)])),
        _success_rate(overall.total if overall else None),
        ranking.letters.get(standing.label, ""),
        *(_success_rate(standing.tasks.get(task)) for task in ranking.protocol.tasks),
        *(_success_rate(splits.get(split)) for split in ranking.protocol.splits),
        _plain(policies_text(standing)),
        "" if overall is None or overall.success_once is None else percent(overall.success_once),
        ", ".join(f"{count} {origin}" for origin, count in error_counts(standing).items()),
        *([_verified(reruns(standing))] if has_reruns(ranking) else []),
    ]


def _method(standing: Standing) -> Iterator[str]:
    protocol = standing.protocol
    splits, level = protocol.splits, f", {protocol.level}" if protocol.level else ""
    yield f"\n## {_plain(standing.label + level)}\n"
    if standing.description:
        yield f"{_plain(standing.description)}\n"
    yield from _table(
        ["", *map(readable, splits)],
        [
            [_plain(task), *(_success_rate(of_task[split]) for split in splits)]
            for task, of_task in standing.strata.items()
        ],
    )
    for of_result in facts(standing):
        yield ""
        yield from (f"- {name}: {_code(value)}" for name, value in of_result)


def _verified(again: Reruns | None) -> str:
    return "" if again is None else reruns_text(again)


def _success_rate(rate: SuccessRate | None) -> str:
    return "" if rate is None else f"{percent(rate.rate)}<br>{interval(rate)}"


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(map(_plain, names))} |"
    yield f"|{'---|' * len(names)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def _plain(text: str) -> str:
    """Returns text that Markdown and HTML show literally."""
    text = escape(re.sub(r"\s+", " ", text), quote=False)
    return re.sub(r"([\\`*_{}\[\]()#+!|~:@])", r"\\\1", text)


def _code(text: str) -> str:
    """Returns text as inline code, with a fence longer than any run of backticks in it."""
    text = re.sub(r"\s+", " ", text).strip()
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence} {text} {fence}" if "`" in text else f"`{text}`"


# --- For the terminal -----------------------------------------------------------------------


def summary(board: Board, page: Path | None) -> dict[str, Any]:
    """Returns a board as plain data, for `--json`.

    Args:
        board: The board.
        page: Its page, if one was written.
    """
    submissions = [e for each in board.standings for e in each.submissions]
    found = [each.verification for each in submissions]
    certified = [each.certificate for each in submissions]
    return {
        "page": None if page is None else str(page),
        "protocol": board.protocol.title,
        "protocol_digest": board.levels[0].digest,
        "levels": [
            {
                "name": each.protocol.level_name,
                "protocol": each.protocol.title,
                "digest": each.digest,
            }
            for each in board.levels
        ],
        "methods": [
            _plain_method(each)
            | {"ranking": ranking.kind, "letters": ranking.letters.get(each.label, "")}
            for ranking in board.rankings
            for each in ranking.standings
        ],
        "preview": [_plain_preview(submission) for submission in board.previews],
        "rejected": [asdict(rejection) for rejection in board.rejections],
        "verified": [each.model_dump() for each in found if each is not None],
        "certified": [each.model_dump() for each in certified if each is not None],
    }


def _plain_preview(submission: Submission) -> dict[str, Any]:
    protocol = submission.evaluation.result.protocol
    tasks = score(protocol, submission.evaluation.episodes).tasks
    return {
        "level": protocol.level_name,
        "name": submission.policy.name,
        "sensors": submission.policy.sensors,
        "training_seed": submission.policy.training_seed,
        "folder": submission.folder,
        "missing": submission.missing,
        "tasks": {task: of_task.success.model_dump() for task, of_task in tasks.items()},
    }


def _plain_method(standing: Standing) -> dict[str, Any]:
    overall = standing.overall
    return {
        "rank": overall and overall.rank,
        "name": standing.name,
        "sensors": standing.sensors,
        "track": standing.track,
        "level": standing.protocol.level_name,
        "policies": standing.policies,
        "results": [submission.folder for submission in standing.submissions],
        "training_seeds": [run.seed for run in standing.training_runs],
        "total": overall and asdict(overall.total),
        "success_once": overall and overall.success_once,
        "gentle": overall and overall.gentle,
        "handling": overall and overall.handling,
        "tasks": {task: asdict(rate) for task, rate in standing.tasks.items()},
        "splits": {
            split: asdict(rate) for split, rate in (overall.splits if overall else {}).items()
        },
    }


def as_text(board: Board, page: Path | None) -> str:
    """Returns a board as text for the terminal, see `summary`."""
    lines = []
    for level in board.levels:
        rankings = board.rankings_of(level)
        methods = sum(len(ranking.standings) for ranking in rankings)
        lines.append(f"{level.protocol.title} ({level.digest}): {methods} methods")
        for ranking in rankings:
            lines += [f"{heading(ranking)}:", *_terminal_lines(ranking)]
    for submission in board.previews:
        rates = [f"{task} {text}" for task, text in preview_rates(submission).items()]
        name, folder = submission.policy.label, submission.folder
        method = "" if name in Path(folder).parts else f" ({name})"
        lines.append(f"Preview: {folder}{method}: {', '.join(rates)}; {submission.missing}")
    if page is not None:
        lines.append(f"Written: {page} and {page.with_suffix('.md')}")
    return "\n".join(lines)


def _terminal_lines(ranking: Ranking) -> list[str]:
    lines = []
    for standing in ranking.standings:
        rank, total = "-", "no total"
        if standing.overall:
            rate = standing.overall.total
            rank = str(standing.overall.rank or "-")
            total = f"{percent(rate.rate)} ({interval(rate)})"
        again = reruns(standing)
        letters = ranking.letters.get(standing.label)
        notes = [
            f"letters {letters}" if letters else "",
            training_run_note(standing),
            reruns_text(again) if again else "",
        ]
        lines.append(f"  {rank}  {standing.label}: {', '.join(filter(None, [total, *notes]))}")
    return lines
