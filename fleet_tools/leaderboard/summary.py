"""The leaderboard as the program prints it, as text and as plain data."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from fleet_tools.evaluation.scores import score
from fleet_tools.leaderboard.board import Board, Ranking, reruns
from fleet_tools.leaderboard.standings import Standing
from fleet_tools.leaderboard.submissions import Submission
from fleet_tools.leaderboard.wording import (
    heading,
    interval,
    percent,
    preview_rates,
    reruns_text,
    training_run_note,
)


def summary(board: Board, page: Path | None) -> dict[str, Any]:
    """Returns a board as plain data, for `--json`.

    Args:
        board: The board.
        page: Its page, if one was written.
    """
    found = [e.verification for each in board.standings for e in each.submissions]
    return {
        "page": None if page is None else str(page),
        "protocol": board.protocol.title,
        "protocol_digest": board.digest,
        "methods": [
            _method(each) | {"ranking": ranking.kind}
            for ranking in board.rankings
            for each in ranking.standings
        ],
        "former": [_former(ranking) for ranking in board.former],
        "preview": [_preview(board, submission) for submission in board.previews],
        "rejected": [asdict(rejection) for rejection in board.rejections],
        "verified": [each.model_dump() for each in found if each is not None],
    }


def _preview(board: Board, submission: Submission) -> dict[str, Any]:
    tasks = score(board.protocol, submission.evaluation.episodes).tasks
    return {
        "name": submission.policy.name,
        "sensors": submission.policy.sensors,
        "training_seed": submission.policy.training_seed,
        "folder": submission.folder,
        "missing": submission.missing,
        "tasks": {task: of_task.success.model_dump() for task, of_task in tasks.items()},
    }


def _former(ranking: Ranking) -> dict[str, Any]:
    return {
        "protocol": ranking.protocol.title,
        "protocol_digest": ranking.digest,
        "methods": [_method(standing) for standing in ranking.standings],
    }


def _method(standing: Standing) -> dict[str, Any]:
    overall = standing.overall
    return {
        "rank": overall and overall.rank,
        "name": standing.name,
        "sensors": standing.sensors,
        "track": standing.track,
        "results": [submission.folder for submission in standing.submissions],
        "training_seeds": [run.seed for run in standing.training_runs],
        "total": overall and asdict(overall.total),
        "success_once": overall and overall.success_once,
        "tasks": {task: asdict(rate) for task, rate in standing.tasks.items()},
        "splits": {
            split: asdict(rate) for split, rate in (overall.splits if overall else {}).items()
        },
    }


def as_text(board: Board, page: Path | None) -> str:
    """Returns a board as text for the terminal, see `summary`."""
    lines = [f"{board.protocol.title} ({board.digest}): {len(board.standings)} methods"]
    for ranking in board.rankings:
        lines += [f"{heading(ranking)}:", *_lines(ranking)]
    for former in board.former:
        title, count = former.protocol.title, len(former.standings)
        lines += [f"as of {title} ({former.digest}): {count} methods", *_lines(former)]
    for submission in board.previews:
        rates = [
            f"{task} {text}" for task, text in preview_rates(board.protocol, submission).items()
        ]
        name, folder = submission.policy.label, submission.folder
        method = "" if name in Path(folder).parts else f" ({name})"
        lines.append(f"Preview: {folder}{method}: {', '.join(rates)}; {submission.missing}")
    if page is not None:
        lines.append(f"Written: {page} and {page.with_suffix('.md')}")
    return "\n".join(lines)


def _lines(ranking: Ranking) -> list[str]:
    lines = []
    for standing in ranking.standings:
        rank, total = "-", "no total"
        if standing.overall:
            rate = standing.overall.total
            rank = str(standing.overall.rank or "-")
            total = f"{percent(rate.rate)} ({interval(rate)})"
        again = reruns(standing)
        notes = [
            training_run_note(standing),
            reruns_text(again) if again else "",
        ]
        lines.append(f"  {rank}  {standing.label}: {', '.join(filter(None, [total, *notes]))}")
    return lines
