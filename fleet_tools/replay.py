"""Checks that a dataset or result is reproducible: `python -m fleet_tools.replay data/hammer`.

The stored actions run again from the stored scenes, and three rates say how many episodes are
identical, have the same outcome, and stay within a distance besides.
"""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
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


class ReplayOptions(cli.Options):
    """Runs the stored actions of a dataset or result again, and compares bits and positions.

    The distance of two episodes is the largest one between two positions of a point, over all
    steps: of the origin of the end effector, and of the keypoints of tool and object where they
    are observed (obs_mode state and multitask_state). Of results, the last states are compared.

    Exit codes:
    0: all episodes are identical bit for bit.
    1: an episode is not identical.
    2: it cannot begin.
    130: Ctrl-C.
    """

    dataset: Annotated[Path, Positional]
    """Folder of the dataset, or of a result of `evaluate`."""
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
    from fleet_tools.dataset.replays import summarize
    from fleet_tools.evaluation.result_folder import RESULT
    from fleet_tools.storage.provenance import other_versions

    started = time.perf_counter()
    is_result = (options.dataset / RESULT).exists()
    source = _of_result(options) if is_result else _of_dataset(options)
    replays = []
    with _lines(options.output) as write_line:
        for replay in _replays(source, options):
            replays.append(replay)
            write_line(json.dumps(asdict(replay)))
    replays.sort(key=lambda replay: replay.attempt)
    summary = {
        **summarize(replays, options.within),
        "compared_points": source.points,
        "seconds": round(time.perf_counter() - started, 3),
        "other_versions": other_versions(source.packages),
        "folder": str(options.dataset),
    }
    options.report(summary, lambda: _as_text(summary, replays))
    return cli.OK if summary["identical"] == summary["episodes"] else cli.FAILED


@dataclass(frozen=True)
class _Source:
    """Episodes to replay.

    Attributes:
        records: Their records.
        make_replays: Returns a function that replays a record, see `WorkerOptions.run`.
        failed: Returns the replay of a record that could not be made, with an error.
        packages: Versions of packages with which they were made.
        points: Kinds of points that are compared.
    """

    records: list[Any]
    make_replays: Callable[[Path], Callable[[Any], "Replay"]]
    failed: Callable[[Any, str], "Replay"]
    packages: Mapping[str, str]
    points: list[str]


def _of_dataset(options: ReplayOptions) -> _Source:
    from fleet_tools.dataset.dataset_folder import Dataset
    from fleet_tools.dataset.replays import Replay, make_replays
    from fleet_tools.rollouts.agreement import compared_points

    dataset = Dataset(options.dataset)
    records, header = dataset.draw(options.episodes, options.seed), dataset.header
    points = compared_points(header.observation)
    return _Source(records, make_replays, Replay.failed, header.packages, points)


def _of_result(options: ReplayOptions) -> _Source:
    from fleet_tools.evaluation.replays import draw_episodes, failed_replay, make_replays
    from fleet_tools.evaluation.result_folder import load_evaluation

    evaluation = load_evaluation(options.dataset)
    records = draw_episodes(evaluation, options.episodes, options.seed)
    points = list(dict.fromkeys(name for _, each in records for name in each.final_points_m or ()))
    return _Source(records, make_replays, failed_replay, evaluation.result.packages, points)


def _replays(source: _Source, options: ReplayOptions) -> Iterator["Replay"]:
    """Yields each replay as soon as it is there."""
    make = partial(source.make_replays, options.dataset.resolve())
    results = options.workers.run(source.records, make)
    with (
        contextlib.closing(results),
        progress_bar(len(source.records), "episode", quiet=options.quiet) as bar,
    ):
        for record, result in results:
            bar.update()
            lost = isinstance(result, LostJob)
            yield source.failed(record, result.reason) if lost else result


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
        lines.append(f"  made with {name} {then}; here it is {now}")
    return "\n".join(lines)


def _metres(distance: float | None) -> str:
    return "unknown" if distance is None else f"{distance:.3g} m"


PROGRAM = cli.Program("replay", cli.Command(ReplayOptions, _replay))
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
