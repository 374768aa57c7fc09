"""An episode's file: lossless, the same bytes every time, read from where they lie, never half."""

import io
import math
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.small_datasets import an_episode as random_episode

from fleet_tools.config.tasks import load_task
from fleet_tools.dataset import episode_file
from fleet_tools.errors import DatasetError
from fleet_tools.rollouts.episode import Episode, first_difference
from fleet_tools.sim.scene import sample_scene

HAMMER = load_task("hammer")
IMAGES = ["wrist_rgb", "wrist_depth", "wrist_segmentation"]


def an_episode() -> Episode:
    layout = {"joint_position": ((7,), "float32")}
    return random_episode(np.random.default_rng(0), 3, True, layout)


@st.composite
def episodes(draw: st.DrawFn) -> Episode:
    steps = draw(st.integers(0, 4))

    def rows(extra: int, dtype: Any, *shape: int) -> np.ndarray:
        return draw(hnp.arrays(dtype, (steps + extra, *shape)))

    names = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1) | st.sampled_from(IMAGES)
    dtypes = st.sampled_from(["float32", "float64", "uint8", "int64"])
    return Episode(
        scene=sample_scene(HAMMER, draw(st.integers(0, 2**53 - 1))),
        observations={
            name: rows(1, draw(dtypes), *draw(hnp.array_shapes(max_dims=2, max_side=3)))
            for name in draw(st.sets(names, min_size=1, max_size=3))
        },
        actions=rows(0, "float32", 6),
        rewards=rows(0, "float64"),
        terminated=rows(0, "bool"),
        truncated=rows(0, "bool"),
        success=rows(0, "bool"),
        digests=rows(1, "uint64"),
        outcome=draw(st.sampled_from(["success", "time_limit", "policy_error"])),
        error=draw(st.none() | st.text()),
    )


@settings(max_examples=50)
@given(episodes(), st.integers(0, 10**6))
def test_nothing_is_lost_on_disk(episode, number):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "episode.hdf5"
        path.write_bytes(episode_file.to_bytes(episode, number, IMAGES))
        stored = episode_file.read(path)
    assert first_difference(episode, stored) is None
    assert stored.scene == episode.scene
    assert (stored.outcome, stored.error) == (episode.outcome, episode.error)


def test_same_episode_same_bytes_at_another_time():
    first = episode_file.to_bytes(an_episode(), 4)
    time.sleep(1.1)  # HDF5 counts in seconds
    assert first == episode_file.to_bytes(an_episode(), 4)


def test_arrays_are_contiguous_and_aligned(tmp_path):
    path = tmp_path / "episode.hdf5"
    path.write_bytes(episode_file.to_bytes(an_episode(), 12))
    with h5py.File(path) as file:
        actions = file["episode_12/actions"]
        assert isinstance(actions, h5py.Dataset)
        offset, shape = actions.id.get_offset(), actions.shape
        assert file["episode_12"].attrs["total_steps"] == 3
    assert offset % 8 == 0
    mapped = np.memmap(path, np.float32, "r", offset, shape)
    np.testing.assert_array_equal(mapped, an_episode().actions)


def test_images_are_compressed_one_by_one():
    images = np.zeros((4, 60, 80, 3), np.uint8)
    episode = replace(an_episode(), observations={"wrist_rgb": images})
    content = episode_file.to_bytes(episode, 0, IMAGES)
    assert len(content) < images.nbytes / 4
    with h5py.File(io.BytesIO(content)) as file:
        stored = file["episode_0/observations/wrist_rgb"]
        assert isinstance(stored, h5py.Dataset)
        assert stored.chunks == (1, 60, 80, 3)
        np.testing.assert_array_equal(stored, images)


@given(st.floats(0, 1, exclude_max=True))
def test_truncated_file_is_refused_wherever_it_ends(fraction):
    complete = episode_file.to_bytes(an_episode(), 0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "episode.hdf5"
        path.write_bytes(complete[: math.floor(fraction * len(complete))])
        with pytest.raises(DatasetError, match=r"episode\.hdf5 is damaged"):
            episode_file.read(path)


def test_file_of_another_layout_is_refused(tmp_path):
    path = tmp_path / "other.hdf5"
    with h5py.File(path, "w") as file:
        file.create_group("episode_0/actions")  # a group where an array is expected
    with pytest.raises(DatasetError, match=r"other\.hdf5 is damaged or not an episode"):
        episode_file.read(path)
    with pytest.raises(DatasetError, match=r"missing\.hdf5 is missing"):
        episode_file.read(tmp_path / "missing.hdf5")
