"""The interface of a pool's processes: on this machine, or on Ray."""

import os
import random
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

ONE_THREAD = {
    f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "RAYON")
}
"""Environment variables of a process that is to use one core; most libraries read them when they
are loaded, once."""

SAME_HASHES = {"PYTHONHASHSEED": "0"}
"""Environment variables of a process in which Python hashes text as in all others."""

_TUNABLES = "GLIBC_TUNABLES"
WORKER_VARIABLES = (
    ONE_THREAD
    | SAME_HASHES
    | {
        _TUNABLES: ":".join(
            ["glibc.malloc.tcache_count=200", *os.environ.get(_TUNABLES, "").split()]
        )
    }
)
"""Environment variables of a worker. A step of Drake frees more blocks of a size than the C library
keeps at hand, and allocates them again; results do not depend on it. Many more blocks at hand are
hardly faster, and keep the holes between tensors apart: a merge then took 20 GB instead of 1."""


def begin_alike() -> None:
    """Sets the global generators, in a new process, as in all others; torch begins alike itself.

    What the code of others draws from them when it is imported, or made, is then the same in all
    workers.
    """
    random.seed(0)
    np.random.seed(0)


@dataclass(frozen=True)
class Done:
    """A worker has started, or has done its job.

    Attributes:
        result: Result of the job; None of a start.
    """

    result: Any


@dataclass(frozen=True)
class JobError:
    """A worker has raised an error.

    Attributes:
        error: The error.
    """

    error: Exception


@dataclass(frozen=True)
class Death:
    """A worker has ended.

    Attributes:
        reason: How, in a few words.
    """

    reason: str


Outcome = Done | JobError | Death


class Worker(Protocol):
    """A worker, which starts or does one job at a time."""

    def ask(self, job: Any, /) -> None:
        """Lets the worker do a job."""
        ...

    def end(self) -> object:
        """Ends the worker at once."""
        ...


W = TypeVar("W", bound=Worker)


class Backend(Protocol[W]):
    """Starts workers, and waits for them."""

    def start(self) -> W:
        """Starts a worker."""
        ...

    def wait(self, workers: Collection[W], timeout_s: float, /) -> list[tuple[W, Outcome]]:
        """Waits until one of the workers that start or do a job has an outcome.

        Args:
            workers: The workers.
            timeout_s: The longest time to wait, s.

        Returns:
            Workers with their outcomes; none after the time.
        """
        ...

    def healthy(self) -> bool:
        """Returns whether a worker that was lost just now was lost by itself.

        Otherwise it may have been lost with processes on which all depend, and is not to blame.
        """
        ...
