"""Makes a page of results: `python -m fleet_tools.leaderboard DIR --output PAGE.html`."""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from fleet_tools.errors import FleetToolsError
from fleet_tools.utils import cli as programs

if TYPE_CHECKING:
    from fleet_tools.leaderboard.board import Board
    from fleet_tools.leaderboard.submissions import Submission
    from fleet_tools.leaderboard.verification import Verification


def main(arguments: list[str] | None = None) -> int:
    """Runs the program; see `--help`."""
    return programs.run(_parser(), _make_leaderboard, arguments)


def _parser() -> argparse.ArgumentParser:
    parser = programs.argument_parser(
        "fleet_tools.leaderboard",
        "Checks the results of `python -m fleet_tools.evaluate`, computes every number again from "
        "their episodes, and ranks them on one page, as HTML and as Markdown.",
        "Exits with 0 when all is well, 1 when a result is refused or an episode comes out "
        "otherwise (the page is written, and says so), 2 when it cannot begin, 130 after Ctrl-C.",
    )
    parser.add_argument("folder", metavar="DIR", type=Path, help="that holds results, at any depth")
    parser.add_argument(
        "--output", metavar="PAGE.html", type=Path,
        help="the page; its Markdown lies beside it, as PAGE.md. Without it, only the checks",
    )  # fmt: skip
    parser.add_argument(
        "--protocol", metavar="NAME", default="v1",
        help="by which results are, or your own's path (v1)",
    )  # fmt: skip
    parser.add_argument(
        "--verify", metavar="N", type=programs.positive_int,
        help="run N episodes of each result again, from their actions, and compare every bit",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=programs.seed, default=0, help="draws which ones --verify takes (0)"
    )
    parser.add_argument("--clips", action="store_true", help="film an episode of each method")
    programs.add_worker_options(parser)
    return parser


def _make_leaderboard(options: argparse.Namespace) -> int:
    from fleet_tools.evaluation.protocol import load_protocol, protocol_digest, task_digests
    from fleet_tools.leaderboard.board import Board
    from fleet_tools.leaderboard.standings import standings
    from fleet_tools.leaderboard.submissions import read_submissions

    _require_page(options.output)
    if options.clips:
        from fleet_tools.leaderboard.clips import require_clips

        require_clips()
    protocol = load_protocol(options.protocol)
    submissions, findings = read_submissions(options.folder, protocol)
    rows = standings(submissions, protocol)
    verifications = _verify(submissions, options) if options.verify else []
    clips = {}
    if options.clips:
        from fleet_tools.leaderboard.clips import take_clips

        clips = take_clips(rows)
    board = Board(
        protocol=protocol,
        digest=protocol_digest(protocol, task_digests(protocol)),
        rows=rows,
        findings=findings,
        verifications={verification.folder: verification for verification in verifications},
        clips=clips,
    )
    if options.output:
        _write(board, options.output)
    if options.json:
        print(json.dumps(_summary(board, options.output)))
    elif not options.quiet:
        print(_report(board, options.output))
    for finding in findings:
        print(f"Refused: {finding.folder} ({finding.kind}): {finding.what}", file=sys.stderr)
    for verification in verifications:
        for difference in verification.differences:
            print(f"Otherwise: {verification.folder}: {difference}", file=sys.stderr)
    different = any(verification.differences for verification in verifications)
    return programs.NOT_WELL if findings or different else programs.OK


def _require_page(path: Path | None) -> None:
    if path is None:
        return
    if path.suffix != ".html":
        raise FleetToolsError(f"A page's name ends with .html; given: {path}")
    if not path.absolute().parent.is_dir():
        raise FleetToolsError(f"There is no folder {path.parent} for the page. Make it first.")


def _verify(
    submissions: Sequence["Submission"], options: argparse.Namespace
) -> list["Verification"]:
    from tqdm import tqdm

    from fleet_tools.leaderboard.verification import verify

    def progress(jobs: Iterable, total: int) -> Iterable:
        return tqdm(jobs, total=total, unit="episode", disable=options.quiet)

    return verify(
        submissions,
        options.verify,
        seed=options.seed,
        worker_keywords=programs.worker_keywords(options),
        progress=progress,
    )


def _write(board: "Board", page: Path) -> None:
    from fleet_tools.leaderboard.markdown import as_markdown
    from fleet_tools.leaderboard.page import as_html
    from fleet_tools.storage.atomic_files import whole

    for path, text in ((page, as_html(board)), (page.with_suffix(".md"), as_markdown(board))):
        with whole(path) as aside:
            aside.write_text(text, encoding="utf-8")


def _summary(board: "Board", page: Path | None) -> dict:
    return {
        "page": None if page is None else str(page),
        "protocol": board.protocol.title,
        "protocol_digest": board.digest,
        "methods": [
            {
                "rank": row.rank,
                "name": row.name,
                "results": [submission.folder for submission in row.submissions],
                "training_seeds": [training.seed for training in row.trainings],
                "total": row.total and asdict(row.total),
                "any_time": row.any_time,
                "tasks": {task: asdict(success) for task, success in row.tasks.items()},
                "splits": {split: asdict(success) for split, success in row.splits.items()},
            }
            for row in board.rows
        ],
        "refused": [asdict(finding) for finding in board.findings],
        "verified": [
            asdict(verification) | {"same": verification.same}
            for verification in board.verifications.values()
        ],
    }


def _report(board: "Board", page: Path | None) -> str:
    from fleet_tools.leaderboard.board import interval, percent, trainings

    lines = [f"{board.protocol.title} ({board.digest}): {len(board.rows)} methods"]
    for row in board.rows:
        total = f"{percent(row.total.rate)} ({interval(row.total)})" if row.total else "no total"
        verified = board.verified(row)
        notes = [trainings(row), f"verified {verified[0]} of {verified[1]}" if verified else ""]
        note = "".join(f", {note}" for note in notes if note)
        lines.append(f"  {'-' if row.rank is None else row.rank}  {row.name}: {total}{note}")
    if page is not None:
        lines.append(f"{page} and {page.with_suffix('.md').name} are written")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
