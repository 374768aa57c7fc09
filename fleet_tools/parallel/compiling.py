"""One of several processes compiles first, and the others load what it has compiled."""

import contextlib
import fcntl
import sys
import time
from collections.abc import Callable, Generator
from typing import Any

from fleet_tools.utils.compiled import before_compiling

_PATIENCE_S = 60.0
"""Time for which a process waits for another one that compiles, and may hang."""


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
