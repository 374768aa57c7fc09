"""Progress of programs: a bar on a terminal, and a line a minute elsewhere."""

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Self

Tell = Callable[[str], object]
"""Callback for each stage of a work when it begins."""

LINE_SECONDS = 60.0
"""Time between two lines where stderr is no terminal, s."""


class TallyBar:
    """A progress bar with a tally of outcomes behind it.

    Args:
        total: Number of jobs.
        unit: Name of a job.
        tally: Outcomes so far.
        quiet: Whether to show nothing.
        counted: The only outcome that advances the bar; any if None.
    """

    def __init__(
        self,
        total: int,
        unit: str,
        *,
        tally: Counter[str] | None = None,
        quiet: bool = False,
        counted: str | None = None,
    ) -> None:
        self._tally: Counter[str] = Counter(tally)
        self._counted = counted
        done = self._tally.total() if counted is None else self._tally[counted]
        self._bar = progress_bar(total, unit, initial=done, quiet=quiet)

    def update(self, outcome: str, note: str = "") -> None:
        """Adds an outcome, and shows a note behind the tally."""
        self._tally[outcome] += 1
        words = [f"{count} {name}" for name, count in self._tally.most_common()]
        words += [note] if note else []
        advances = self._counted in (None, outcome)
        self._bar.set_postfix_str(", ".join(words), refresh=not advances)
        self._bar.update(advances)

    def __enter__(self) -> "TallyBar":
        """Returns the bar itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the bar."""
        self._bar.close()


class ProgressLines:
    """Progress as a plain line of stderr each minute, and one at the end.

    What ends within a minute says nothing. Has the methods of tqdm that programs call.

    Args:
        total: Number of jobs; None if it is not known.
        unit: Name of a job.
        initial: Number of jobs already done.
        wait: Waits for so many seconds, or until `close` is called; returns whether it has been.
            None waits by the clock.
        clock: Returns the time, s.
    """

    def __init__(
        self,
        total: int | None,
        unit: str,
        initial: int = 0,
        *,
        wait: Callable[[float], bool] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total, self._unit, self._done = total, unit, initial
        self._words, self._told = "", False
        self._clock, self._began = clock, clock()
        self._closed = threading.Event()
        self._wait = wait or self._closed.wait
        self._thread = threading.Thread(target=self._tell_regularly, daemon=True)
        self._thread.start()

    def update(self, n: float = 1) -> None:
        """Adds jobs."""
        self._done += int(n)

    def set_postfix_str(self, s: str = "", refresh: bool = True) -> None:
        """Sets the text behind the numbers."""
        self._words = s

    def close(self) -> None:
        """Ends the lines; a second time, nothing happens."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._thread.join()
        if self._told:
            self._tell()

    def __enter__(self) -> Self:
        """Returns itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the lines."""
        self.close()

    def _tell_regularly(self) -> None:
        while not self._wait(LINE_SECONDS):
            self._told = True
            self._tell()

    def _tell(self) -> None:
        count = f"{self._done}" if self._total is None else f"{self._done}/{self._total}"
        minutes, seconds = divmod(round(self._clock() - self._began), 60)
        words = f", {self._words}" if self._words else ""
        print(
            f"{self._unit} {count} after {minutes}:{seconds:02d}{words}",
            file=sys.stderr,
            flush=True,
        )


def progress_bar(
    total: int | None, unit: str, *, initial: int = 0, quiet: bool = False
) -> Any:  # a tqdm, whose import is not instant, or `ProgressLines`
    """Returns a progress bar on stderr, or its lines where stderr is no terminal.

    Args:
        total: Number of jobs; None if it is not known.
        unit: Name of a job.
        initial: Number of jobs already done.
        quiet: Whether to show nothing.
    """
    if not quiet and not sys.stderr.isatty():
        return ProgressLines(total, unit, initial)
    from tqdm import tqdm

    return tqdm(total=total, initial=initial, unit=unit, disable=quiet)


def silent(stage: str) -> None:
    """Tells nobody the stage of a work."""


def stage_lines(*, quiet: bool) -> Tell:
    """Returns a callback that prints each stage on stderr, with the elapsed time.

    Args:
        quiet: Whether to print nothing.
    """
    began = time.monotonic()

    def tell(stage: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s: {stage}", file=sys.stderr, flush=True)

    return silent if quiet else tell
