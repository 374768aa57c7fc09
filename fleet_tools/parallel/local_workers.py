"""Workers in child processes with one thread each."""

import contextlib
import mmap
import os
import tempfile
import traceback
from collections.abc import Callable, Collection, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import cloudpickle

from fleet_tools.errors import FleetToolsError, WorkersError
from fleet_tools.parallel.backend import (
    WORKER_VARIABLES,
    Death,
    Done,
    JobError,
    Outcome,
    begin_alike,
)
from fleet_tools.parallel.child_process import ChildProcess
from fleet_tools.utils.disk_errors import disk_errors

_STALL_S = 60
"""Time, s, for which a message may stand still on its way: then its worker is stopped."""

_GRACE_S = 1.0
"""Time, s, in which a worker ends that has closed its connection."""


class LocalWorker:
    """A worker in a child process.

    Args:
        work: See `LocalBackend`.
    """

    def __init__(self, work: int) -> None:
        environment = {**os.environ, **WORKER_VARIABLES}
        self.process = ChildProcess(__name__, work, environment=environment, stall_s=_STALL_S)

    def ask(self, job: Any) -> None:
        """See `Worker`."""
        content = cloudpickle.dumps(job)
        try:
            self.process.connection.send_bytes(content)
        except OSError:
            self.process.kill()  # as if it had died at its job

    def outcome(self) -> Outcome:
        """Receives a message of the worker; an empty one ends it."""
        connection = self.process.connection
        try:
            # What a dead worker has forked may hold its connection open.
            if self.process.ended and not connection.poll():
                raise EOFError
            return cloudpickle.loads(connection.recv_bytes())
        except (EOFError, OSError):
            return Death(f"its worker died ({self.process.end(_GRACE_S)})")

    def end(self) -> object:
        """See `Worker`."""
        return self.process.end()


class LocalBackend:
    """Starts child processes.

    Args:
        work: File with the pickled function that makes the work.
    """

    def __init__(self, work: int) -> None:
        self._work = work

    def start(self) -> LocalWorker:
        """See `Backend`."""
        return LocalWorker(self._work)

    def wait(
        self, workers: Collection[LocalWorker], timeout_s: float
    ) -> list[tuple[LocalWorker, Outcome]]:
        """See `Backend`."""
        by_connection: dict[Any, LocalWorker] = {
            worker.process.connection: worker for worker in workers
        }
        ready = {by_connection[each] for each in wait(list(by_connection), timeout_s)}
        ready |= {worker for worker in workers if worker.process.ended}
        return [(worker, worker.outcome()) for worker in ready]

    def healthy(self) -> bool:
        """See `Backend`."""
        return True


@contextlib.contextmanager
def local_backend(make_work: Callable[[], Any]) -> Iterator[LocalBackend]:
    """Yields a backend on this machine.

    Args:
        make_work: Makes the function that does a job, in each worker; cloudpickle must be able to
            pickle it.
    """
    with tempfile.TemporaryFile() as work:  # nobody waits for a stopped worker to receive it
        with disk_errors(Path(tempfile.gettempdir()) / "work"):
            cloudpickle.dump(make_work, work)
            work.flush()
        yield LocalBackend(work.fileno())


# --- The process of a worker ----------------------------------------------------------------


def main(connection: Connection, work_file: int) -> None:
    """Makes the function that does a job, then does jobs until the connection is closed.

    Args:
        connection: Brings jobs, and takes outcomes.
        work_file: File with the pickled function that makes the work; workers of one pool share it.
    """
    begin_alike()
    work: Callable[[Any], Any] | None = None

    def start() -> None:
        nonlocal work
        with mmap.mmap(work_file, 0, access=mmap.ACCESS_READ) as content:
            work = cloudpickle.loads(content)()

    connection.send_bytes(_outcome(start))
    while work is not None:
        try:
            job = connection.recv_bytes()
        except EOFError:
            return
        connection.send_bytes(_outcome(lambda: work(cloudpickle.loads(job))))  # noqa: B023


def _outcome(do: Callable[[], Any]) -> bytes:
    """Does something, and returns the pickled outcome."""
    try:
        return cloudpickle.dumps(Done(do()))
    except Exception as error:
        if not isinstance(error, FleetToolsError):
            error.add_note(f"In a worker process:\n{traceback.format_exc()}")
        return _failure(error)


def _failure(error: Exception) -> bytes:
    try:
        content = cloudpickle.dumps(JobError(error))
        cloudpickle.loads(content)
    except Exception:  # it holds what cannot be pickled, or cannot be made from its arguments
        text = "".join(traceback.format_exception(error))
        return cloudpickle.dumps(JobError(WorkersError(f"A worker failed.\n{text}")))
    return content
