"""The attempts of a collection are the same for any number of workers and order of completion."""

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from support.small_datasets import hammer_header

from fleet_tools.dataset import AttemptRecord, Dataset, DatasetWriter
from fleet_tools.dataset.attempts import scene_seed
from fleet_tools.dataset.collection import Attempted, Attempts, attempt_limit, fill
from fleet_tools.dataset.header import Header
from fleet_tools.parallel.workers import LostJob

SEED = 11

Run = Callable[[Callable[[], int | None]], Attempts]
"""A function that makes attempts, as `fill` takes it."""


@cache
def a_header() -> Header:
    return hammer_header().model_copy(update={"seed": SEED, "keep_failures": False})


def a_record(attempt: int, success: bool) -> AttemptRecord:
    return AttemptRecord(
        attempt=attempt,
        seed=scene_seed(SEED, attempt),
        outcome="success" if success else "time_limit",
        success=success,
        steps=1,
        seconds=0.0,
    )


def worker_pool(
    fates: list[bool | None],
    count: int,
    draw: Callable[[st.SearchStrategy[int]], int],
    most: int = 10**6,
) -> Run:
    """Makes a function that begins jobs as `workers.run` does.

    Args:
        fates: Whether each attempt succeeds; None loses it.
        count: Number of workers.
        draw: Draws which job in progress ends first.
        most: Number of jobs after which the program is killed.
    """

    def run(next_job: Callable[[], int | None]) -> Attempts:
        in_progress: list[int] = []
        ended = 0
        while ended < most:
            while len(in_progress) < count and (job := next_job()) is not None:
                in_progress.append(job)
            if not in_progress:
                return
            job = in_progress.pop(draw(st.integers(0, len(in_progress) - 1)))
            ended += 1
            yield job, result(fates[job], job)

    def result(fate: bool | None, job: int) -> Attempted | LostJob:
        return LostJob("it hung") if fate is None else (a_record(job, fate), None)

    return run


def first_of_all(_: st.SearchStrategy[int]) -> int:
    return 0


def collected(folder: Path, run: Run, episodes: int) -> list[AttemptRecord]:
    with DatasetWriter(folder, a_header()) as writer:
        fill(writer, run, episodes)
    return Dataset(folder).manifest()


FATES = st.lists(st.sampled_from([True, True, False, None]), min_size=60, max_size=60)


@settings(max_examples=25)
@given(FATES, st.integers(1, 5), st.integers(1, 9), st.integers(0, 20), st.data())
def test_attempts_are_the_fewest_from_the_first_on(fates, episodes, count, killed_after, data):
    limit = attempt_limit(episodes)
    needed = [k for k in range(limit) if sum(fate is True for fate in fates[:k]) < episodes]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        collected(folder, worker_pool(fates, count, data.draw, killed_after), episodes)
        records = collected(folder, worker_pool(fates, count, data.draw), episodes)
    assert [r.attempt for r in records] == needed
    for r in records:
        assert r.success is (fates[r.attempt] is True)
        assert r.seed == scene_seed(SEED, r.attempt)
        assert (r.outcome == "worker_error") is (fates[r.attempt] is None)


def test_attempts_that_a_crash_left_out_are_made(tmp_path):
    with DatasetWriter(tmp_path, a_header()) as writer:
        for attempt in (0, 1, 3):
            writer.add(a_record(attempt, True))
    records = collected(tmp_path, worker_pool([True] * 9, 1, first_of_all), 2)
    assert [r.attempt for r in records] == [0, 1, 2, 3]


def test_no_attempt_is_begun_after_the_stop(tmp_path):
    with DatasetWriter(tmp_path, a_header()) as writer:
        pool = worker_pool([True] * 9, 2, first_of_all)
        fill(writer, pool, 5, stop=lambda: len(writer.records) > 1)
        assert len(writer.records) == 3  # one was in progress already
