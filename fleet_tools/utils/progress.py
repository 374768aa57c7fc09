"""Progress of programs: a bar on a terminal, and a line a minute elsewhere."""

import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

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
        self._bar.set_postfix_str(", ".join(words), refresh=False)
        self._bar.update(self._counted in (None, outcome))

    def __enter__(self) -> "TallyBar":
        """Returns the bar itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the bar."""
        self._bar.close()


def progress_bar(
    total: int | None, unit: str, *, initial: int = 0, quiet: bool = False
) -> Any:  # a tqdm, whose import is not instant
    """Returns a progress bar on stderr, or a line at most each minute where that is no terminal.

    Args:
        total: Number of jobs; None if it is not known.
        unit: Name of a job.
        initial: Number of jobs already done.
        quiet: Whether to show nothing.
    """
    from tqdm import tqdm

    count = "{n_fmt}" if total is None else "{n_fmt}/{total_fmt}"
    lines: dict[str, Any] = {
        "bar_format": f"{unit} {count} after {{elapsed}}{{postfix}}\n",
        "delay": LINE_SECONDS,  # what ends sooner says nothing
        "mininterval": LINE_SECONDS,
        "maxinterval": LINE_SECONDS,
    }
    options = {} if sys.stderr.isatty() else lines
    # With `miniters`, the text behind the numbers changes where these do not.
    return tqdm(total=total, initial=initial, unit=unit, disable=quiet, miniters=0, **options)


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
