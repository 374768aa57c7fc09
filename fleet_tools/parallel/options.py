"""Options of the programs that work in parallel."""

from collections.abc import Callable, Generator, Iterable
from typing import TypeVar

from fleet_tools.config.options import OptionGroup
from fleet_tools.config.values import CountOrZero, Positive
from fleet_tools.parallel.workers import LostJob, Work, run

J = TypeVar("J")
R = TypeVar("R")


class WorkerOptions(OptionGroup):
    """Number, time limit and place of worker processes."""

    workers: CountOrZero | None = None
    """Largest number of worker processes, one core each (default: as many as fit this machine or a
    running cluster); 0 works in this process."""
    timeout: Positive = 300.0
    """Time limit of one episode, s; then its worker is killed, and the episode starts once more."""
    ray_address: str | None = None
    """Running Ray cluster, such as auto or HOST:PORT, whose machines have the same packages and see
    the same files (default: the variable RAY_ADDRESS, which Ray sets for its jobs); local works on
    this machine in any case."""

    def run(
        self, jobs: Callable[[], J | None] | Iterable[J], make_work: Callable[[], Work[J, R]]
    ) -> Generator[tuple[J, R | LostJob], None, None]:
        """Runs jobs in workers, see `fleet_tools.parallel.workers.run`.

        Args:
            jobs: The jobs, or a function that returns the next one.
            make_work: Makes the function that does a job, in each worker.
        """
        if callable(jobs):
            next_job = jobs
        else:
            remaining = iter(jobs)
            next_job = lambda: next(remaining, None)  # noqa: E731
        return run(
            next_job,
            make_work,
            count=self.workers,
            timeout_s=self.timeout,
            address=self.ray_address,
        )
