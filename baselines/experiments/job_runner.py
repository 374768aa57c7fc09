"""Runs long jobs in workers, and collects their results."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from fleet_tools.parallel.workers import LostJob, Work, WorkerOptions
from fleet_tools.utils.progress import progress_bar

J = TypeVar("J")
R = TypeVar("R")


@dataclass(frozen=True)
class FailedJob:
    """Result of a job that failed.

    Attributes:
        reason: Why it failed, as a message.
    """

    reason: str


def run_jobs(
    workers: WorkerOptions,
    jobs: Sequence[J],
    make_work: Callable[[], Work[J, R]],
    *,
    unit: str,
    quiet: bool,
) -> list[tuple[J, R | FailedJob]]:
    """Runs all jobs, with a progress bar.

    Args:
        workers: Number, time limit and place of worker processes.
        jobs: The jobs.
        make_work: Makes the function that does a job, in each worker.
        unit: Name of a job in the progress bar.
        quiet: Whether to show no progress bar.

    Returns:
        Each job and its result, in the order of completion; a `FailedJob` if its workers died or
        hung.

    Raises:
        FleetToolsError: An error raised by a job or `make_work`.
        OSError: Likewise, such as that of a full disk.
        KeyboardInterrupt: Ctrl-C.
    """
    done: list[tuple[J, R | FailedJob]] = []
    results = workers.run(jobs, make_work)
    with contextlib.closing(results), progress_bar(len(jobs), unit, quiet=quiet) as bar:
        for job, result in results:
            done.append((job, FailedJob(result.reason) if isinstance(result, LostJob) else result))
            bar.update()
    return done
