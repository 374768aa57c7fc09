"""Runs jobs in worker processes that may die or hang, or in this process.

Workers are child processes of this one or, on a cluster, Ray actors.
"""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from fleet_tools.config.options import OptionGroup
from fleet_tools.config.values import CountOrZero, Positive
from fleet_tools.errors import WorkersError
from fleet_tools.parallel import cluster
from fleet_tools.parallel.backend import Backend, Death, JobError, Outcome, Worker

J = TypeVar("J")
R = TypeVar("R")

Work = Callable[[J], R]
"""Function that does a job, and returns its result."""

TRIES = 2
"""Number of times that a job is started whose worker dies or hangs, unless it is to blame."""

START_LIMIT_S = 300.0
"""Time limit for the start of a worker."""

POLL_S = 0.5
"""Time to wait for a result before looking whether a worker exceeds its limit."""


@dataclass(frozen=True)
class LostJob:
    """Result of a job whose workers died or hung, each time."""

    reason: str


class WorkerOptions(OptionGroup):
    """Number, time limit and place of worker processes."""

    workers: CountOrZero | None = None
    """Largest number of worker processes, one core each (default: as many as fit this machine or a
    running cluster); 0 works in this process."""
    timeout: Positive = 300.0
    """Time limit of one episode, s; then its worker is killed, and the episode starts once more,
    unless code of others acts in it."""
    ray_address: str | None = None
    """Running Ray cluster, such as auto or HOST:PORT, whose machines have the same packages and see
    the same files (default: the variable RAY_ADDRESS, which Ray sets for its jobs). With local, the
    program works on this machine in any case."""

    def run(
        self,
        jobs: Callable[[], J | None] | Iterable[J],
        make_work: Callable[[], Work[J, R]],
        last_job: J | None = None,
        **more: Any,
    ) -> Generator[tuple[J, R | LostJob], None, None]:
        """Runs jobs in workers, see the function `run`.

        Args:
            jobs: The jobs, or a function that returns the next one.
            make_work: Makes the function that does a job, in each worker.
            last_job: See `run`.
            more: `tries` and `before_each` of `run`.
        """
        return run(
            jobs if callable(jobs) else partial(next, iter(jobs), None),
            make_work,
            count=self.workers,
            timeout_s=self.timeout,
            address=self.ray_address,
            last_job=last_job,
            **more,
        )


def run(
    next_job: Callable[[], J | None],
    make_work: Callable[[], Work[J, R]],
    *,
    count: int | None,
    timeout_s: float,
    address: str | None = None,
    last_job: J | None = None,
    tries: int = TRIES,
    before_each: Callable[[J], None] = lambda job: None,
) -> Generator[tuple[J, R | LostJob], None, None]:
    """Runs jobs until there are no more, and yields each with its result as soon as it is there.

    A worker starts when there is a job for it. A caller that may not exhaust the iterator closes it
    (`contextlib.closing`), which ends the workers.

    Args:
        next_job: Returns the next job, or None if none is to start now; it is called again after
            each result. The work ends when it returns None and no job is in progress.
        make_work: Makes the function that does a job, in each worker. It is pickled by cloudpickle,
            as are jobs and results, so that it may be defined in the main module.
        count: Largest number of workers, None for as many as this machine has cores and memory for,
            or as a cluster has cores; 0 works in this process, without a time limit.
        timeout_s: Time limit of a job. After it, its worker is killed and the job started again.
        address: Address of a running Ray cluster, HOST:PORT, or "auto" for the one of this machine;
            None for the one of the variable RAY_ADDRESS, or to which this process is connected,
            or else for none. "local" is for none in any case.
        last_job: What each worker does at its end, after all other jobs; None for nothing.
        tries: Number of times that a job is started whose worker dies or hangs.
        before_each: Called each time before a job is started.

    Raises:
        FleetToolsError: An error raised by a job or `make_work`.
        WorkersError: Workers cannot be started.
        LostClusterError: Ray's own processes died.
    """
    if count == 0:
        work = make_work()
        while (job := next_job()) is not None:
            before_each(job)
            yield job, work(job)
        if last_job is not None:
            yield last_job, work(last_job)
        return
    with _backend(make_work, count, address) as (backend, most):
        pool = _Pool[J, R](backend, most, timeout_s, tries, before_each)
        with contextlib.closing(pool):
            yield from pool.run(next_job)
            if last_job is not None:
                yield from pool.run_in_each(last_job)


@contextlib.contextmanager
def _backend(
    make_work: Callable[[], Work[J, R]], count: int | None, address: str | None
) -> Iterator[tuple[Backend[Any], int]]:
    """Yields where workers run, and the largest number of them."""
    if cluster.is_running(address):
        from fleet_tools.parallel.ray_workers import RayBackend

        with cluster.connected(count, address) as ray:
            yield RayBackend(ray, make_work), cluster.worker_count(ray, count)
    else:
        from fleet_tools.parallel.local_workers import local_backend

        with local_backend(make_work) as backend:
            yield backend, cluster.default_count() if count is None else count


@dataclass
class _Task(Generic[J]):
    """The present task of a worker: starting, if there is no job."""

    limit_s: float
    job: J | None = None
    tries: int = 0

    def __post_init__(self) -> None:
        self.deadline = time.monotonic() + self.limit_s


class _Pool(Generic[J, R]):
    """Gives jobs to workers, and replaces workers that die or hang.

    Args:
        backend: Where they run.
        count: The largest number of workers.
        timeout_s: Time limit of a job.
        tries, before_each: See `run`.
    """

    def __init__(
        self,
        backend: Backend[Any],
        count: int,
        timeout_s: float,
        tries: int,
        before_each: Callable[[J], None],
    ) -> None:
        self._backend, self._count, self._timeout_s = backend, count, timeout_s
        self._tries, self._before_each = tries, before_each
        self._tasks: dict[Worker, _Task[J]] = {}
        self._idle: deque[Worker] = deque()
        self._waiting: deque[tuple[J, int]] = deque()  # jobs without a worker, and their tries
        self._failed_starts = 0  # in a row

    def run(self, next_job: Callable[[], J | None]) -> Iterator[tuple[J, R | LostJob]]:
        while self._take(next_job):
            self._begin()
            for worker, outcome in self._ended():
                yield from self._after(worker, outcome)

    def run_in_each(self, job: J) -> Iterator[tuple[J, R | LostJob]]:
        """Lets each worker do a job that no other one does for it."""
        for worker in self._idle:
            self._tasks[worker] = _Task(self._timeout_s, job, self._tries)
            worker.ask(job)
        self._idle.clear()
        while any(task.job is not None for task in self._tasks.values()):
            for worker, outcome in self._ended():
                yield from self._after(worker, outcome)

    def close(self) -> None:
        """Ends all workers."""
        for worker in [*self._tasks, *self._idle]:
            worker.end()

    def _take(self, next_job: Callable[[], J | None]) -> bool:
        """Takes jobs for as many workers as there may be; returns whether there is any job."""
        jobs = len(self._waiting) + sum(task.job is not None for task in self._tasks.values())
        while jobs < self._count and (job := next_job()) is not None:
            self._waiting.append((job, 0))
            jobs += 1
        return jobs > 0

    def _begin(self) -> None:
        """Gives jobs to idle workers, and starts a worker for each job that is left."""
        while self._waiting and self._idle:
            job, tries = self._waiting.popleft()
            worker = self._idle.popleft()
            self._before_each(job)
            self._tasks[worker] = _Task(self._timeout_s, job, tries + 1)
            worker.ask(job)
        starting = sum(task.job is None for task in self._tasks.values())
        if self._failed_starts <= TRIES or not (self._tasks or self._idle):
            for _ in range(min(len(self._waiting) - starting, self._count - len(self._tasks))):
                self._tasks[self._backend.start()] = _Task(START_LIMIT_S)

    def _ended(self) -> list[tuple[Worker, Outcome]]:
        """Waits briefly; returns workers whose tasks are done or lost, and those that are late."""
        ended = self._backend.wait(list(self._tasks), POLL_S)
        now = time.monotonic()
        for worker, task in self._tasks.items():
            if task.deadline < now and all(worker is not each for each, _ in ended):
                worker.end()
                ended.append((worker, Death(f"it took longer than {task.limit_s:g} s")))
        return ended

    def _after(self, worker: Worker, outcome: Outcome) -> Iterator[tuple[J, R | LostJob]]:
        task = self._tasks.pop(worker)
        if isinstance(outcome, Death):
            yield from self._lose(task, outcome.reason)
            return
        self._idle.append(worker)
        if isinstance(outcome, JobError):
            raise outcome.error
        if task.job is None:
            self._failed_starts = 0
        else:
            yield task.job, outcome.result

    def _lose(self, task: _Task[J], reason: str) -> Iterator[tuple[J, LostJob]]:
        if not self._backend.healthy():
            if task.job is not None:
                self._waiting.appendleft((task.job, task.tries - 1))
        elif task.job is None:
            self._failed_starts += 1
            if self._failed_starts > TRIES and not self._idle and not self._tasks:
                raise WorkersError(
                    f"Workers do not start: {reason}. Fewer --workers need less memory; "
                    "--workers 0 shows the error."
                )
        elif task.tries < self._tries:
            self._waiting.appendleft((task.job, task.tries))
        else:
            yield task.job, LostJob(reason + f", {task.tries} times" * (task.tries > 1))
