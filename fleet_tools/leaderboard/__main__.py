"""Verifies entries, and makes the page: `python -m fleet_tools.leaderboard verify FOLDER`."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from fleet_tools.config.values import Count
from fleet_tools.errors import FleetToolsError, ResultError
from fleet_tools.evaluation.config import PROTOCOL
from fleet_tools.parallel.interrupts import deferred_interrupt
from fleet_tools.parallel.workers import WorkerOptions
from fleet_tools.utils import cli

# Results and Drake are imported once the arguments are known to be valid.
if TYPE_CHECKING:
    from fleet_tools.leaderboard.board import Board


class VerifyOptions(cli.Options):
    """Runs the policies of an entry, confined, in scenes that were drawn after its submission.

    All entries of a round are run in the same fresh scenes. The first verification of the round
    records all entries of DIR, and then draws the seed of these scenes. The host keeps the seed
    until `page --publish` ends the round. The same command resumes what was stopped.

    Exit codes:
    0: the entry is verified.
    1: a submitted result of it is rejected, or the disk is full or gone.
    2: it cannot begin.
    130: Ctrl-C, which waits for the episodes in progress.
    """

    folder: Annotated[Path, Positional, arg(metavar="FOLDER")]
    """Folder of the entry, DIR/entries/NAME; the host's record is DIR/host."""
    protocol: str = PROTOCOL
    """Protocol, or path of your own or of a task file. Its first level has the rules of the fresh
    scenes."""
    scenes: Count | None = None
    """Number of first fresh scenes of each task and split, for a first look without a rank
    (default: all)."""
    seed: str | None = None
    """Seed of a new round, for tests (default: a secret one)."""
    new_round: bool = False
    """Start another round; all entries have to be run in its scenes. The folder of the present one
    is kept as DIR/host_DATE."""
    workers: WorkerOptions = WorkerOptions()


class PageOptions(cli.Options):
    """Ranks methods on one page, as HTML and Markdown.

    A rank means that the host has run the policy, see `verify`. All numbers are computed from
    episodes.

    Exit codes:
    0: all entries are accepted.
    1: one is rejected, or a part of it; the page is written, and names it.
    2: it cannot begin.
    130: Ctrl-C.
    """

    directory: Annotated[Path, Positional, arg(metavar="DIR")]
    """Folder of the leaderboard, with entries/NAME and host."""
    output: Annotated[Path | None, arg(metavar="PAGE.html")] = None
    """Page; its Markdown is written beside it, as PAGE.md (default: no page, only checks)."""
    protocol: str = PROTOCOL
    """Protocol with its levels; or path of your own, or of a task file."""
    publish: bool = False
    """Publish the host's seed, which ends the round: no more entries are run in its scenes."""
    clips: bool = False
    """Show a video of each method in fresh scenes, after their seed is published."""


def _verify(options: VerifyOptions) -> int:
    from fleet_tools.evaluation.protocol_file import load_levels
    from fleet_tools.leaderboard.entries import read_entries, read_entry
    from fleet_tools.leaderboard.host import open_round, read_round
    from fleet_tools.leaderboard.verification import plan, verify_entry

    began = time.monotonic()
    entry = read_entry(options.folder)
    root = options.folder.absolute().parent.parent
    if options.folder.absolute().parent.name != "entries":
        raise ResultError(
            f"{options.folder} is not in a folder named entries. Move it to "
            f"DIR/entries/{entry.name}; the host's records are stored in DIR/host."
        )
    levels = [*load_levels(options.protocol).values()]
    entries, _ = read_entries(root)
    if options.new_round or read_round(root) is None:
        plan(entry, levels[0], 1, options.workers.timeout)  # raises before a seed is drawn
    round_ = open_round(root, levels[0], entries, options.seed, new=options.new_round)
    found, failure = None, None
    with deferred_interrupt() as interrupted:
        try:
            found = verify_entry(
                root,
                entry,
                round_,
                levels,
                options.workers,
                scenes=options.scenes,
                quiet=options.quiet,
                stop=interrupted,
            )
        except (KeyboardInterrupt, OSError) as error:
            failure = error
    if found is None:
        return cli.stopped(failure)
    wrong = {folder: reason for folder, (_, reason) in found.checked.items() if reason}
    for folder, reason in wrong.items():
        print(f"Rejected: {folder}: {reason}", file=sys.stderr)
    seconds = time.monotonic() - began
    summary = {
        "entry": entry.name,
        "submission": found.submission,
        "commitment": found.commitment,
        "evaluations": found.evaluations,
        "checked": {folder: reason for folder, (_, reason) in found.checked.items()},
        "seconds": round(seconds, 1),
    }
    options.report(
        summary,
        lambda: (
            f"{entry.name}: {len(found.evaluations)} policies run in fresh scenes, "
            f"{len(found.checked)} submitted results checked, in {seconds / 60:.1f} min\n"
            f"Hash of the seed: {found.commitment}"
        ),
    )
    return cli.FAILED if wrong else cli.OK


def _make_page(options: PageOptions) -> int:
    from fleet_tools.evaluation.protocol_file import load_levels
    from fleet_tools.leaderboard.host import publish, read_round
    from fleet_tools.leaderboard.standings import make_board
    from fleet_tools.leaderboard.texts import as_text, summary

    _require_page(options.output)
    if options.clips:
        from fleet_tools.studio.pictures.clips import require_clips

        require_clips()
    levels = [*load_levels(options.protocol).values()]
    if options.publish:
        publish(options.directory)
    board, standings = make_board(options.directory, levels)
    if options.clips:
        from fleet_tools.studio.pictures.clips import with_clips

        if board.seed_published is None:
            raise ResultError(
                "Clips would show fresh scenes, which are secret until the round ends. End it "
                "first with --publish."
            )
        round_ = read_round(options.directory)
        board = with_clips(board, standings, round_.protocol) if round_ else board
    if options.output is not None:
        _write(board, options.output)
    options.report(summary(board, options.output), lambda: as_text(board, options.output))
    for rejection in board.rejections:
        print(f"Rejected: {rejection.folder}: {rejection.reason}", file=sys.stderr)
    return cli.FAILED if board.rejections else cli.OK


def _require_page(path: Path | None) -> None:
    """Checks that a page can be written.

    Raises:
        FleetToolsError: Its name or its folder does not fit.
    """
    if path is None:
        return
    if path.suffix != ".html":
        raise FleetToolsError(f"Expected a page whose name ends with .html; given: {path}.")
    if not path.absolute().parent.is_dir():
        raise FleetToolsError(f"There is no folder {path.parent} for the page. Create it first.")


def _write(board: "Board", page: Path) -> None:
    from fleet_tools.leaderboard.page import as_html, as_markdown
    from fleet_tools.storage.atomic_files import write_file

    for path, text in ((page, as_html(board)), (page.with_suffix(".md"), as_markdown(board))):
        write_file(path, text)


PROGRAM = cli.Program(
    "leaderboard",
    {
        "verify": cli.Command(VerifyOptions, _verify),
        "page": cli.Command(PageOptions, _make_page),
    },
    "Runs the policies of entries in fresh scenes, and ranks them on one page.",
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
