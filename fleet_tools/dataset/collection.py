"""Fills a dataset: chooses attempts, counts episodes, and reports progress."""

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fleet_tools.dataset.attempts import attempt_record
from fleet_tools.dataset.dataset_folder import Dataset, DatasetWriter
from fleet_tools.dataset.header import Header, describe
from fleet_tools.dataset.stored_episode import AttemptRecord
from fleet_tools.dataset.summary import summarize
from fleet_tools.envs.outcomes import SUCCESS
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.parallel.interrupts import deferred_interrupt
from fleet_tools.parallel.workers import LostJob, WorkerOptions
from fleet_tools.policies.sources import PolicySource
from fleet_tools.rollouts.agreement import REPEAT
from fleet_tools.rollouts.rollout import Attempt
from fleet_tools.utils import cli
from fleet_tools.utils.progress import TallyBar

Attempted = tuple[AttemptRecord, bytes | None]
"""Record of an attempt, and the file of its episode if it is to be stored."""

Attempts = Generator[tuple[int, Attempted | LostJob], None, None]
"""Attempts as they end, with their numbers."""


def fill(
    writer: DatasetWriter,
    run: Callable[[Callable[[], int | None]], Attempts],
    episodes: int,
    *,
    attempts: Iterable[int] | None = None,
    after_each: Callable[[AttemptRecord], None] = lambda record: None,
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Attempts episodes until a dataset holds enough successful ones, or the limit is reached.

    An attempt is begun only if it is needed even when all attempts in progress succeed. So the same
    attempts are made whatever the number of workers and the order in which they end: the fewest,
    from the first on, among which there are enough successes.

    Args:
        writer: Writer of the dataset, which may hold some already.
        run: Makes attempts by number, such as `fleet_tools.parallel.workers.run` with all but its
            first argument.
        episodes: Number of successful episodes that the dataset is to hold.
        attempts: Numbers of the attempts that may be made; by default the first `attempt_limit`.
        after_each: Called with the record of each attempt.
        stop: Whether to begin no more attempts.

    Raises:
        OSError: The disk is full or gone; the dataset is as it was before that attempt.
    """
    done = {record.attempt for record in writer.records}
    last = max(done, default=-1)
    allowed = range(attempt_limit(episodes)) if attempts is None else attempts
    fresh = (k for k in allowed if k not in done)
    attempt = next(fresh, None)
    successes = sum(record.success for record in writer.records)
    in_progress = 0

    def begin() -> int | None:
        nonlocal attempt, in_progress
        if attempt is None or stop():
            return None
        # Gaps that a crash left are filled, or slow attempts would be under-represented.
        if attempt > last and successes + in_progress >= episodes:
            return None
        begun, attempt = attempt, next(fresh, None)
        in_progress += 1
        return begun

    with contextlib.closing(run(begin)) as results, writer.marking():
        for number, result in results:
            if number == REPEAT:
                continue
            in_progress -= 1
            add_attempt(writer, number, result)
            successes += writer.records[-1].success
            after_each(writer.records[-1])


def add_attempt(writer: DatasetWriter, number: int, result: Attempted | LostJob) -> None:
    """Adds an attempt to a dataset, also one that no worker survived.

    Args:
        writer: Writer of the dataset.
        number: Number of the attempt.
        result: Its result.

    Raises:
        OSError: The disk is full or gone; the dataset is as it was before.
    """
    if isinstance(result, LostJob):
        writer.add(attempt_record(writer.header.seed, number, Attempt.lost(result.reason)))
    else:
        writer.add(*result)


def fill_with_bar(
    writer: DatasetWriter,
    run: Callable[[Callable[[], int | None]], Attempts],
    episodes: int,
    *,
    attempts: Iterable[int] | None = None,
    unit: str = "episode",
    quiet: bool,
    stop: Callable[[], bool],
) -> None:
    """Fills a dataset, see `fill`, and shows on stderr how attempts end.

    Args:
        writer: See `fill`.
        run: See `fill`.
        episodes: See `fill`.
        attempts: See `fill`.
        unit: Name of an episode.
        quiet: Whether to show nothing.
        stop: See `fill`.

    Raises:
        OSError: See `fill`.
    """
    with TallyBar(
        episodes,
        unit,
        tally=Counter(record.outcome for record in writer.records),
        quiet=quiet,
        counted=SUCCESS,
    ) as bar:
        fill(
            writer,
            run,
            episodes,
            attempts=attempts,
            after_each=lambda record: bar.update(record.outcome),
            stop=stop,
        )


def attempt_limit(episodes: int) -> int:
    """Returns the number of attempts after which `fill` gives up."""
    return 10 * episodes + 10


def describe_collection(
    spec: EnvSpec, policy: PolicySource, seed: int, keep_failures: bool
) -> Header:
    """Describes a dataset, after checking that it can be collected.

    Args:
        spec: Specification of the environment.
        policy: The policy, which is made once.
        seed: Seed of the dataset.
        keep_failures: Whether failed episodes are stored.

    Raises:
        FleetToolsError: The environment cannot be made, or the policy cannot act in it.
    """
    with contextlib.closing(spec.make()) as env:
        policy.make(env)
        return describe(env, spec, policy=str(policy), seed=seed, keep_failures=keep_failures)


@dataclass(frozen=True)
class Collection:
    """Report of a program after it has collected a dataset, or has been stopped.

    Attributes:
        summary: Plain JSON data, see `summary.summarize`; also the numbers of requested "episodes"
            and of "attempts_now", whether it is "complete", and the "seconds" that it took.
        failure: Ctrl-C, or an error of the disk; None if there was none.
        interrupted: Whether Ctrl-C was pressed while episodes were in progress.
    """

    summary: dict[str, Any]
    failure: BaseException | None
    interrupted: bool


def collect(
    folder: Path,
    header: Header,
    make_work: Callable[[Header], Callable[[int], Attempted]],
    episodes: int,
    workers: WorkerOptions,
    *,
    attempts: Iterable[int] | None = None,
    last_job: Any = None,
    quiet: bool = False,
) -> Collection:
    """Collects a dataset, or resumes an interrupted collection; Ctrl-C ends it in good order.

    Args:
        folder: Folder of the dataset.
        header: What is to be collected.
        make_work: Makes the function that makes attempts by number, in each worker, such as
            `attempts.make_attempts` with all but its first argument.
        episodes: Number of successful episodes that the dataset is to hold.
        workers: Worker processes.
        attempts: See `fill`.
        last_job: `REPEAT`, if `make_work` is of `attempts.make_attempts`.
        quiet: Whether to show no progress.

    Raises:
        FleetToolsError: It cannot begin.
    """
    started = time.perf_counter()
    failure = None
    with (
        DatasetWriter(folder, header) as writer,
        deferred_interrupt() as interrupted,
        contextlib.redirect_stdout(sys.stderr),  # without workers, the policy prints here
    ):
        before = len(writer.records)
        try:
            fill_with_bar(
                writer,
                partial(
                    workers.run, make_work=partial(make_work, writer.header), last_job=last_job
                ),
                episodes,
                attempts=attempts,
                quiet=quiet,
                stop=interrupted,
            )
        except (KeyboardInterrupt, OSError) as error:  # OSError: the disk is full or gone
            failure = error
    records = Dataset(folder).manifest()  # from the disk: Ctrl-C may have come at any moment
    summary = {
        **summarize(folder, writer.header, records),
        "episodes": episodes,
        "complete": sum(record.success for record in records) >= episodes,
        "attempts_now": len(records) - before,
        "seconds": round(time.perf_counter() - started, 3),
    }
    return Collection(summary, failure, interrupted())


def exit_code(collected: Collection) -> int:
    """Reports on stderr why there are fewer episodes than requested; returns the exit code."""
    summary, failure = collected.summary, collected.failure
    if summary["order_dependence"]:
        print(f"Warning: {summary['order_dependence']}", file=sys.stderr)
    if failure is not None or (collected.interrupted and not summary["complete"]):
        return cli.stopped(failure)
    if not summary["complete"]:
        print(
            f"Gave up after {summary['attempts']} attempts, the limit for "
            f"{summary['episodes']} {'episode' if summary['episodes'] == 1 else 'episodes'}; "
            f"{summary['successes']} succeeded.",
            file=sys.stderr,
        )
        return cli.FAILED
    return cli.OK
