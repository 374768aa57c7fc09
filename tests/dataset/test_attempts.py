"""Attempts, and the collection of the fewest that are needed, for any number of workers."""

import errno
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.small_datasets import hammer_header
from support.stateful_policies import STEPS

from fleet_tools.dataset import AttemptRecord, Dataset, DatasetWriter, attempts, episode_file
from fleet_tools.dataset.attempts import attempt_record, collect_episode, make_attempts, scene_seed
from fleet_tools.dataset.collection import Attempted, Attempts, attempt_limit, fill
from fleet_tools.dataset.header import Header, describe
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.errors import (
    ConfigError,
    DatasetError,
    DiskError,
    OrderDependenceError,
    SimulationError,
)
from fleet_tools.parallel.workers import LostJob
from fleet_tools.policies.sources import find_policy
from fleet_tools.rollouts.agreement import REPEAT
from fleet_tools.rollouts.episode import Episode, first_difference
from fleet_tools.rollouts.rollout import attempt
from fleet_tools.sim.splits import TRAINING

EXPERT = find_policy("expert")
SEEDS = st.integers(0, 2**32)
NUMBERS = st.integers(0, 10**6)


@pytest.fixture(name="header", scope="module")
def _header() -> Header:
    spec = EnvSpec.of("hammer")
    return describe(spec.make(), spec, policy="expert", seed=3, keep_failures=False)


def failing(error: Exception) -> Callable[[], Episode]:
    """Returns a function that raises an error instead of making an episode."""

    def make() -> Episode:
        raise error

    return make


@given(SEEDS, SEEDS, NUMBERS, NUMBERS)
def test_attempts_of_different_datasets_have_different_scenes(seed, other_seed, k, other_k):
    drawn = scene_seed(seed, k)
    assert drawn == scene_seed(seed, k)
    assert drawn in TRAINING
    if (seed, k) != (other_seed, other_k):
        assert drawn != scene_seed(other_seed, other_k)


def test_an_attempt_is_the_episode_of_its_seed(header, tmp_path):
    record, content = make_attempts(header, EXPERT, verify=True)(5)
    assert (record.attempt, record.seed) == (5, scene_seed(3, 5))
    assert record.success
    assert record.verified
    assert content is not None
    (tmp_path / "episode").write_bytes(content)
    stored = episode_file.read(tmp_path / "episode")
    assert first_difference(stored, collect_episode("hammer", record.seed)) is None
    assert record.steps == len(stored)


def test_an_episode_that_is_not_reproducible_does_not_count(header, monkeypatch):
    rollout = attempts.rollout

    def rollout_that_varies(env, policy, *, seed=None, scene=None):
        episode = rollout(env, policy, seed=seed, scene=scene)
        return episode if scene is None else replace(episode, rewards=episode.rewards + 1)

    monkeypatch.setattr(attempts, "rollout", rollout_that_varies)
    record, content = make_attempts(header, EXPERT, verify=True)(0)
    assert (record.outcome, record.success, record.verified) == ("not_reproducible", False, False)
    assert record.error == "run again, it differs from step 1 on: rewards"
    assert content is None


def test_other_versions_on_a_worker_are_refused(header):
    packages = header.packages | {"drake": "1.0"}
    with pytest.raises(DatasetError, match="Install the same"):
        make_attempts(header.model_copy(update={"packages": packages}), EXPERT, verify=False)


@pytest.mark.parametrize(
    ("error", "outcome", "message"),
    [
        (SimulationError("The solver failed."), "simulation_error", "The solver failed."),
        (ZeroDivisionError("by zero"), "worker_error", "ZeroDivisionError: by zero"),
    ],
)
def test_an_error_of_one_attempt_is_recorded(error, outcome, message):
    made = attempt(failing(error))
    assert made.episode is None
    record = attempt_record(7, 2, made)
    assert (record.outcome, record.error, record.steps) == (outcome, message, 0)
    assert (record.attempt, record.seed) == (2, scene_seed(7, 2))
    assert not record.success


def test_an_error_of_every_attempt_is_raised():
    with pytest.raises(ConfigError):
        attempt(failing(ConfigError("No such camera.")))
    with pytest.raises(DiskError, match="no space is left on its disk"):  # no result of a policy
        attempt(failing(OSError(errno.ENOSPC, "No space left on device")))


@pytest.mark.parametrize("name", ["Drawing", "OfModule", "Forgetful", "Seeded"])
def test_a_policy_is_made_once_and_has_to_repeat_its_first_attempt(name, header):
    policy = find_policy(f"support.stateful_policies:{name}")
    make, other = (make_attempts(header, policy, verify=False) for _ in range(2))
    numbers = (4, 2, 3)
    records = [make(number)[0] for number in numbers]
    if name in ("Drawing", "OfModule"):
        with pytest.raises(OrderDependenceError, match=f":{name} does not repeat .* attempt 4,"):
            make(REPEAT)
        return
    make(REPEAT)
    again = {number: other(number)[0] for number in sorted(numbers)}
    for record in records:
        assert record.steps == STEPS
        assert record.state_digest == again[record.attempt].state_digest


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


def test_no_attempt_is_begun_after_the_stop(tmp_path):
    with DatasetWriter(tmp_path, a_header()) as writer:
        pool = worker_pool([True] * 9, 2, first_of_all)
        fill(writer, pool, 5, stop=lambda: len(writer.records) > 1)
        assert len(writer.records) == 3  # one was in progress already
