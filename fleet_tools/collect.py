"""Collects demonstrations: `python -m fleet_tools.collect --tool hammer --episodes 20`.

Attempt k of seed s is the same bytes on every run: its scene's seed is `scene_seed(s, k)`.
"""

import argparse
import contextlib
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from fleet_tools import programs
from fleet_tools.episode import Episode, Policy, rollout
from fleet_tools.errors import SimulationError, UnknownNameError
from fleet_tools.outcomes import SIMULATION_ERROR
from fleet_tools.registration import make_environment

# Data sets, tasks and Drake are imported once the arguments are known to be good.
if TYPE_CHECKING:
    from fleet_tools.dataset import DatasetWriter, Record


def _expert(env: gymnasium.Env) -> Policy:
    from fleet_tools.experts.policy import ExpertPolicy

    return ExpertPolicy(env)


POLICIES: dict[str, Callable[[gymnasium.Env], Policy]] = {"expert": _expert}
"""What can collect: a policy for an environment, by name."""


def make_policy(name: str, env: gymnasium.Env) -> Policy:
    """Makes a policy.

    Raises:
        UnknownNameError: There is no such policy.
    """
    if name not in POLICIES:
        raise UnknownNameError("policy", name, POLICIES)
    return POLICIES[name](env)


def scene_seed(seed: int, attempt: int) -> int:
    """Returns the seed of an attempt's scene, below 2^53, so that every JSON reader keeps it.

    Data sets of different seeds share no scenes.
    """
    return int(np.random.SeedSequence([seed, attempt]).generate_state(1, np.uint64)[0] >> 11)


def collect_episode(
    task: str,
    seed: int,
    *,
    policy: str = "expert",
    env: gymnasium.Env | None = None,
    **keywords: Any,
) -> Episode:
    """Collects one episode; the same arguments give the same episode.

    Args:
        task: Name of a task of the package, or path of a task file.
        seed: Of the scene.
        policy: See `POLICIES`.
        env: An environment of that task to use again; made for the occasion if None.
        keywords: Of the environment that is made.

    Raises:
        FleetToolsError: There is no such task or policy, or the scene cannot begin.
    """
    if env is not None:
        return rollout(env, make_policy(policy, env), seed=seed)
    env = make_environment(task=task, **keywords)
    try:
        return rollout(env, make_policy(policy, env), seed=seed)
    finally:
        env.close()


def fill(
    writer: "DatasetWriter",
    collect: Callable[[int], Episode],
    episodes: int,
    after_each: Callable[["Record"], None] = lambda record: None,
) -> None:
    """Attempts episodes until a data set holds so many successful ones, or the limit is reached.

    Args:
        writer: Of the data set, which may hold some already.
        collect: Makes the episode of a scene's seed.
        episodes: Successful ones, at last.
        after_each: Is told what came of each attempt.
    """
    header, limit = writer.header, attempt_limit(episodes)
    successes = sum(record.success for record in writer.records)
    while successes < episodes and len(writer.records) < limit:
        attempt = len(writer.records)
        record, episode = _attempt(attempt, scene_seed(header.seed, attempt), collect)
        writer.add(record, episode if record.success or header.keep_failures else None)
        successes += record.success
        after_each(writer.records[-1])


def attempt_limit(episodes: int) -> int:
    """Returns after how many attempts `fill` gives up."""
    return 10 * episodes + 10


def _attempt(
    attempt: int, seed: int, collect: Callable[[int], Episode]
) -> tuple["Record", Episode | None]:
    from fleet_tools.dataset import Record

    begun = time.perf_counter()
    try:
        episode = collect(seed)
        came = _facts(episode)
    except SimulationError as error:  # the scene cannot even begin; the collection goes on
        episode = None
        came = {"outcome": SIMULATION_ERROR, "success": False, "steps": 0, "error": str(error)}
    seconds = round(time.perf_counter() - begun, 3)
    return Record(attempt=attempt, seed=seed, seconds=seconds, **came), episode


def _facts(episode: Episode) -> dict[str, Any]:
    from fleet_tools.dataset.reader import last_digest

    return {
        "outcome": episode.outcome,
        "success": episode.succeeded,
        "steps": len(episode),
        "tool": episode.scene.tool,
        "object": episode.scene.object,
        "state_digest": last_digest(episode),
        "error": episode.error,
        "info": dict(episode.info),
    }


# --- The program ----------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    """Runs the program; see `--help`."""
    return programs.run(_parser(), _collect, arguments)


def _parser() -> argparse.ArgumentParser:
    parser = programs.argument_parser(
        "fleet_tools.collect",
        "Collects demonstrations into a data set; goes on with one that was interrupted.",
        "Exits with 0 when there are as many episodes as asked for, 1 when the limit of attempts "
        "(10 N + 10) came first, 2 when it cannot begin, 130 after Ctrl-C.",
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--tool", metavar="NAME", help="the package's task for this tool")
    which.add_argument("--task", metavar="TASK", help="a task's name, or the path of your own")
    parser.add_argument(
        "--episodes", metavar="N", type=programs.positive_int, required=True,
        help="how many successful episodes the data set is to hold",
    )  # fmt: skip
    parser.add_argument("--policy", choices=sorted(POLICIES), default="expert")
    parser.add_argument(
        "--obs-mode", metavar="MODE", default="state",
        help="what is stored of each step: state (the default), point_cloud or rgbd",
    )  # fmt: skip
    parser.add_argument("--seed", type=programs.seed, default=0, help="of the data set (0)")
    parser.add_argument("--output", metavar="DIR", type=Path, help="its folder (data/TASK)")
    parser.add_argument(
        "--keep-failures", action="store_true", help="store episodes that failed, too, marked so"
    )
    return parser


def _collect(options: argparse.Namespace) -> int:
    from fleet_tools.dataset import Dataset, DatasetWriter, Record
    from fleet_tools.dataset.header import describe, read_task_file
    from fleet_tools.dataset.summary import as_text, summarize

    task = options.task if options.tool is None else task_of_tool(options.tool)
    folder = options.output or Path("data") / read_task_file(task).name
    begun = time.perf_counter()
    keywords = {"obs_mode": options.obs_mode}
    env = make_environment(task=task, **keywords)
    header = describe(
        env,
        task,
        policy=options.policy,
        seed=options.seed,
        keep_failures=options.keep_failures,
        **keywords,
    )

    def collect(seed: int) -> Episode:
        return collect_episode(task, seed, policy=options.policy, env=env)

    stopped = None
    with (
        DatasetWriter(folder, header) as writer,
        _Progress(options, writer.records) as progress,
        _patient_interrupt() as raise_if_interrupted,
    ):
        before = len(writer.records)

        def after_each(record: Record) -> None:
            progress.update(record)
            raise_if_interrupted()

        try:
            fill(writer, collect, options.episodes, after_each)
        except (KeyboardInterrupt, OSError) as error:  # OSError: the disk is full, or gone
            stopped = error
    records = Dataset(folder).manifest()  # from the disk, for Ctrl-C may have come at any moment
    summary = {
        **summarize(folder, header, records),
        "episodes": options.episodes,
        "complete": sum(record.success for record in records) >= options.episodes,
        "attempts_now": len(records) - before,
        "seconds": round(time.perf_counter() - begun, 3),
    }
    if options.json:
        print(json.dumps(summary))
    elif not options.quiet:
        print(as_text(summary))
        print(f"  {summary['attempts_now']} attempts now, in {summary['seconds']:.1f} s")
    if stopped is not None:
        interrupted = isinstance(stopped, KeyboardInterrupt)
        reason = "interrupted" if interrupted else stopped
        print(f"Stopped: {reason}. The same command goes on from here.", file=sys.stderr)
        return programs.INTERRUPTED if interrupted else programs.NOT_WELL
    if not summary["complete"]:
        limit = attempt_limit(options.episodes)
        print(
            f"Gave up after {len(records)} attempts: {options.episodes} episodes may take "
            f"{limit} at most.",
            file=sys.stderr,
        )
        return programs.NOT_WELL
    return programs.OK


def task_of_tool(tool: str) -> str:
    """Returns the name of the package's task for a tool.

    Raises:
        UnknownNameError: There is none.
    """
    from fleet_tools.tasks import task_names

    if tool not in task_names():
        remedy = "A task of your own is given by --task and the path of its YAML."
        raise UnknownNameError("tool", tool, task_names(), remedy)
    return tool


@contextlib.contextmanager
def _patient_interrupt() -> Iterator[Callable[[], None]]:
    """Keeps Ctrl-C until the returned function is called; a second one does not wait.

    Python loses an interrupt that comes while it frees objects, and an attempt takes a second.
    """
    came = False

    def note(signal_number: int, frame: Any) -> None:
        nonlocal came
        if came:
            raise KeyboardInterrupt
        came = True

    def raise_if_interrupted() -> None:
        if came:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, note)
    try:
        yield raise_if_interrupted
    finally:
        signal.signal(signal.SIGINT, before)


class _Progress:
    """The bar: successful episodes, and the rate of success."""

    def __init__(self, options: argparse.Namespace, records: list["Record"]) -> None:
        from tqdm import tqdm

        self._attempts, self._successes = len(records), sum(record.success for record in records)
        self._bar = tqdm(
            total=options.episodes, initial=self._successes, unit="episode", disable=options.quiet
        )

    def update(self, record: "Record") -> None:
        self._attempts += 1
        self._successes += record.success
        self._bar.set_postfix_str(f"success {self._successes / self._attempts:.0%}", refresh=False)
        self._bar.update(record.success)

    def __enter__(self) -> "_Progress":
        return self

    def __exit__(self, *_) -> None:
        self._bar.close()


if __name__ == "__main__":
    sys.exit(main())
