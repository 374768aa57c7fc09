"""The process of a worker on this machine; `local_workers` starts it."""

import mmap
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle

from fleet_tools.errors import FleetToolsError, WorkersError
from fleet_tools.parallel.backend import Done, Failure
from fleet_tools.parallel.compiling import OneCompilesFirst


def main(connection: Connection, work_file: int) -> None:
    """Makes the function that does a job, then does jobs until the connection is closed.

    Args:
        connection: Brings jobs, and takes outcomes.
        work_file: File with the pickled function that makes the work; workers of one pool share it.
    """
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
        content = cloudpickle.dumps(Failure(error))
        cloudpickle.loads(content)
    except Exception:  # it holds what cannot be pickled, or cannot be made from its arguments
        text = "".join(traceback.format_exception(error))
        return cloudpickle.dumps(Failure(WorkersError(f"A worker failed.\n{text}")))
    return content
