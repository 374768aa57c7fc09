"""Checks that a dataset is reproducible: `python -m fleet_tools.replay data/hammer`.

The stored actions run again from the stored scenes, and three rates say how many episodes are
identical, have the same outcome, and stay within a distance besides.
"""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional

from fleet_tools.config.values import Count, NonNegative, Seed
from fleet_tools.parallel.workers import LostJob, WorkerOptions
from fleet_tools.utils import cli
from fleet_tools.utils.disk_errors import disk_errors
from fleet_tools.utils.progress import progress_bar

# Datasets and Drake are imported once the arguments are known to be valid.
if TYPE_CHECKING:
    from fleet_tools.dataset.replays import Replay
    from fleet_tools.dataset.stored_episode import AttemptRecord


class ReplayOptions(cli.Options):
    """Runs the stored actions of a dataset again, and compares bits, outcomes and positions.

    The distance of two episodes is the largest one between two positions of a point, over all
    steps: of the origin of the end effector, and of the keypoints of tool and object where they
    are observed (obs_mode state and multitask_state).

    Exit codes:
    0: all episodes are identical bit for bit.
    1: an episode is not identical.
    2: it cannot begin.
    130: Ctrl-C.
    """

    dataset: Annotated[Path, Positional]
    """Folder of the dataset."""
    episodes: Count | None = None
    """Number of episodes, drawn by --seed (default: all)."""
    seed: Seed = 0
    """Seed of the draw of episodes."""
    within: NonNegative = 0.001
    """Distance, m, up to which an episode with the same outcome counts as the same in state."""
    output: Path | None = None
    """Report, with one JSON object per line and episode."""
    workers: WorkerOptions = WorkerOptions()


def _replay(options: ReplayOptions) -> int:
    from fleet_tools.dataset.dataset_folder import Dataset
    from fleet_tools.dataset.replays import summarize
    from fleet_tools.rollouts.agreement import compared_points
    from fleet_tools.storage.provenance import other_versions

    started = time.perf_counter()
    dataset = Dataset(options.dataset)
    records = dataset.draw(options.episodes, options.seed)
    replays = []
    with _lines(options.output) as write_line:
        for replay in _replays(records, options):
            replays.append(replay)
            write_line(json.dumps(asdict(replay)))
    replays.sort(key=lambda replay: replay.attempt)
    summary = {
        **summarize(replays, options.within),
        "compared_points": compared_points(dataset.header.observation),
        "seconds": round(time.perf_counter() - started, 3),
        "other_versions": other_versions(dataset.header.packages),
        "folder": str(options.dataset),
    }
    options.report(summary, lambda: _as_text(summary, replays))
    return cli.OK if summary["identical"] == summary["episodes"] else cli.FAILED


def _replays(records: list["AttemptRecord"], options: ReplayOptions) -> Iterator["Replay"]:
    """Yields each replay as soon as it is there."""
    from fleet_tools.dataset.replays import Replay, make_replays

    results = options.workers.run(records, partial(make_replays, options.dataset.resolve()))
    with (
        contextlib.closing(results),
        progress_bar(len(records), "episode", quiet=options.quiet) as bar,
    ):
        for record, result in results:
            bar.update()
            lost = isinstance(result, LostJob)
            yield Replay.failed(record, result.reason) if lost else result


@contextlib.contextmanager
def _lines(path: Path | None) -> Iterator[Callable[[str], None]]:
    if path is None:
        yield lambda line: None
    else:
        with path.open("w", encoding="utf-8") as file:

            def write(line: str) -> None:
                with disk_errors(path):
                    print(line, file=file, flush=True)

            yield write


def _as_text(summary: dict[str, Any], replays: list["Replay"]) -> str:
    count, points = summary["episodes"], ", ".join(summary["compared_points"]).replace("_", " ")
    lines = [
        f"{summary['folder']}: {summary['identical']} of {count} episodes identical bit for bit "
        f"({summary['identical_share']:.1%}), in {summary['seconds']:.1f} s",
        f"  {summary['same_outcome']} of {count} have the same outcome after as many steps "
        f"({summary['same_outcome_share']:.1%})",
    ]
    if points:
        lines.append(
            f"  {summary['within']} of {count} have the same outcome within "
            f"{summary['within_m']:g} m ({summary['within_share']:.1%}); the largest distance is "
            f"{_metres(summary['largest_distance_m'])} ({points})"
        )
    lines.append(
        f"  {summary['still_successes']} of {summary['stored_successes']} successes still succeed"
    )
    for replay in replays:
        if replay.difference is not None:
            lines.append(
                f"  {replay.file}: differs from step {replay.difference.step} on, in "
                f"{', '.join(replay.difference.what)}; distance "
                f"{_metres(replay.distance_m)}; outcome {replay.outcome}, stored as "
                f"{replay.stored_outcome}"
            )
        elif not replay.identical:
            lines.append(f"  {replay.file}: {replay.error}")
    for name, (then, now) in summary["other_versions"].items():
        lines.append(f"  collected with {name} {then}; here it is {now}")
    return "\n".join(lines)


def _metres(distance: float | None) -> str:
    return "unknown" if distance is None else f"{distance:.3g} m"


PROGRAM = cli.Program("replay", cli.Command(ReplayOptions, _replay))
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
