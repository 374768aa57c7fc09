"""A collection as programs run it: described, collected or resumed, and reported."""

import contextlib
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fleet_tools.dataset.attempts import make_attempts
from fleet_tools.dataset.collection import fill_with_bar
from fleet_tools.dataset.header import Header, describe
from fleet_tools.dataset.reader import Dataset
from fleet_tools.dataset.summary import summarize
from fleet_tools.dataset.writer import DatasetWriter
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.parallel.interrupts import deferred_interrupt
from fleet_tools.parallel.workers import WorkerOptions
from fleet_tools.policies.sources import PolicySource
from fleet_tools.utils import cli


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
    """What a program reports after it has collected a dataset, or has been stopped.

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
    policy: PolicySource,
    episodes: int,
    workers: WorkerOptions,
    *,
    verify: bool = False,
    quiet: bool = False,
) -> Collection:
    """Collects a dataset, or resumes an interrupted collection; Ctrl-C ends it in good order.

    Args:
        folder: Folder of the dataset.
        header: What is to be collected.
        policy: The policy that the header names.
        episodes: Number of successful episodes that the dataset is to hold.
        workers: Worker processes.
        verify: See `attempts.make_attempts`.
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
        make_work = partial(make_attempts, writer.header, policy, verify)
        try:
            fill_with_bar(
                writer,
                partial(workers.run, make_work=make_work),
                episodes,
                quiet=quiet,
                stop=interrupted,
            )
        except (KeyboardInterrupt, OSError) as error:  # OSError: the disk is full or gone
            failure = error
    records = Dataset(folder).manifest()  # from the disk: Ctrl-C may have come at any moment
    summary = {
        **summarize(folder, header, records),
        "episodes": episodes,
        "complete": sum(record.success for record in records) >= episodes,
        "attempts_now": len(records) - before,
        "seconds": round(time.perf_counter() - started, 3),
    }
    return Collection(summary, failure, interrupted())


def exit_code(collected: Collection) -> int:
    """Reports on stderr why there are fewer episodes than requested; returns the exit code."""
    summary, failure = collected.summary, collected.failure
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
