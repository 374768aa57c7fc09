"""The leaderboard as text and plain data for the terminal."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from fleet_tools.evaluation.scores import score
from fleet_tools.leaderboard.board import Board, Ranking
from fleet_tools.leaderboard.standings import Standing
from fleet_tools.leaderboard.submissions import Submission
from fleet_tools.leaderboard.tables import (
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
        "contact_metrics": overall and overall.contact_metrics,
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
            lines += [f"{ranking.heading}:", *_terminal_lines(ranking)]
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
        letters = ranking.letters.get(standing.label)
        notes = [
            f"letters {letters}" if letters else "",
            training_run_note(standing),
            reruns_text(standing),
        ]
        lines.append(f"  {rank}  {standing.label}: {', '.join(filter(None, [total, *notes]))}")
    return lines
