"""Ctrl-C that waits until what was begun is finished."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def patient_interrupt() -> Iterator[Callable[[], bool]]:
    """Yields a function that says whether Ctrl-C was pressed; a second one does not wait.

    Python loses an interrupt that comes while it frees objects, and an episode takes a second.
    """
    came = False

    def note(signal_number: int, frame: Any) -> None:
        nonlocal came
        if came:
            raise KeyboardInterrupt
        came = True

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: came
    finally:
        signal.signal(signal.SIGINT, before)
