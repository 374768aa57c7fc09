"""Runs jobs in worker processes that may die or hang, or in this process.

Workers are Ray actors with one thread each. Ray starts them as new processes, so none inherits an
OpenGL context.
"""

import contextlib
import signal
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fleet_tools.errors import FleetToolsError, WorkersError
from fleet_tools.parallel import actors
from fleet_tools.parallel.cluster import connected, worker_count
from fleet_tools.parallel.liveness import liveness_of

J = TypeVar("J")
R = TypeVar("R")

Work = Callable[[J], R]
"""Function that does a job, and returns its result."""

TRIES = 2
"""Number of times that a job is started whose worker dies or hangs."""

START_LIMIT_S = 300.0
"""Time limit for the start of a worker."""

POLL_S = 0.5
"""Time to wait for a result before looking whether a worker exceeds its limit."""


@dataclass(frozen=True)
class LostJob:
    """Result of a job whose workers died or hung, each time."""

    reason: str


def run(
    next_job: Callable[[], J | None],
    make_work: Callable[[], Work[J, R]],
    *,
    count: int | None,
    timeout_s: float,
    address: str | None = None,
) -> Generator[tuple[J, R | LostJob], None, None]:
    """Runs jobs until there are no more, and yields each with its result as soon as it is there.

    A caller that may not exhaust the iterator closes it (`contextlib.closing`), which ends the
    workers.

    Args:
        next_job: Returns the next job, or None if none is to start now; it is called again after
            each result. The work ends when it returns None and no job is in progress.
        make_work: Makes the function that does a job, in each worker. Ray must be able to pickle
            it.
        count: Number of workers, None for as many as the cluster has cores, see
            `cluster.connected`; 0 works in this process, without a time limit.
        timeout_s: Time limit of a job. After it, its worker is killed and the job started again.
        address: Address of a running Ray cluster, HOST:PORT, or "auto" for the one of this
            machine; see `cluster.connected`.

    Raises:
        FleetToolsError: An error raised by a job or `make_work`.
        WorkersError: Workers cannot be started.
        LostClusterError: Ray's own processes died.
    """
    with connected(count, address) if count != 0 else contextlib.nullcontext() as ray:
        if ray is None:
            work = make_work()
            while (job := next_job()) is not None:
                yield job, work(job)
        else:
            pool = _Pool[J, R](ray, make_work, worker_count(ray, count), timeout_s)
            with contextlib.closing(pool):
                yield from pool.run(next_job)


# --- Ray ------------------------------------------------------------------------------------


class _Failure:
    """An error of any class, as a worker returns it."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class _Worker(Generic[J, R]):
    """The actor: it makes the function that does a job, then calls it."""

    def start(self, make_work: Callable[[], Work[J, R]]) -> _Failure | actors.ActorLocation:
        """Makes the function, and returns where the worker runs."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled where jobs come from
        try:
            self._work = make_work()
        except FleetToolsError as error:
            return _Failure(error)
        return actors.location()

    def do(self, job: J) -> R | _Failure:
        """Does a job."""
        try:
            return self._work(job)
        except FleetToolsError as error:
            return _Failure(error)


@dataclass
class _Task(Generic[J]):
    """The present task of a worker: starting, if there is no job."""

    actor: Any
    location: actors.ActorLocation | None
    deadline: float
    job: J | None = None
    tries: int = 0


class _Pool(Generic[J, R]):
    """Gives jobs to workers, and replaces workers that die or hang."""

    def __init__(
        self, ray: Any, make_work: Callable[[], Work[J, R]], count: int, timeout_s: float
    ) -> None:
        self._ray, self._make_work, self._timeout_s = ray, make_work, timeout_s
        environment = {"env_vars": actors.ONE_THREAD}
        options = {"num_cpus": 1, "max_restarts": 0, "runtime_env": environment}
        self._actors = ray.remote(**options)(_Worker)
        self._tasks: dict[Any, _Task[J]] = {}  # by the reference of the awaited result
        self._idle: deque[_Task[J]] = deque()
        self._retries: deque[tuple[J, int]] = deque()  # jobs of lost workers, and their tries
        self._failed_starts = 0
        self._liveness = liveness_of(ray)
        for _ in range(count):
            self._start()

    def run(self, next_job: Callable[[], J | None]) -> Iterator[tuple[J, R | LostJob]]:
        while True:
            while self._idle and self._begin(next_job):
                pass
            if not any(task.job is not None for task in self._tasks.values()) and (
                self._idle or not self._tasks
            ):
                return
            for reference, task in self._ended():
                yield from self._after(reference, task)

    def close(self) -> None:
        """Ends all workers."""
        for task in [*self._tasks.values(), *self._idle]:
            actors.end(task.actor, task.location)

    def _start(self) -> None:
        actor = self._actors.remote()
        self._ask(_Task[J](actor, None, time.monotonic() + START_LIMIT_S))

    def _ask(self, task: _Task[J]) -> None:
        """Asks a worker to start, or to do its job."""
        actor = task.actor
        reference = (
            actor.start.remote(self._make_work) if task.job is None else actor.do.remote(task.job)
        )
        self._tasks[reference] = task

    def _begin(self, next_job: Callable[[], J | None]) -> bool:
        job, tries = self._retries.popleft() if self._retries else (next_job(), 0)
        if job is None:
            return False
        worker = self._idle.popleft()
        deadline = time.monotonic() + self._timeout_s
        self._ask(_Task(worker.actor, worker.location, deadline, job, tries + 1))
        return True

    def _ended(self) -> list[tuple[Any, _Task[J]]]:
        """Waits briefly, and removes the tasks that are done, lost or late."""
        self._liveness.require()
        done, _ = self._ray.wait(list(self._tasks), num_returns=1, timeout=POLL_S)
        now = time.monotonic()
        late = [r for r, task in self._tasks.items() if task.deadline < now and r not in done]
        return [(reference, self._tasks.pop(reference)) for reference in [*done, *late]]

    def _after(self, reference: Any, task: _Task[J]) -> Iterator[tuple[J, R | LostJob]]:
        try:
            result = self._ray.get(reference, timeout=0)
        except (
            self._ray.exceptions.GetTimeoutError,
            self._ray.exceptions.ActorUnavailableError,
        ):
            if time.monotonic() < task.deadline:  # Ray did not reach the worker, which may run on
                self._ask(task)
                return
            actors.end(task.actor, task.location)
            limit = START_LIMIT_S if task.job is None else self._timeout_s
            yield from self._lose(task, f"it took longer than {limit:g} s")
            return
        except self._ray.exceptions.RayTaskError:  # unexpected; it holds the traceback
            raise
        except self._ray.exceptions.RayError as error:
            yield from self._lose(task, f"its worker died ({type(error).__name__})")
            return
        if isinstance(result, _Failure):
            raise result.error
        if task.job is None:
            task.location, self._failed_starts = result, 0
        else:
            yield task.job, result
        self._idle.append(task)

    def _lose(self, task: _Task[J], reason: str) -> Iterator[tuple[J, LostJob]]:
        if not self._liveness.await_answers():  # the worker may have died with its raylet
            if task.job is not None:
                self._retries.append((task.job, task.tries - 1))
        elif task.job is None:
            self._failed_starts += 1
            if self._failed_starts > TRIES:
                if not self._idle and not self._tasks:
                    raise WorkersError(
                        f"Workers do not start: {reason}. Fewer --workers need less memory; "
                        "--workers 0 shows the error."
                    )
                return  # the other workers remain
        elif task.tries < TRIES:
            self._retries.append((task.job, task.tries))
        else:
            yield task.job, LostJob(f"{reason}, {task.tries} times")
        self._start()
