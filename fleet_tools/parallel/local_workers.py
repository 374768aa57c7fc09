"""Workers in child processes of this one, each with one thread."""

import contextlib
import tempfile
from collections.abc import Callable, Collection, Iterator
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import cloudpickle

from fleet_tools.parallel import worker_process
from fleet_tools.parallel.actors import ONE_THREAD
from fleet_tools.parallel.backend import Death, Outcome
from fleet_tools.parallel.child_process import ChildProcess
from fleet_tools.utils.compiled import share_compiled
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
        self.process = ChildProcess(
            worker_process.__name__, work, variables=ONE_THREAD, stall_s=_STALL_S
        )

    def ask(self, job: Any) -> None:
        """See `Worker`."""
        content = cloudpickle.dumps(job)
        try:
            self.process.connection.send_bytes(content)
        except OSError:
            self.process.kill()  # as if it had died at its job

    def outcome(self) -> Outcome:
        """Receives what the worker sends; it ends if that is nothing."""
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
