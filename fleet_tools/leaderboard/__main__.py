"""Makes a page of results: `python -m fleet_tools.leaderboard DIR --output PAGE.html`."""

import secrets
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from fleet_tools.config.values import Count, Seed
from fleet_tools.errors import FleetToolsError
from fleet_tools.evaluation.config import PROTOCOL
from fleet_tools.parallel.workers import WorkerOptions
from fleet_tools.utils import cli
from fleet_tools.utils.progress import progress_bar

# Results and Drake are imported once the arguments are known to be valid.
if TYPE_CHECKING:
    from fleet_tools.leaderboard.board import Board
    from fleet_tools.leaderboard.submissions import Submission


class LeaderboardOptions(cli.Options):
    """Checks results of `fleet_tools.evaluate`, and ranks them on one page, as HTML and Markdown.

    All numbers are recomputed from the episodes. A method is ranked once its results are verified:
    some of their episodes ran again here, and ended alike. What was verified is kept in
    DIR/verified.jsonl.

    Exit codes:
    0: all results are accepted.
    1: a result is rejected, or an episode could not run again; the page is written, and names it.
    2: it cannot begin.
    130: Ctrl-C.
    """

    results: Annotated[Path, Positional, arg(metavar="DIR")]
    """Folder that holds results, each method's in a folder of its name."""
    output: Annotated[Path | None, arg(metavar="PAGE.html")] = None
    """Page; its Markdown is written beside it, as PAGE.md (default: no page, only checks)."""
    preview: bool = False
    """Show incomplete results unranked, with what is missing, instead of rejecting them."""
    protocol: str = PROTOCOL
    """Name of the protocol of all results, with its levels; or path of your own, of a task file, or
    of a result that follows it."""
    verify: Count | None = None
    """Number of episodes of each result that run again from their actions. Results of which as many
    are verified already are left as they are."""
    again: bool = False
    """Let --verify run those again, too."""
    seed: Seed | None = None
    """Seed of the draw of episodes for --verify (default: a new one, which nobody knows before)."""
    checkpoints: Path | None = None
    """Folder of checkpoints: --verify runs the episodes of these by their policies, which see
    observations only, instead of from their actions."""
    clips: bool = False
    """Show a video of stored episodes of each method on the page."""
    workers: WorkerOptions = WorkerOptions()


def _make_leaderboard(options: LeaderboardOptions) -> int:
    from fleet_tools.evaluation.protocol_file import load_levels
    from fleet_tools.leaderboard.board import Board, RankedLevel, make_rankings
    from fleet_tools.leaderboard.submissions import read_submissions, without_refuted
    from fleet_tools.leaderboard.texts import as_text, summary

    _require_page(options.output)
    if options.clips:
        from fleet_tools.studio.pictures.clips import require_clips

        require_clips()
    levels = [*load_levels(options.protocol).values()]
    submissions, rejections = read_submissions(options.results, levels, preview=options.preview)
    complete, lost = _verify([each for each in submissions if not each.missing], options)
    kept, refuted = without_refuted(complete)
    board = Board(
        [RankedLevel.of(each) for each in levels],
        rankings=make_rankings(kept, levels),
        previews=[each for each in submissions if each.missing],
        rejections=[*rejections, *refuted],
        takes_submissions=options.protocol == PROTOCOL,
    )
    if options.clips:
        from fleet_tools.studio.pictures.clips import make_clips

        easiest = [each for each in board.standings if each.protocol == board.protocol]
        board = replace(board, clips=make_clips(easiest))
    if options.output is not None:
        _write(board, options.output)
    options.report(summary(board, options.output), lambda: as_text(board, options.output))
    _report_problems(board, complete, lost, options)
    return cli.FAILED if board.rejections or lost else cli.OK


def _report_problems(
    board: "Board",
    submissions: Sequence["Submission"],
    lost: Sequence[str],
    options: LeaderboardOptions,
) -> None:
    """Says on stderr what is rejected, differs or could not be verified."""
    for rejection in board.rejections:
        print(
            f"Rejected: {rejection.folder} ({rejection.kind}): {rejection.reason}", file=sys.stderr
        )
    if not options.preview and any(each.kind == "incomplete" for each in board.rejections):
        print("With --preview, incomplete results are shown unranked.", file=sys.stderr)
    for submission in submissions:
        for difference in submission.verification.differences if submission.verification else ():
            print(f"Different: {submission.folder}: {difference}", file=sys.stderr)
    for sentence in lost:
        print(f"Not verified: {sentence}", file=sys.stderr)
    unverified = [standing.label for standing in board.standings if not standing.verified]
    if unverified and options.verify is None:
        print(
            f"Not verified, and without rank: {', '.join(unverified)}. --verify 10 runs ten "
            "episodes of each of their results again.",
            file=sys.stderr,
        )


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
) -> tuple[list["Submission"], list[str]]:
    """Verifies results, and stores what came of it.

    Returns:
        The results, and a sentence for each episode that could not run again.
    """
    if options.verify is None:
        return list(submissions), []
    from fleet_tools.leaderboard.records import read_verifications, write_verifications
    from fleet_tools.leaderboard.verification import (
        draw_jobs,
        find_checkpoints,
        verify_submissions,
    )

    count = options.verify
    chosen = [each for each in submissions if options.again or not each.verified(count)]
    seed = secrets.randbelow(2**52) if options.seed is None else options.seed
    checkpoints = find_checkpoints(options.checkpoints) if chosen and options.checkpoints else {}
    jobs = draw_jobs(chosen, count, seed, checkpoints)
    with progress_bar(len(jobs), "episode", quiet=options.quiet) as bar:
        verified, lost = verify_submissions(chosen, jobs, count, seed, options.workers, bar.update)
    if verified:
        new = {each.folder: each.verification for each in verified if each.verification}
        write_verifications(options.results, {**read_verifications(options.results), **new})
    by_folder = {each.folder: each for each in verified}
    return [by_folder.get(each.folder, each) for each in submissions], lost


def _write(board: "Board", page: Path) -> None:
    from fleet_tools.leaderboard.page import as_html, as_markdown
    from fleet_tools.storage.atomic_files import write_file

    for path, text in ((page, as_html(board)), (page.with_suffix(".md"), as_markdown(board))):
        write_file(path, text)


PROGRAM = cli.Program("leaderboard", cli.Command(LeaderboardOptions, _make_leaderboard))
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
