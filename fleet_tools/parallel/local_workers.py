"""Workers in child processes with one thread each; the first compiles for all."""

import contextlib
import fcntl
import mmap
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Collection, Generator, Iterator
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
from fleet_tools.utils.compiled import before_compiling, share_compiled
from fleet_tools.utils.disk_errors import disk_errors

_STALL_S = 60
"""Time, s, for which a message may stand still on its way: then its worker is stopped."""

_GRACE_S = 1.0
"""Time, s, in which a worker ends that has closed its connection."""

_PATIENCE_S = 60.0
"""Time for which a process waits for another one that compiles, and may hang."""


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
    """Starts child processes, of which one compiles first.

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
    share_compiled()
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
    one_compiles_first = OneCompilesFirst(work_file)

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
        with one_compiles_first.work():
            outcome = _outcome(lambda: work(cloudpickle.loads(job)))  # noqa: B023
        connection.send_bytes(outcome)


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


class OneCompilesFirst:
    """Lets one process do the first work in which numba compiles something.

    Where numba's cache is filled, nobody waits. Otherwise the first process that compiles holds a
    lock until its work is done. Others wait when they first miss a function in the cache; they
    compile that one, too, and find the following ones there. Where nothing can be cached, they
    compile at the same time after they have waited once.

    Args:
        file: Descriptor of a file that all processes have inherited, open for writing.
    """

    def __init__(self, file: int) -> None:
        self._file = file
        self._listens = self._has_missed = self._is_first = False
        before_compiling.append(self._listen)  # where numba is imported in the middle of the work

    @contextlib.contextmanager
    def work(self) -> Generator[None]:
        """Encloses a piece of work."""
        self._listen()
        try:
            yield
        finally:
            if self._is_first:
                fcntl.lockf(self._file, fcntl.LOCK_UN)
                self._is_first = False

    def _listen(self) -> None:
        if self._listens or "numba" not in sys.modules:
            return
        from numba.core import event

        class Miss(event.Listener):
            def __init__(self, after: Callable[[], None]) -> None:
                self._after = after

            def on_start(self, event: Any) -> None:
                self._after()

            def on_end(self, event: Any) -> None:
                pass

        event.register("numba:compile", Miss(self._after_miss))
        self._listens = True

    def _after_miss(self) -> None:
        if self._has_missed:
            return
        self._has_missed, self._is_first = True, self._lock()
        deadline = time.monotonic() + _PATIENCE_S
        while not self._is_first and time.monotonic() < deadline:
            time.sleep(0.05)
            if self._lock():
                fcntl.lockf(self._file, fcntl.LOCK_UN)
                return

    def _lock(self) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # another process holds it
            return False
        return True
