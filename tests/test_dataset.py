"""The files of a data set: lossless, the same bytes every time, whole after any crash."""

import io
import json
import math
import tempfile
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fleet_tools.config.tasks import TaskConfig, load_task
from fleet_tools.dataset import Dataset, DatasetWriter, Record, episode_file
from fleet_tools.dataset.header import describe, remake_environment
from fleet_tools.dataset.reader import last_digest
from fleet_tools.errors import DatasetError
from fleet_tools.registration import make_environment
from fleet_tools.rollouts.episode import Episode, first_difference
from fleet_tools.sim.scene import sample_scene
from fleet_tools.utils.statistics import wilson_interval

HAMMER = load_task("hammer")
PICTURES = ["wrist_rgb", "wrist_depth", "wrist_segmentation"]


@cache
def header():
    env = make_environment(task="hammer")
    return describe(env, "hammer", policy="expert", seed=7, keep_failures=False)


@st.composite
def episodes(draw):
    steps = draw(st.integers(0, 4))

    def rows(extra, dtype, *shape):
        return draw(hnp.arrays(dtype, (steps + extra, *shape)))

    names = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1) | st.sampled_from(PICTURES)
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
    )  # fmt: skip


def an_episode(number=0, steps=3):
    generator = np.random.default_rng(number)
    return Episode(
        scene=sample_scene(HAMMER, number),
        observations={"joint_position": generator.normal(size=(steps + 1, 7)).astype(np.float32)},
        actions=generator.uniform(-1, 1, (steps, 6)).astype(np.float32),
        rewards=np.zeros(steps),
        terminated=np.zeros(steps, bool),
        truncated=np.zeros(steps, bool),
        success=np.zeros(steps, bool),
        digests=generator.integers(0, 2**64, steps + 1, np.uint64),
        outcome="success",
        info={"planning_seconds": 0.1},
    )


def a_record(number, episode):
    return Record(
        attempt=number, seed=number, outcome=episode.outcome, success=episode.succeeded,
        steps=len(episode), state_digest=last_digest(episode), seconds=0.5, info=episode.info,
    )  # fmt: skip


def write(folder, count):
    with DatasetWriter(folder, header()) as writer:
        for number in range(len(writer.records), count):
            content = episode_file.to_bytes(an_episode(number), number)
            writer.add(a_record(number, an_episode(number)), content)
    return Dataset(folder)


@pytest.fixture(name="five", scope="module")
def _five(tmp_path_factory):
    return write(tmp_path_factory.mktemp("five"), 5)


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# --- An episode's file ----------------------------------------------------------------------


@settings(deadline=None)
@given(episodes(), st.integers(0, 10**6))
def test_nothing_is_lost_on_disk(episode, number):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "episode.hdf5"
        path.write_bytes(episode_file.to_bytes(episode, number))
        again = episode_file.read(path)
    assert first_difference(episode, again) is None
    assert (again.scene, again.outcome, again.error) == (
        episode.scene,
        episode.outcome,
        episode.error,
    )


def test_same_episode_same_bytes_at_another_time():
    first = episode_file.to_bytes(an_episode(), 4)
    time.sleep(1.1)  # HDF5 counts in seconds
    assert first == episode_file.to_bytes(an_episode(), 4)


def test_arrays_are_contiguous_and_aligned_for_mapping(tmp_path):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "episode.hdf5"
    path.write_bytes(episode_file.to_bytes(an_episode(), 12))
    with h5py.File(path) as file:
        actions = file["episode_12/actions"]
        offset, shape = actions.id.get_offset(), actions.shape
        assert file["episode_12"].attrs["total_steps"] == 3
    assert offset % 8 == 0
    mapped = np.memmap(path, np.float32, "r", offset, shape)
    np.testing.assert_array_equal(mapped, an_episode().actions)


def test_pictures_are_compressed_one_by_one():
    pictures = np.zeros((4, 60, 80, 3), np.uint8)
    episode = replace(an_episode(), observations={"wrist_rgb": pictures})
    content = episode_file.to_bytes(episode, 0)
    assert len(content) < pictures.nbytes / 4
    with h5py.File(io.BytesIO(content)) as file:
        stored = file["episode_0/observations/wrist_rgb"]
        assert stored.chunks == (1, 60, 80, 3)
        np.testing.assert_array_equal(stored, pictures)


@settings(deadline=None)
@given(st.floats(0, 1, exclude_max=True))
def test_truncated_file_is_refused_wherever_it_ends(share):
    whole = episode_file.to_bytes(an_episode(), 0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "episode.hdf5"
        path.write_bytes(whole[: math.floor(share * len(whole))])
        with pytest.raises(DatasetError, match=r"episode\.hdf5 is damaged"):
            episode_file.read(path)


# --- The folder -----------------------------------------------------------------------------


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
def test_draws_stored_attempts_by_the_seed_in_their_order(five, count, seed):
    drawn = [record.attempt for record in five.draw(count, seed)]
    assert drawn == sorted(set(drawn))
    assert set(drawn) <= set(range(5))
    assert len(drawn) == (5 if count is None else min(count, 5))
    assert drawn == [record.attempt for record in five.draw(count, seed)]


def test_every_stored_attempt_is_drawn_as_often(five):
    drawn = [record.attempt for seed in range(1000) for record in five.draw(2, seed)]
    shares = np.bincount(drawn, minlength=5) / 1000
    np.testing.assert_allclose(shares, 2 / 5, atol=0.06)  # four standard deviations


def test_failed_attempt_is_remembered_without_a_file(tmp_path):
    with DatasetWriter(tmp_path, header()) as writer:
        writer.add(a_record(0, an_episode()))
    dataset = Dataset(tmp_path)
    assert dataset.manifest()[0].file is None
    assert len(dataset) == 0
    with pytest.raises(DatasetError, match="no episode of attempt 0"):
        dataset.episode(0)
    with pytest.raises(DatasetError, match="holds no episodes yet"):
        dataset.draw(None, 0)


def test_goes_on_as_if_never_interrupted(tmp_path):
    write(tmp_path / "one", 2)
    write(tmp_path / "one", 4)
    write(tmp_path / "other", 4)
    assert contents(tmp_path / "one") == contents(tmp_path / "other")


@pytest.mark.parametrize("torn", [b'{"attempt":2,"se', b"\x00\x00", b"{"])
def test_what_a_crash_leaves_is_mended(tmp_path, torn):
    write(tmp_path / "one", 2)
    with (tmp_path / "one" / "manifest.jsonl").open("ab") as manifest:
        manifest.write(torn)
    (tmp_path / "one" / "episodes" / ".episode_000002.7.aside.hdf5").write_bytes(b"half")
    (tmp_path / "one" / "episodes" / "episode_000002.hdf5").write_bytes(b"never listed")
    assert len(Dataset(tmp_path / "one")) == 2
    write(tmp_path / "one", 3)
    write(tmp_path / "other", 3)
    assert contents(tmp_path / "one") == contents(tmp_path / "other")


def test_creation_that_was_interrupted_is_begun_again(tmp_path):
    (tmp_path / "episodes").mkdir()
    (tmp_path / "manifest.jsonl").touch()
    (tmp_path / ".dataset.7.aside.json").write_text("{")
    assert len(write(tmp_path, 1)) == 1
    assert not list(tmp_path.rglob("*.aside*"))


def test_another_data_set_is_left_as_it_is(tmp_path):
    write(tmp_path, 1)
    with (tmp_path / "manifest.jsonl").open("ab") as manifest:
        manifest.write(b"torn")
    before = contents(tmp_path)
    other = header().model_copy(update={"seed": 8, "keep_failures": True})
    with pytest.raises(DatasetError, match=r"the seed is 7, not 8; keep-failures is False"):
        DatasetWriter(tmp_path, other)
    assert contents(tmp_path) == before


def test_folder_of_something_else_is_left_as_it_is(tmp_path):
    (tmp_path / "thesis.tex").write_text("Years of work.")
    with pytest.raises(DatasetError, match="neither empty nor a data set"):
        DatasetWriter(tmp_path, header())
    assert contents(tmp_path) == {"thesis.tex": b"Years of work."}


def test_one_writer_at_a_time(tmp_path):
    with (
        DatasetWriter(tmp_path, header()),
        pytest.raises(DatasetError, match="Another process is writing"),
    ):
        DatasetWriter(tmp_path, header())
    write(tmp_path, 1)


def test_unknown_schema_version_is_refused(tmp_path):
    write(tmp_path, 1)
    path = tmp_path / "dataset.json"
    path.write_text(path.read_text().replace('"schema_version": 1', '"schema_version": 99'))
    with pytest.raises(DatasetError, match=r"schema version 99; .* reads 1"):
        Dataset(tmp_path)


@pytest.mark.parametrize("name", ["dataset.json", "manifest.jsonl"])
def test_missing_and_damaged_files_are_named(tmp_path, name):
    write(tmp_path, 1)
    path = tmp_path / name
    path.write_text("{}}\n")
    with pytest.raises(DatasetError, match=rf"{name}.* is damaged.*\n?.*Restore"):
        Dataset(tmp_path)
    path.unlink()
    with pytest.raises(DatasetError, match=name):
        Dataset(tmp_path)


def test_missing_truncated_or_exchanged_episode_is_named_with_its_remedy(tmp_path):
    dataset = write(tmp_path, 3)
    first, second, third = (tmp_path / record.file for record in dataset.stored())
    first.write_bytes(third.read_bytes())
    second.write_bytes(second.read_bytes()[:-8])
    third.unlink()
    again = r"`python -m fleet_tools.collect --tool hammer --seed 7 --episodes 3 --output"
    for attempt, problem in ((0, "is not the episode"), (1, "is damaged"), (2, "is missing")):
        with pytest.raises(DatasetError, match=rf"episode_00000{attempt}.hdf5 {problem}"):
            dataset.episode(attempt)
    with pytest.raises(DatasetError, match=again):
        dataset.episode(2)


# --- The header and the summary -------------------------------------------------------------


def test_header_describes_every_array_of_a_step():
    env = make_environment(task="hammer")
    described = header().observation
    assert {name: array.shape for name, array in described.items()} == {
        name: space.shape for name, space in env.observation_space.items()
    }
    assert described["tool_keypoints"].entries == env.task.keypoints.tool
    assert header().action.scale == tuple(env.action_scale)


def test_environment_is_made_again_from_the_task_as_it_was():
    text = header().task.text.replace("max_episode_steps: 60", "max_episode_steps: 7")
    changed = HAMMER.model_copy(update={"max_episode_steps": 7})
    assert isinstance(changed, TaskConfig)
    task = header().task.model_copy(update={"text": text, "content_digest": changed.digest()})
    then = header().model_copy(update={"task": task})
    assert remake_environment(then).task == changed
    assert remake_environment(header()).task == HAMMER


@given(st.integers(1, 1000), st.data())
def test_wilson_interval_holds_the_rate(trials, data):
    successes = data.draw(st.integers(0, trials))
    low, high = wilson_interval(successes, trials)
    assert 0 <= low <= successes / trials <= high <= 1
    mirrored = wilson_interval(trials - successes, trials)
    np.testing.assert_allclose(mirrored, (1 - high, 1 - low), atol=2e-6)


def test_wilson_interval_of_a_published_case():
    np.testing.assert_allclose(wilson_interval(81, 263), (0.2553, 0.3662), atol=5e-5)  # Newcombe
