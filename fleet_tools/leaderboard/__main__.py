"""Makes a page of results: `python -m fleet_tools.leaderboard DIR --output PAGE.html`."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from fleet_tools.config.values import Count, Seed
from fleet_tools.errors import FleetToolsError
from fleet_tools.evaluation.config import PROTOCOL
from fleet_tools.parallel.options import WorkerOptions
from fleet_tools.utils import cli
from fleet_tools.utils.progress import progress_bar

# Results and Drake are imported once the arguments are known to be valid.
if TYPE_CHECKING:
    from fleet_tools.leaderboard.board import Board, Ranking
    from fleet_tools.leaderboard.standings import Standing
    from fleet_tools.leaderboard.submissions import Submission
    from fleet_tools.leaderboard.verification import Verification


class LeaderboardOptions(cli.Options):
    """Checks results of `fleet_tools.evaluate`, and ranks them on one page, as HTML and Markdown.

    All numbers are recomputed from the episodes.

    Exit codes:
    0: all results are accepted, and all verified episodes are identical.
    1: a result is rejected, or an episode differs; the page is written, and names it.
    2: it cannot begin.
    130: Ctrl-C.
    """

    results: Annotated[Path, Positional, arg(metavar="DIR")]
    """Folder that holds results, at any depth."""
    output: Annotated[Path | None, arg(metavar="PAGE.html")] = None
    """Page; its Markdown is written beside it, as PAGE.md (default: no page, only checks)."""
    preview: bool = False
    """Show incomplete results unranked, with what is missing, instead of rejecting them."""
    protocol: str = PROTOCOL
    """Name of the protocol of all results, or path of your own. Results of its former versions are
    shown apart, and cannot be verified."""
    verify: Count | None = None
    """Number of episodes of each result that run again from their actions, compared bit for bit."""
    seed: Seed = 0
    """Seed of the draw of episodes for --verify."""
    clips: bool = False
    """Show a video of stored episodes of each method on the page."""
    workers: WorkerOptions = WorkerOptions()


def _make_leaderboard(options: LeaderboardOptions) -> int:
    from fleet_tools.evaluation.protocol import (
        former_digests,
        load_protocol,
        protocol_digest,
        task_digests,
    )
    from fleet_tools.leaderboard.board import Board, Ranking, former_rankings
    from fleet_tools.leaderboard.standings import rank_methods
    from fleet_tools.leaderboard.submissions import read_submissions

    _require_page(options.output)
    if options.clips:
        from fleet_tools.visualization.clips import require_clips

        require_clips()
    protocol = load_protocol(options.protocol)
    digest = protocol_digest(protocol, task_digests(protocol))
    submissions, rejections = read_submissions(
        options.results, protocol, former_digests(protocol), preview=options.preview
    )
    previews = [each for each in submissions if each.missing]
    submissions = [each for each in submissions if not each.missing]
    present = [each for each in submissions if each.protocol_digest == digest]
    former = [each for each in submissions if each.protocol_digest != digest]
    standings = rank_methods(present, protocol)
    verifications = _verify(present, options)
    clips = {}
    if options.clips:
        from fleet_tools.visualization.clips import make_clips

        clips = make_clips(standings)
    board = Board(
        current=Ranking(protocol, digest, standings, {each.folder: each for each in verifications}),
        former=former_rankings(former),
        previews=previews,
        rejections=rejections,
        clips=clips,
    )
    if options.output is not None:
        _write(board, options.output)
    options.report(_summary(board, options.output), lambda: _as_text(board, options.output))
    for ranking in board.former if options.verify else ():
        results = sum(len(standing.submissions) for standing in ranking.standings)
        title = ranking.protocol.title
        print(f"Cannot be run again: {results} results, protocol {title}", file=sys.stderr)
    for rejection in rejections:
        print(
            f"Rejected: {rejection.folder} ({rejection.kind}): {rejection.reason}", file=sys.stderr
        )
    if not options.preview and any(rejection.kind == "incomplete" for rejection in rejections):
        print("With --preview, incomplete results are shown unranked.", file=sys.stderr)
    differences = [(each.folder, text) for each in verifications for text in each.differences]
    for folder, difference in differences:
        print(f"Different: {folder}: {difference}", file=sys.stderr)
    return cli.FAILED if rejections or differences else cli.OK


def _require_page(path: Path | None) -> None:
    """Checks that a page can be written.

    Raises:
        FleetToolsError: Its name or its folder does not fit.
    """
    if path is None:
        return
    if path.suffix != ".html":
        raise FleetToolsError(f"The name of a page ends with .html; given: {path}.")
    if not path.absolute().parent.is_dir():
        raise FleetToolsError(f"There is no folder {path.parent} for the page. Create it first.")


def _verify(
    submissions: Sequence["Submission"], options: LeaderboardOptions
) -> list["Verification"]:
    if options.verify is None:
        return []
    from fleet_tools.leaderboard.verification import draw_jobs, verify_submissions

    jobs = draw_jobs(submissions, options.verify, options.seed)
    with progress_bar(len(jobs), "episode", quiet=options.quiet) as bar:
        return verify_submissions(submissions, jobs, options.workers, bar.update)


def _write(board: "Board", page: Path) -> None:
    from fleet_tools.leaderboard.markdown import as_markdown
    from fleet_tools.leaderboard.page import as_html
    from fleet_tools.storage.atomic_files import atomic_write

    for path, text in ((page, as_html(board)), (page.with_suffix(".md"), as_markdown(board))):
        with atomic_write(path) as aside:
            aside.write_text(text, encoding="utf-8")


def _summary(board: "Board", page: Path | None) -> dict[str, Any]:
    return {
        "page": None if page is None else str(page),
        **_ranking(board.current),
        "former": [_ranking(ranking) for ranking in board.former],
        "preview": [_preview(board, submission) for submission in board.previews],
        "rejected": [asdict(rejection) for rejection in board.rejections],
        "verified": [
            asdict(verification) | {"same": verification.same}
            for verification in board.current.verifications.values()
        ],
    }


def _preview(board: "Board", submission: "Submission") -> dict[str, Any]:
    from fleet_tools.evaluation.scores import score

    tasks = score(board.current.protocol, submission.evaluation.episodes).tasks
    return {
        "name": submission.policy.name,
        "folder": submission.folder,
        "missing": submission.missing,
        "tasks": {task: of_task.success.model_dump() for task, of_task in tasks.items()},
    }


def _ranking(ranking: "Ranking") -> dict[str, Any]:
    return {
        "protocol": ranking.protocol.title,
        "protocol_digest": ranking.digest,
        "methods": [_method(standing) for standing in ranking.standings],
    }


def _method(standing: "Standing") -> dict[str, Any]:
    overall = standing.overall
    return {
        "rank": overall and overall.rank,
        "name": standing.name,
        "results": [submission.folder for submission in standing.submissions],
        "training_seeds": [run.seed for run in standing.training_runs],
        "total": overall and asdict(overall.total),
        "success_once": overall and overall.success_once,
        "tasks": {task: asdict(rate) for task, rate in standing.tasks.items()},
        "splits": {
            split: asdict(rate) for split, rate in (overall.splits if overall else {}).items()
        },
    }


def _as_text(board: "Board", page: Path | None) -> str:
    from fleet_tools.leaderboard.wording import preview_rates

    lines = _lines(board.current)
    for former in board.former:
        lines += _lines(former, "as of ")
    for submission in board.previews:
        rates = [
            f"{task} {text}"
            for task, text in preview_rates(board.current.protocol, submission).items()
        ]
        lines.append(
            f"Preview: {submission.folder}: {submission.policy.name}: {', '.join(rates)}; "
            f"{submission.missing}"
        )
    if page is not None:
        lines.append(f"Written: {page} and {page.with_suffix('.md')}")
    return "\n".join(lines)


def _lines(ranking: "Ranking", as_of: str = "") -> list[str]:
    from fleet_tools.leaderboard.wording import interval, percent, training_run_note

    title, count = f"{as_of}{ranking.protocol.title}", len(ranking.standings)
    lines = [f"{title} ({ranking.digest}): {count} methods"]
    for standing in ranking.standings:
        rank, total = "-", "no total"
        if standing.overall:
            rate = standing.overall.total
            rank, total = str(standing.overall.rank), f"{percent(rate.rate)} ({interval(rate)})"
        verified = ranking.verified(standing)
        notes = [
            training_run_note(standing),
            f"verified {verified[0]} of {verified[1]}" if verified else "",
        ]
        lines.append(f"  {rank}  {standing.name}: {', '.join(filter(None, [total, *notes]))}")
    return lines


PROGRAM = cli.Program("leaderboard", cli.Command(LeaderboardOptions, _make_leaderboard))
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
