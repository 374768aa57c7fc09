"""Times of single pieces of work."""

import time
from collections.abc import Callable


def cpu_seconds(work: Callable[[], object]) -> float:
    """Returns the processor time of this process for a piece of work, s."""
    started = time.process_time()
    work()
    return time.process_time() - started
