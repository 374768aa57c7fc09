"""The folder of a dataset: what was written is read, and it is whole after any crash."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.folders import contents
from support.small_datasets import Layout, a_record
from support.small_datasets import a_header as small_header
from support.small_datasets import an_episode as random_episode

from fleet_tools.dataset import Dataset, DatasetWriter, episode_file
from fleet_tools.dataset.header import Header
from fleet_tools.dataset.samples import Samples
from fleet_tools.errors import DatasetError
from fleet_tools.rollouts.episode import Episode, first_difference

LAYOUT: Layout = {"joint_position": ((7,), "float32")}


@cache
def a_header() -> Header:
    return small_header(LAYOUT).model_copy(update={"keep_failures": False})


def an_episode(number: int = 0) -> Episode:
    episode = random_episode(np.random.default_rng(number), 3, True, LAYOUT)
    return replace(episode, info={"planning_seconds": 0.1})


def write(folder: Path, count: int) -> Dataset:
    """Adds episodes to a dataset until it holds a given number."""
    with DatasetWriter(folder, a_header()) as writer:
        for number in range(len(writer.records), count):
            content = episode_file.to_bytes(an_episode(number), number)
            writer.add(a_record(number, an_episode(number)), content)
    return Dataset(folder)


@pytest.fixture(name="five", scope="module")
def _five(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write(tmp_path_factory.mktemp("five"), 5)


@contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    before = contents(folder)
    yield
    assert contents(folder) == before


# --- What is stored -------------------------------------------------------------------------


def test_reads_what_was_written(tmp_path):
    dataset = write(tmp_path / "new" / "set", 3)
    assert [record.attempt for record in dataset.manifest()] == [0, 1, 2]
    assert len(dataset) == 3
    for number, episode in enumerate(dataset):
        assert first_difference(an_episode(number), episode) is None
        assert episode.info == {"planning_seconds": 0.1}
    line = json.loads((dataset.folder / "manifest.jsonl").read_text().splitlines()[1])
    assert line["file"] == "episodes/episode_000001.hdf5"
    assert (line["seed"], line["outcome"], line["steps"]) == (1, "success", 3)


@given(st.none() | st.integers(1, 7), st.integers(0, 2**32))
def test_the_seed_draws_stored_attempts_in_order(five, count, seed):
    drawn = [record.attempt for record in five.draw(count, seed)]
    assert drawn == sorted(set(drawn))
    assert set(drawn) <= set(range(5))
    assert len(drawn) == (5 if count is None else min(count, 5))
    assert drawn == [record.attempt for record in five.draw(count, seed)]


def test_every_stored_attempt_is_drawn_equally_often(five):
    drawn = [record.attempt for seed in range(1000) for record in five.draw(2, seed)]
    rates = np.bincount(drawn, minlength=5) / 1000
    np.testing.assert_allclose(rates, 2 / 5, atol=0.06)  # four standard deviations


def test_failed_attempt_is_recorded_without_a_file(tmp_path):
    with DatasetWriter(tmp_path, a_header()) as writer:
        writer.add(a_record(0, an_episode()))
    dataset = Dataset(tmp_path)
    assert dataset.manifest()[0].file is None
    assert len(dataset) == 0
    with pytest.raises(DatasetError, match="no episode of attempt 0"):
        dataset.episode(0)
    with pytest.raises(DatasetError, match="holds no episodes yet"):
        dataset.draw(None, 0)


# --- Interruptions --------------------------------------------------------------------------


@pytest.mark.parametrize("torn", [b"", b'{"attempt":2,"se', b"\x00\x00", b"{"])
def test_what_a_crash_leaves_is_repaired(tmp_path, torn):
    write(tmp_path / "one", 2)
    with (tmp_path / "one" / "manifest.jsonl").open("ab") as manifest:
        manifest.write(torn)
    (tmp_path / "one" / "episodes" / ".episode_000002.7.aside.hdf5").write_bytes(b"half")
    (tmp_path / "one" / "episodes" / "episode_000002.hdf5").write_bytes(b"never listed")
    assert len(Dataset(tmp_path / "one")) == 2
    write(tmp_path / "one", 3)
    write(tmp_path / "other", 3)
    assert contents(tmp_path / "one") == contents(tmp_path / "other")


# --- What is refused ------------------------------------------------------------------------


def test_another_dataset_is_left_as_it_is(tmp_path):
    write(tmp_path, 1)
    with (tmp_path / "manifest.jsonl").open("ab") as manifest:
        manifest.write(b"torn")
    other = a_header().model_copy(update={"seed": 8, "keep_failures": True})
    match = r"the seed is 7, not 8; keep-failures is False, not True"
    with unchanged(tmp_path), pytest.raises(DatasetError, match=match):
        DatasetWriter(tmp_path, other)


@pytest.mark.parametrize("by_samples", [False, True])
def test_missing_truncated_or_exchanged_episode_is_named_with_its_remedy(tmp_path, by_samples):
    dataset = write(tmp_path, 3)
    samples = Samples(tmp_path)

    def read(attempt: int) -> object:
        return samples.gather([3 * attempt]) if by_samples else dataset.episode(attempt)

    first, second, third = map(dataset.path, dataset.stored())
    first.write_bytes(third.read_bytes())
    second.write_bytes(second.read_bytes()[:-8])
    third.unlink()
    command = r"`python -m fleet_tools.collect --tool hammer --seed 7 --episodes 3 --output"
    problems = "is damaged, or not the episode", "is damaged", "is missing"
    for attempt, problem in enumerate(problems):
        with pytest.raises(DatasetError, match=rf"episode_00000{attempt}.hdf5 {problem}"):
            read(attempt)
    with pytest.raises(DatasetError, match=command):
        read(2)
