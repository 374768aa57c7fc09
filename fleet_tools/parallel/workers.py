"""Runs jobs in worker processes that may die or hang, or in this process.

Workers are Ray actors, each with one thread and an environment of its own. Ray starts them anew,
so none inherits an OpenGL context.
"""

import contextlib
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fleet_tools.errors import FleetToolsError, WorkersError
from fleet_tools.parallel import actors
from fleet_tools.parallel.cluster import connected
from fleet_tools.utils import machine

Job = TypeVar("Job")
Result = TypeVar("Result")

Work = Callable[[Job], Result]

TRIES = 2
"""How often a job is begun whose worker dies or hangs."""

START_LIMIT_S = 300.0
"""In which a worker must be ready."""

POLL_S = 0.5
"""How long to wait for an answer before looking whether one is late."""

_WORKER_BYTES = 500e6  # what a worker with cameras may take


@dataclass(frozen=True)
class Lost:
    """What comes of a job whose workers died or hung, each time."""

    reason: str


def default_count() -> int:
    """Returns how many workers this machine has cores and memory for, at least one."""
    return max(
        1, min(int(machine.available_cores()), int(machine.available_memory() // _WORKER_BYTES))
    )


def run(
    next_job: Callable[[], Job | None],
    make_work: Callable[[], Work],
    *,
    count: int,
    timeout_s: float,
    address: str | None = None,
) -> Iterator[tuple[Job, Result | Lost]]:
    """Runs jobs until there are no more, and yields what came of each as soon as it is there.

    Args:
        next_job: Returns what to do next, or None where nothing is to be begun now; it is asked
            again after each result. With None and nothing at work, the end is reached.
        make_work: Makes, in each worker, what does a job. Ray must be able to pickle it.
        count: How many workers; 0 works in this process, where nothing can be timed out.
        timeout_s: What a job may take. Then its worker is killed, and the job begun once more.
        address: Of a running Ray cluster, HOST:PORT, or "auto" for this machine's; None starts one
            for the occasion, where this process has none yet.

    Whoever may not come to the end closes the iterator (`contextlib.closing`): it ends the workers.

    Raises:
        FleetToolsError: What a job or `make_work` raised.
        WorkersError: Workers cannot be started.
    """
    with connected(count, address) if count > 0 else contextlib.nullcontext() as ray:
        if ray is None:
            work = make_work()
            while (job := next_job()) is not None:
                yield job, work(job)
        else:
            with contextlib.closing(_Pool(ray, make_work, count, timeout_s)) as pool:
                yield from pool.run(next_job)


# --- Ray ------------------------------------------------------------------------------------


class _Failure:
    """An error that a worker hands over, whatever its class."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class _Worker(Generic[Job, Result]):
    """The actor: what makes the work, then does it."""

    def start(self, make_work: Callable[[], Work]) -> _Failure | actors.Place:
        """Returns where it is."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever gives the jobs
        try:
            self._work = make_work()
        except FleetToolsError as error:
            return _Failure(error)
        return actors.here()

    def do(self, job: Job) -> Result | _Failure:
        try:
            return self._work(job)
        except FleetToolsError as error:
            return _Failure(error)


@dataclass
class _Task(Generic[Job]):
    """What a worker is at: starting where there is no job."""

    actor: Any
    place: actors.Place | None
    deadline: float
    job: Job | None = None
    tries: int = 0


class _Pool:
    """Keeps workers busy, and replaces the dead."""

    def __init__(self, ray, make_work, count: int, timeout_s: float) -> None:
        self._ray, self._make_work, self._timeout_s = ray, make_work, timeout_s
        environment = {"env_vars": actors.ONE_THREAD}
        options = {"num_cpus": 1, "max_restarts": 0, "runtime_env": environment}
        self._actors = ray.remote(**options)(_Worker)
        self._tasks: dict[Any, _Task] = {}  # by the reference of what is awaited
        self._idle: deque[_Task] = deque()
        self._again: deque[tuple[Any, int]] = deque()  # jobs whose worker was lost, and their tries
        self._failed_starts = 0
        for _ in range(count):
            self._start()

    def run(self, next_job: Callable[[], Job | None]) -> Iterator:
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
            actors.end(task.actor, task.place)

    def _start(self) -> None:
        actor = self._actors.remote()
        task = _Task(actor, None, time.monotonic() + START_LIMIT_S)
        self._tasks[actor.start.remote(self._make_work)] = task

    def _begin(self, next_job: Callable[[], Job | None]) -> bool:
        job, tries = self._again.popleft() if self._again else (next_job(), 0)
        if job is None:
            return False
        worker = self._idle.popleft()
        deadline = time.monotonic() + self._timeout_s
        task = _Task(worker.actor, worker.place, deadline, job, tries + 1)
        self._tasks[worker.actor.do.remote(job)] = task
        return True

    def _ended(self) -> list[tuple[Any, _Task]]:
        """Waits a little; takes away what is done, dead or late."""
        done, _ = self._ray.wait(list(self._tasks), num_returns=1, timeout=POLL_S)
        now = time.monotonic()
        late = [r for r, task in self._tasks.items() if task.deadline < now and r not in done]
        return [(reference, self._tasks.pop(reference)) for reference in [*done, *late]]

    def _after(self, reference: Any, task: _Task) -> Iterator:
        try:
            result = self._ray.get(reference, timeout=0)
        except self._ray.exceptions.GetTimeoutError:
            actors.end(task.actor, task.place)
            limit = START_LIMIT_S if task.job is None else self._timeout_s
            yield from self._lose(task, f"it took longer than {limit:g} s")
            return
        except self._ray.exceptions.RayTaskError:  # what nobody expected; it has the traceback
            raise
        except self._ray.exceptions.RayError as error:
            yield from self._lose(task, f"its worker died ({type(error).__name__})")
            return
        if isinstance(result, _Failure):
            raise result.error
        if task.job is None:
            task.place, self._failed_starts = result, 0
        else:
            yield task.job, result
        self._idle.append(task)

    def _lose(self, task: _Task, reason: str) -> Iterator:
        if task.job is None:
            self._failed_starts += 1
            if self._failed_starts > TRIES:
                if not self._idle and not self._tasks:
                    raise WorkersError(
                        f"Workers do not start: {reason}. Fewer --workers need less memory; "
                        "--workers 0 shows what goes wrong."
                    )
                return  # the others do without it
        elif task.tries < TRIES:
            self._again.append((task.job, task.tries))
        else:
            yield task.job, Lost(f"{reason}, {task.tries} times")
        self._start()
