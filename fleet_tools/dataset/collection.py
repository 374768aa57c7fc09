"""Fills a dataset: which attempts are begun, and when there are enough."""

import contextlib
from collections import Counter
from collections.abc import Callable, Generator

from fleet_tools.dataset.attempts import attempt_record
from fleet_tools.dataset.dataset_folder import DatasetWriter
from fleet_tools.dataset.manifest import AttemptRecord
from fleet_tools.envs.outcomes import SUCCESS
from fleet_tools.parallel.workers import LostJob
from fleet_tools.rollouts.rollout import Attempt
from fleet_tools.utils.progress import TallyBar

Attempted = tuple[AttemptRecord, bytes | None]
"""Record of an attempt, and the file of its episode if it is to be stored."""

Attempts = Generator[tuple[int, Attempted | LostJob], None, None]
"""Attempts as they end, with their numbers."""


def fill(
    writer: DatasetWriter,
    run: Callable[[Callable[[], int | None]], Attempts],
    episodes: int,
    *,
    after_each: Callable[[AttemptRecord], None] = lambda record: None,
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Attempts episodes until a dataset holds enough successful ones, or the limit is reached.

    An attempt is begun only if it is needed even when all attempts in progress succeed. So the same
    attempts are made whatever the number of workers and the order in which they end: the fewest,
    from the first on, among which there are enough successes.

    Args:
        writer: Writer of the dataset, which may hold some already.
        run: Makes attempts by number, such as `fleet_tools.parallel.workers.run` with all but its
            first argument.
        episodes: Number of successful episodes that the dataset is to hold.
        after_each: Called with the record of each attempt.
        stop: Whether to begin no more attempts.

    Raises:
        OSError: The disk is full or gone; the dataset is as it was before that attempt.
    """
    done = {record.attempt for record in writer.records}
    last = max(done, default=-1)
    fresh = (k for k in range(attempt_limit(episodes)) if k not in done)
    attempt = next(fresh, None)
    successes = sum(record.success for record in writer.records)
    in_progress = 0

    def begin() -> int | None:
        nonlocal attempt, in_progress
        if attempt is None or stop():
            return None
        # Gaps that a crash left are filled, or slow attempts would be under-represented.
        if attempt > last and successes + in_progress >= episodes:
            return None
        begun, attempt = attempt, next(fresh, None)
        in_progress += 1
        return begun

    with contextlib.closing(run(begin)) as results:
        for number, result in results:
            in_progress -= 1
            add_attempt(writer, number, result)
            successes += writer.records[-1].success
            after_each(writer.records[-1])


def add_attempt(writer: DatasetWriter, number: int, result: Attempted | LostJob) -> None:
    """Adds an attempt to a dataset, also one that no worker survived.

    Args:
        writer: Writer of the dataset.
        number: Number of the attempt.
        result: Its result.

    Raises:
        OSError: The disk is full or gone; the dataset is as it was before.
    """
    if isinstance(result, LostJob):
        writer.add(attempt_record(writer.header.seed, number, Attempt.lost(result.reason)))
    else:
        writer.add(*result)


def fill_with_bar(
    writer: DatasetWriter,
    run: Callable[[Callable[[], int | None]], Attempts],
    episodes: int,
    *,
    unit: str = "episode",
    quiet: bool,
    stop: Callable[[], bool],
) -> None:
    """Fills a dataset, see `fill`, and shows on stderr how attempts end.

    Args:
        writer: See `fill`.
        run: See `fill`.
        episodes: See `fill`.
        unit: Name of an episode.
        quiet: Whether to show nothing.
        stop: See `fill`.

    Raises:
        OSError: See `fill`.
    """
    with TallyBar(
        episodes,
        unit,
        tally=Counter(record.outcome for record in writer.records),
        quiet=quiet,
        counted=SUCCESS,
    ) as bar:
        fill(writer, run, episodes, after_each=lambda record: bar.update(record.outcome), stop=stop)


def attempt_limit(episodes: int) -> int:
    """Returns the number of attempts after which `fill` gives up."""
    return 10 * episodes + 10
