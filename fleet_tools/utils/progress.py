"""Progress bars of programs."""

from collections import Counter
from typing import Any


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

    def update(self, outcome: str) -> None:
        """Adds an outcome."""
        self._tally[outcome] += 1
        words = [f"{count} {name}" for name, count in self._tally.most_common()]
        advances = self._counted in (None, outcome)
        self._bar.set_postfix_str(", ".join(words), refresh=not advances)
        self._bar.update(advances)

    def __enter__(self) -> "TallyBar":
        """Returns the bar itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the bar."""
        self._bar.close()


def progress_bar(
    total: int | None, unit: str, *, initial: int = 0, quiet: bool = False
) -> Any:  # a tqdm, whose import is not instant
    """Returns a progress bar on stderr.

    Args:
        total: Number of jobs; None if it is not known.
        unit: Name of a job.
        initial: Number of jobs already done.
        quiet: Whether to show nothing.
    """
    from tqdm import tqdm

    return tqdm(total=total, initial=initial, unit=unit, disable=quiet or None)
