"""Ctrl-C, at once or after the jobs in progress."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def deferred_interrupt(*also: signal.Signals) -> Iterator[Callable[[], bool]]:
    """Yields a function that returns whether Ctrl-C was pressed; a second one does not wait.

    Python loses an interrupt that arrives while it frees objects, libraries may catch it, and an
    episode takes a second, so the interrupt is recorded instead of raised.

    Args:
        also: Signals that mean the same as Ctrl-C.
    """
    interrupted = False

    def record(signal_number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        if interrupted:
            raise KeyboardInterrupt
        interrupted = True

    before = {number: signal.signal(number, record) for number in (signal.SIGINT, *also)}
    try:
        yield lambda: interrupted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def immediate_interrupt() -> Iterator[None]:
    """Lets Ctrl-C raise KeyboardInterrupt, also within `deferred_interrupt`."""
    if threading.current_thread() is not threading.main_thread():  # others have no handlers
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
