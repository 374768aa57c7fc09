"""Long jobs side by side, for programs: a bar, and nothing that a lost worker takes with it."""

import argparse
import contextlib
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from fleet_tools.utils import cli as programs

Job = TypeVar("Job")


def results_of(
    options: argparse.Namespace,
    jobs: Iterable[Job],
    make_work: Callable[[], Callable[[Job], dict[str, Any]]],
    unit: str,
) -> list[tuple[Job, dict[str, Any]]]:
    """Does all jobs, and returns each with its result, as they came in.

    Args:
        options: With `programs.add_worker_options`.
        jobs: What is to be done.
        make_work: Called in each worker; returns what does a job.
        unit: What the bar calls a job.

    Returns:
        What the work returned, or {"failed": why} where a worker was lost twice.

    Raises:
        OSError: As the work does.
        KeyboardInterrupt: After Ctrl-C.
    """
    from tqdm import tqdm

    from fleet_tools.parallel import workers

    jobs = list(jobs)
    left = iter(jobs)
    results = workers.run(lambda: next(left, None), make_work, **programs.worker_keywords(options))
    bar = tqdm(total=len(jobs), unit=unit, disable=options.quiet or None)
    done = []
    with contextlib.closing(results), bar:
        for job, came in results:
            lost = isinstance(came, workers.Lost)
            done.append((job, {"failed": came.reason} if lost else came))
            bar.update()
    return done
