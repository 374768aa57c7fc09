"""Checks that a data set is what it says: `python -m fleet_tools.replay DIR`.

The stored actions run again from the stored scenes; everything must come out bit for bit.
"""

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium

from fleet_tools.errors import FleetToolsError
from fleet_tools.rollouts.episode import Difference, StoredActions, first_difference, rollout
from fleet_tools.utils import cli as programs

if TYPE_CHECKING:
    from fleet_tools.dataset import Dataset, Record


@dataclass(frozen=True)
class Replay:
    """What came of replaying one episode.

    Attributes:
        attempt, file: Which.
        identical: Whether all came out bit for bit.
        difference: Where it did not, first.
        stored_outcome, outcome: Then and now.
        error: What went wrong now, where something did.
    """

    attempt: int
    file: str
    identical: bool
    difference: Difference | None
    stored_outcome: str
    outcome: str | None
    error: str | None


def replay(dataset: "Dataset", record: "Record", env: gymnasium.Env) -> Replay:
    """Runs the stored actions of an attempt again.

    Args:
        dataset: Where it is stored.
        record: Of an attempt that is stored.
        env: See `fleet_tools.dataset.header.remake_environment`.
    """
    came: dict[str, Any] = {"difference": None, "outcome": None, "error": None}
    try:
        stored = dataset.episode(record.attempt)
        again = rollout(env, StoredActions(stored.actions), scene=stored.scene)
        difference = first_difference(stored, again)
        came = {"difference": difference, "outcome": again.outcome, "error": again.error}
        identical = difference is None
    except FleetToolsError as error:
        identical, came["error"] = False, str(error)
    return Replay(
        attempt=record.attempt,
        file=record.file,
        identical=identical,
        stored_outcome=record.outcome,
        **came,
    )


def make_replays(folder: Path) -> Callable[["Record"], Replay]:
    """Returns what replays attempts of a data set, with an environment of its own.

    Raises:
        FleetToolsError: There is no such data set, or its environment cannot be made here.
    """
    from fleet_tools.dataset import Dataset
    from fleet_tools.dataset.header import remake_environment

    dataset = Dataset(folder)
    return partial(replay, dataset, env=remake_environment(dataset.header))


# --- The program ----------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    """Runs the program; see `--help`."""
    return programs.run(_parser(), _replay, arguments)


def _parser() -> argparse.ArgumentParser:
    parser = programs.argument_parser(
        "fleet_tools.replay",
        "Runs the stored actions of a data set again, and compares every bit.",
        "Exits with 0 only when all episodes are identical, 1 when one is not, 2 when it cannot "
        "begin, 130 after Ctrl-C.",
    )
    parser.add_argument("folder", metavar="DIR", type=Path, help="of the data set")
    parser.add_argument(
        "--episodes", metavar="N", type=programs.positive_int, help="only so many, drawn by --seed"
    )
    parser.add_argument("--seed", type=programs.seed, default=0, help="draws which episodes (0)")
    parser.add_argument(
        "--output", metavar="FILE", type=Path, help="a report, one JSON object per line and episode"
    )
    programs.add_worker_options(parser)
    return parser


def _replay(options: argparse.Namespace) -> int:
    from fleet_tools.dataset import Dataset
    from fleet_tools.dataset.header import other_versions

    begun = time.perf_counter()
    dataset = Dataset(options.folder)
    records = dataset.draw(options.episodes, options.seed)
    replays = []
    with _lines(options.output) as write_line:
        for came in _replays(records, options):
            replays.append(came)
            write_line(json.dumps(asdict(came)))
    replays.sort(key=lambda replay: replay.attempt)
    summary = {
        **_summarize(replays),
        "seconds": round(time.perf_counter() - begun, 3),
        "other_versions": other_versions(dataset.header.packages),
        "folder": str(options.folder),
    }
    if options.json:
        print(json.dumps(summary))
    elif not options.quiet:
        print(_report(summary, replays))
    return programs.OK if summary["identical"] == summary["episodes"] else programs.NOT_WELL


def _replays(records: list["Record"], options: argparse.Namespace) -> Iterator[Replay]:
    """Yields what came of each, as soon as it is there; lost ones are not identical."""
    from tqdm import tqdm

    from fleet_tools.parallel import workers

    left = iter(records)
    results = workers.run(
        lambda: next(left, None),
        partial(make_replays, options.folder.resolve()),
        **programs.worker_keywords(options),
    )
    with (
        contextlib.closing(results),
        tqdm(total=len(records), unit="episode", disable=options.quiet) as bar,
    ):
        for record, result in results:
            bar.update()
            yield _lost(record, result.reason) if isinstance(result, workers.Lost) else result


def _lost(record: "Record", reason: str) -> Replay:
    return Replay(record.attempt, record.file, False, None, record.outcome, None, reason)


@contextlib.contextmanager
def _lines(path: Path | None) -> Iterator:
    if path is None:
        yield lambda line: None
    else:
        with path.open("w") as file:
            yield lambda line: print(line, file=file, flush=True)


def _summarize(replays: list[Replay]) -> dict[str, Any]:
    count = len(replays)
    identical = sum(replay.identical for replay in replays)
    stored_successes = sum(replay.stored_outcome == "success" for replay in replays)
    still = sum(r.stored_outcome == r.outcome == "success" for r in replays)
    return {
        "episodes": count,
        "identical": identical,
        "identical_share": identical / count,
        "stored_successes": stored_successes,
        "still_successes": still,
        "still_success_share": still / stored_successes if stored_successes else None,
    }


def _report(summary: dict[str, Any], replays: list[Replay]) -> str:
    lines = [
        f"{summary['folder']}: {summary['identical']} of {summary['episodes']} episodes identical "
        f"bit for bit ({summary['identical_share']:.1%}), in {summary['seconds']:.1f} s",
        f"  {summary['still_successes']} of {summary['stored_successes']} successes still succeed",
    ]
    for replay in replays:
        if replay.difference is not None:
            lines.append(
                f"  {replay.file}: from step {replay.difference.step} on, "
                f"{', '.join(replay.difference.what)}; ended as {replay.outcome}, then as "
                f"{replay.stored_outcome}"
            )
        elif not replay.identical:
            lines.append(f"  {replay.file}: {replay.error}")
    for name, (then, now) in summary["other_versions"].items():
        lines.append(f"  collected with {name} {then}; here is {now}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
