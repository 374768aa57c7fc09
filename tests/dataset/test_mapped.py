"""Mapped episodes: opened when they are used, closed with the last array, never another's."""

import os
from pathlib import Path

import numpy as np
import pytest
from support.small_datasets import Drawn, write

from fleet_tools.dataset import Dataset
from fleet_tools.dataset.file_mapping import map_file
from fleet_tools.dataset.mapped import MappedEpisodes
from fleet_tools.dataset.samples import Samples
from fleet_tools.errors import DatasetError


def write_successes(folder: Path, *steps: int) -> Dataset:
    return write(folder, Drawn(list(steps), [True] * len(steps), 0))


# --- Files ----------------------------------------------------------------------------------


def test_mapped_files_are_closed_and_outlive_their_names(tmp_path: Path):
    path = tmp_path / "bytes"
    path.write_bytes(bytes(range(256)) * 40)
    before = os.listdir("/dev/fd")
    part = map_file(path)[5000:5003]  # the rest of the mapping lasts as long
    assert os.listdir("/dev/fd") == before
    path.unlink()
    assert part.tolist() == [(5000 + k) % 256 for k in range(3)]
    assert not part.flags.writeable
    (tmp_path / "empty").touch()
    for name in ("empty", "missing"):
        with pytest.raises(OSError, match=name):
            map_file(tmp_path / name)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="no list of mappings")
def test_memory_is_released_with_the_last_array(tmp_path: Path):
    path = tmp_path / "bytes"
    path.write_bytes(bytes(2**20))

    def mappings() -> int:
        return Path("/proc/self/maps").read_text().count(str(path))

    part = map_file(path)[10:].reshape(-1, 2).view(np.int16)
    assert mappings() == 1
    del part
    assert mappings() == 0


# --- Episodes -------------------------------------------------------------------------------


def test_no_episode_is_opened_before_it_is_used(tmp_path: Path):
    dataset = write_successes(tmp_path, 2, 2)
    dataset.path(dataset.stored()[1]).unlink()
    samples = Samples(tmp_path)
    assert len(samples) == 4
    samples.gather([0, 1])
    with pytest.raises(DatasetError, match=r"episode_000001\.hdf5 is missing.*--seed 7"):
        samples.gather([1, 2])


def test_more_episodes_than_can_be_mapped_at_once(tmp_path: Path):
    dataset = write_successes(tmp_path, 1, 1, 1, 1, 1)
    samples = Samples(tmp_path)
    samples._mapped = MappedEpisodes(samples._arrays(), capacity=2)
    for index in [0, 1, 2, 3, 4, 0, 4, 1, 1]:
        batch, episode = samples.gather([index]), dataset.episode(index)
        np.testing.assert_array_equal(batch["action"], episode.actions)
        for name, rows in batch["observation"].items():
            np.testing.assert_array_equal(rows, episode.observations[name][:1])
        assert len(samples._mapped._mapped) <= 2


def test_mapped_rows_are_read_only(tmp_path: Path):
    write_successes(tmp_path, 3)
    actions = Samples(tmp_path).rows(0)["actions"]
    assert isinstance(actions, np.ndarray)
    with pytest.raises(ValueError, match="read-only"):
        actions[0] = 7


# --- What cannot be read --------------------------------------------------------------------


def test_missing_truncated_or_exchanged_episode_is_named_with_its_remedy(tmp_path: Path):
    dataset = write_successes(tmp_path, 1, 1, 1, 1)
    paths = [dataset.path(record) for record in dataset.stored()]
    paths[0].write_bytes(paths[3].read_bytes())
    paths[1].write_bytes(paths[1].read_bytes()[:-8])
    paths[2].unlink()
    samples = Samples(tmp_path)
    for index, problem in enumerate(("is damaged, or not the episode", "is damaged", "is missing")):
        match = rf"episode_00000{index}.hdf5 {problem}.*python -m fleet_tools.collect --tool"
        with pytest.raises(DatasetError, match=match):
            samples.gather([index])


def test_file_that_shrinks_after_it_was_located_is_refused(tmp_path: Path):
    dataset = write_successes(tmp_path, 2, 2)
    samples = Samples(tmp_path)
    samples._mapped = MappedEpisodes(samples._arrays(), capacity=1)
    samples.gather([0, 2])
    path = dataset.path(dataset.stored()[0])
    shorter = path.read_bytes()[:256]
    path.unlink()  # what is mapped remains in the former file
    path.write_bytes(shorter)
    with pytest.raises(DatasetError, match=r"episode_000000\.hdf5 cannot be mapped.*--tool"):
        samples.gather([0])


def test_array_that_the_header_describes_otherwise_is_refused(tmp_path: Path):
    write_successes(tmp_path, 2)
    path = tmp_path / "dataset.json"
    path.write_text(path.read_text().replace('"float32"', '"float64"'))
    with pytest.raises(DatasetError, match=r"float32 of shape \(3, 7\).*float64"):
        Samples(tmp_path, observations=["joint_position"]).gather([0])


def test_damaged_image_is_named(tmp_path: Path):
    dataset = write_successes(tmp_path, 2)
    samples = Samples(tmp_path, observations=["wrist_rgb"])
    samples.gather([0])
    dataset.path(dataset.stored()[0]).write_bytes(b"no HDF5")
    with pytest.raises(DatasetError, match=r"is damaged.*python -m fleet_tools.collect"):
        samples.gather([0])
