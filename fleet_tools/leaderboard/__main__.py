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
    from fleet_tools.evaluation.protocol import Protocol
    from fleet_tools.leaderboard.board import Board
    from fleet_tools.leaderboard.result_folders import Rejection
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
    """Folder that holds results, those of each method in a folder of its name."""
    output: Annotated[Path | None, arg(metavar="PAGE.html")] = None
    """Page; its Markdown is written beside it, as PAGE.md (default: no page, only checks)."""
    preview: bool = False
    """Show incomplete results unranked, with what is missing, instead of rejecting them."""
    protocol: str = PROTOCOL
    """Name of the protocol of all results; or path of your own, of a task file, or of a result that
    follows it. Results of its former versions are shown apart, and cannot be verified."""
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
    from fleet_tools.evaluation.protocol import protocol_digest, task_digests
    from fleet_tools.evaluation.protocol_file import former_digests, load_protocol
    from fleet_tools.leaderboard.submissions import read_submissions
    from fleet_tools.leaderboard.summary import as_text, summary

    _require_page(options.output)
    if options.clips:
        from fleet_tools.studio.pictures.clips import require_clips

        require_clips()
    protocol = load_protocol(options.protocol)
    digest = protocol_digest(protocol, task_digests(protocol))
    submissions, rejections = read_submissions(
        options.results, protocol, former_digests(protocol), preview=options.preview
    )
    previews = [each for each in submissions if each.missing]
    present = [e for e in submissions if not e.missing and e.protocol_digest == digest]
    former = [e for e in submissions if not e.missing and e.protocol_digest != digest]
    present, lost = _verify(present, options)
    board = _make_board(protocol, digest, present, former, previews, rejections)
    board = replace(board, takes_submissions=options.protocol == PROTOCOL)
    if options.clips:
        from fleet_tools.studio.pictures.clips import make_clips

        board = replace(board, clips=make_clips(board.standings))
    if options.output is not None:
        _write(board, options.output)
    options.report(summary(board, options.output), lambda: as_text(board, options.output))
    _report_problems(board, present, lost, options)
    return cli.FAILED if board.rejections or lost else cli.OK


def _make_board(
    protocol: "Protocol",
    digest: str,
    present: Sequence["Submission"],
    former: Sequence["Submission"],
    previews: Sequence["Submission"],
    rejections: Sequence["Rejection"],
) -> "Board":
    from fleet_tools.leaderboard.board import Board, former_rankings, present_rankings
    from fleet_tools.leaderboard.submissions import without_refuted

    present, refuted = without_refuted(present)
    return Board(
        protocol,
        digest,
        rankings=present_rankings(present, protocol, digest),
        former=former_rankings(former),
        previews=previews,
        rejections=[*rejections, *refuted],
    )


def _report_problems(
    board: "Board",
    present: Sequence["Submission"],
    lost: Sequence[str],
    options: LeaderboardOptions,
) -> None:
    """Says on stderr what is rejected, differs or could not be verified."""
    for ranking in board.former if options.verify else ():
        results = sum(len(standing.submissions) for standing in ranking.standings)
        title = ranking.protocol.title
        print(f"Cannot be run again: {results} results, protocol {title}", file=sys.stderr)
    for rejection in board.rejections:
        print(
            f"Rejected: {rejection.folder} ({rejection.kind}): {rejection.reason}", file=sys.stderr
        )
    if not options.preview and any(each.kind == "incomplete" for each in board.rejections):
        print("With --preview, incomplete results are shown unranked.", file=sys.stderr)
    for submission in present:
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
    from fleet_tools.leaderboard.markdown import as_markdown
    from fleet_tools.leaderboard.page import as_html
    from fleet_tools.storage.atomic_files import write_file

    for path, text in ((page, as_html(board)), (page.with_suffix(".md"), as_markdown(board))):
        write_file(path, text)


PROGRAM = cli.Program("leaderboard", cli.Command(LeaderboardOptions, _make_leaderboard))
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
