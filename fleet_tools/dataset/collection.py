"""Fills a data set: which attempts are begun, and when there are enough."""

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from fleet_tools.dataset.attempts import lost_attempt
from fleet_tools.parallel.workers import Lost

if TYPE_CHECKING:
    from fleet_tools.dataset import DatasetWriter, Record

Attempted = tuple["Record", bytes | None]
"""What came of an attempt, and the file of its episode if it is to be stored."""


def fill(
    writer: "DatasetWriter",
    run: Callable[[Callable[[], int | None]], Iterator[tuple[int, Attempted | Lost]]],
    episodes: int,
    *,
    after_each: Callable[["Record"], None] = lambda record: None,
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Attempts episodes until a data set holds so many successful ones, or the limit is reached.

    An attempt is begun only if it is needed even when all that are at work succeed. So it is the
    same attempts that are made, whatever the number of workers and the order in which they end:
    the fewest from the first on among which there are so many successes.

    Args:
        writer: Of the data set, which may hold some already.
        run: Makes attempts by number; `fleet_tools.parallel.workers.run` with all but its first
            argument.
        episodes: Successful ones, at last.
        after_each: Is told what came of each attempt.
        stop: Whether to begin no more attempts.

    Raises:
        OSError: The disk is full or gone; the data set is as it was before that attempt.
    """
    done = {record.attempt for record in writer.records}
    last = max(done, default=-1)
    fresh = (k for k in range(attempt_limit(episodes)) if k not in done)
    attempt = next(fresh, None)
    successes = sum(record.success for record in writer.records)
    at_work = 0

    def begin() -> int | None:
        nonlocal attempt, at_work
        if attempt is None or stop():
            return None
        # What a crash left out in between is made up for; or slow attempts would count less.
        if attempt > last and successes + at_work >= episodes:
            return None
        begun, attempt = attempt, next(fresh, None)
        at_work += 1
        return begun

    with contextlib.closing(run(begin)) as results:
        for number, result in results:
            at_work -= 1
            if isinstance(result, Lost):
                result = lost_attempt(writer.header.seed, number, result.reason), None
            writer.add(*result)
            successes += result[0].success
            after_each(writer.records[-1])


def attempt_limit(episodes: int) -> int:
    """Returns after how many attempts `fill` gives up."""
    return 10 * episodes + 10
