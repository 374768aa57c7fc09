"""One of several processes compiles first, and the others load what it has compiled."""

import contextlib
import fcntl
import sys
import time
from collections.abc import Callable, Generator
from typing import Any

_PATIENCE_S = 60.0
"""Time for which a process waits for another one that compiles, and may hang."""


class OneCompilesFirst:
    """Lets one process at a time do work in which numba compiles something.

    Where numba's cache is filled, nobody waits. Otherwise the first process that compiles holds a
    lock until its work is done. Others wait as soon as they miss a function in the cache: they
    compile that one, too, and find the following ones there.

    Args:
        file: Descriptor of a file that all processes have inherited, open for writing.
    """

    def __init__(self, file: int) -> None:
        self._file, self._locked, self._listening = file, False, False

    @contextlib.contextmanager
    def work(self) -> Generator[None]:
        """Encloses a piece of work."""
        self._listen()
        try:
            yield
        finally:
            if self._locked:
                fcntl.lockf(self._file, fcntl.LOCK_UN)
                self._locked = False

    def _listen(self) -> None:
        if self._listening or "numba" not in sys.modules:
            return
        from numba.core import event

        class Miss(event.Listener):
            def __init__(self, lock: Callable[[], None]) -> None:
                self._lock = lock

            def on_start(self, event: Any) -> None:
                self._lock()

            def on_end(self, event: Any) -> None:
                pass

        event.register("numba:compile", Miss(self._lock))
        self._listening = True

    def _lock(self) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not self._locked and time.monotonic() < deadline:
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._locked = True
            except OSError:  # another process holds it
                time.sleep(0.05)
