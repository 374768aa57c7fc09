"""Samples: what `Dataset.episode` gives, cut into steps and windows."""

import os
import pickle
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st
from small_data_sets import OBSERVATION, Drawn, a_header, drawn, write

from fleet_tools.dataset import Dataset
from fleet_tools.dataset.file_mapping import map_file
from fleet_tools.dataset.mapped import MappedEpisodes
from fleet_tools.dataset.samples import Samples
from fleet_tools.dataset.windows import Windows
from fleet_tools.errors import ConfigError, DatasetError, UnknownNameError

LENGTHS = st.none() | st.integers(1, 7) | st.just("episode")


@contextmanager
def on_disk(*contents):
    with tempfile.TemporaryDirectory() as folder:
        folders = [Path(folder) / str(number) for number in range(len(contents))]
        yield [write(*each) for each in zip(folders, contents, strict=True)]


def expected(datasets, length, stride, padded, names=tuple(OBSERVATION), failures=True):
    """Every sample, cut out of whole episodes one by one."""
    episodes = [
        dataset.episode(record.attempt)
        for dataset in datasets
        for record in dataset.stored()
        if record.success or failures
    ]
    if length == "episode":
        length = stride = max([1, *map(len, episodes)])
        padded = True
    for episode in episodes:
        for start in range(0, len(episode), stride):
            if padded or start + (length or 1) <= len(episode):
                yield one(episode, start, length, names)


def one(episode, start, length, names):
    rows = {name: episode.observations[name][:-1] for name in names} | {"": episode.actions}
    if length is None:
        cut = {name: array[start] for name, array in rows.items()}
        return {"observation": cut, "action": cut.pop("")}
    cut = {name: array[start : start + length] for name, array in rows.items()}
    present = len(cut[""])
    cut = {
        name: np.concatenate([a, np.zeros((length - present, *a.shape[1:]), a.dtype)])
        for name, a in cut.items()
    }
    mask = np.array([True] * present + [False] * (length - present))
    return {"observation": cut, "action": cut.pop(""), "mask": mask}


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, mine in one.items():
        if isinstance(mine, dict):
            assert_same(mine, other[name])
        else:
            assert np.asarray(mine).dtype == np.asarray(other[name]).dtype
            np.testing.assert_array_equal(mine, other[name])


def row(batch, k):
    return {
        name: row(part, k) if isinstance(part, dict) else part[k] for name, part in batch.items()
    }


# --- Samples are what is in the episodes ----------------------------------------------------


@settings(deadline=None, max_examples=25)
@given(drawn(), drawn(), LENGTHS, st.integers(1, 3), st.booleans(), st.data())
def test_samples_are_the_steps_of_episodes(first, second, length, stride, padded, data):
    names = data.draw(st.lists(st.sampled_from(sorted(OBSERVATION)), unique=True))
    with on_disk(first, second) as datasets:
        samples = Samples(
            [dataset.folder for dataset in datasets],
            observations=names,
            sequence_length=length,
            stride=stride,
            padded=padded,
            failures=True,
        )
        wanted = list(expected(datasets, length, stride, padded, names))
        assert len(samples) == len(wanted)
        if wanted:
            indices = data.draw(st.lists(st.integers(-len(wanted), len(wanted) - 1), max_size=9))
            batch = samples.gather(indices)
            assert len(batch["action"]) == len(indices)
            for k, index in enumerate(indices):
                assert_same(row(batch, k), wanted[index])


@given(st.lists(st.integers(0, 20)), st.integers(1, 9), st.integers(1, 9))
def test_windows_hold_every_step_as_often_as_they_should(steps, length, stride):
    padded = Windows(np.array(steps, int), length, stride, True)
    whole = Windows(np.array(steps, int), length, stride, False)
    seen = [np.zeros(T, int) for T in steps]
    for episode, start, size in zip(*padded.locate(range(len(padded))), strict=True):
        assert start % stride == 0 and 1 <= size <= length
        seen[episode][start : start + size] += 1
    if stride == length:
        assert all((count == 1).all() for count in seen)  # no step is lost, none comes twice
    if stride == 1:
        assert all((count == np.minimum(np.arange(T) + 1, length)).all()
                   for T, count in zip(steps, seen, strict=True))  # fmt: skip
    triples = set(zip(*map(np.ndarray.tolist, padded.locate(range(len(padded)))), strict=True))
    full = set(zip(*map(np.ndarray.tolist, whole.locate(range(len(whole)))), strict=True))
    assert full == {triple for triple in triples if triple[2] == length}


@settings(deadline=None, max_examples=20)
@given(drawn(), LENGTHS, st.data())
def test_subset_has_the_samples_of_its_episodes(content, length, data):
    with on_disk(content) as (dataset,):
        samples = Samples(dataset.folder, sequence_length=length, failures=True)
        places = range(len(samples.episodes))
        part = data.draw(st.lists(st.sampled_from(places), unique=True))
        subset = samples.subset(part)
        assert subset.episodes == tuple(samples.episodes[place] for place in part)
        rest = samples.subset(place for place in places if place not in part)
        assert len(subset) + len(rest) == len(samples)
        whole = samples.gather(range(len(samples)))
        owners, *_ = samples._windows.locate(range(len(samples)))
        order = [k for place in part for k in np.flatnonzero(owners == place)]
        batch = subset.gather(range(len(subset)))
        assert len(order) == len(subset)
        for k, index in enumerate(order):
            assert_same(row(batch, k), row(whole, index))


def test_only_successes_unless_failures_are_wanted(tmp_path):
    dataset = write(tmp_path, Drawn([2, 3, 4], [True, False, True], 0))
    assert len(Samples(tmp_path)) == 6
    assert len(Samples(tmp_path, failures=True)) == 9
    assert [episode.record for episode in Samples(tmp_path).episodes] == [
        record for record in dataset.stored() if record.success
    ]


def test_samples_of_a_collected_data_set(uninterrupted):
    dataset = Dataset(uninterrupted)
    names = tuple(dataset.header.observation)
    for length in (None, 8, "episode"):
        samples = Samples(dataset.folder, sequence_length=length)
        batch = samples.gather(range(len(samples)))
        for k, sample in enumerate(expected([dataset], length, 1, True, names)):
            assert_same(row(batch, k), sample)
        assert k + 1 == len(samples)


# --- What is opened, and what travels -------------------------------------------------------


def test_no_episode_is_opened_before_it_is_wanted(tmp_path):
    dataset = write(tmp_path, Drawn([2, 2], [True, True], 0))
    (tmp_path / dataset.stored()[1].file).unlink()
    samples = Samples(tmp_path)
    assert len(samples) == 4
    samples.gather([0, 1])
    with pytest.raises(DatasetError, match=r"episode_000001\.hdf5 is missing.*--seed 7"):
        samples.gather([1, 2])


def test_more_episodes_than_can_be_mapped_at_once(tmp_path):
    dataset = write(tmp_path, Drawn([1] * 5, [True] * 5, 0))
    samples = Samples(tmp_path)
    samples._mapped = MappedEpisodes(samples._arrays(), capacity=2)
    wanted = list(expected([dataset], None, 1, True))
    for index in [0, 1, 2, 3, 4, 0, 4, 1, 1]:
        assert_same(row(samples.gather([index]), 0), wanted[index])
        assert len(samples._mapped._mapped) <= 2


def test_mapped_files_are_closed_and_outlive_their_names(tmp_path):
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


def test_memory_is_given_back_with_the_last_array(tmp_path):
    path = tmp_path / "bytes"
    path.write_bytes(bytes(2**20))

    def mappings():
        return Path("/proc/self/maps").read_text().count(str(path))

    if not Path("/proc/self/maps").exists():
        pytest.skip("this system does not list mappings")
    part = map_file(path)[10:].reshape(-1, 2).view(np.int16)
    assert mappings() == 1
    del part
    assert mappings() == 0


def test_copy_in_another_process_begins_unmapped_and_gives_the_same(tmp_path):
    write(tmp_path, Drawn([3, 2], [True, True], 0))
    samples = Samples(tmp_path, sequence_length=2)
    before = len(pickle.dumps(samples))
    batch = samples.gather(range(5))
    sent = pickle.dumps(samples)
    assert len(sent) == before
    assert_same(pickle.loads(sent).gather(range(5)), batch)


def test_gathered_samples_are_copies_and_mapped_rows_are_read_only(tmp_path):
    write(tmp_path, Drawn([3], [True], 0))
    samples = Samples(tmp_path)
    batch = samples.gather([0])
    batch["action"][:] = 7
    assert (samples.gather([0])["action"] != 7).all()
    with pytest.raises(ValueError, match="read-only"):
        samples.rows(0)["actions"][0] = 7


# --- What cannot be read --------------------------------------------------------------------


def test_missing_truncated_or_exchanged_episode_is_named_with_its_remedy(tmp_path):
    dataset = write(tmp_path, Drawn([1, 1, 1, 1], [True] * 4, 0))
    paths = [tmp_path / record.file for record in dataset.stored()]
    paths[0].write_bytes(paths[3].read_bytes())
    paths[1].write_bytes(paths[1].read_bytes()[:-8])
    paths[2].unlink()
    samples = Samples(tmp_path)
    for index, problem in enumerate(("is not the episode", "is damaged", "is missing")):
        match = rf"episode_00000{index}.hdf5 {problem}.*python -m fleet_tools.collect --tool"
        with pytest.raises(DatasetError, match=match):
            samples.gather([index])


def test_file_that_shrinks_after_it_was_located_is_refused(tmp_path):
    dataset = write(tmp_path, Drawn([2, 2], [True, True], 0))
    samples = Samples(tmp_path)
    samples._mapped = MappedEpisodes(samples._arrays(), capacity=1)
    samples.gather([0, 2])
    path = tmp_path / dataset.stored()[0].file
    shorter = path.read_bytes()[:256]
    path.unlink()  # for what is mapped lives on in the old one
    path.write_bytes(shorter)
    with pytest.raises(DatasetError, match=r"episode_000000\.hdf5 cannot be mapped.*--tool"):
        samples.gather([0])


def test_array_that_the_header_describes_otherwise_is_refused(tmp_path):
    write(tmp_path, Drawn([2], [True], 0))
    path = tmp_path / "dataset.json"
    path.write_text(path.read_text().replace('"float32"', '"float64"'))
    with pytest.raises(DatasetError, match=r"float32 of shape \(3, 7\).*float64"):
        Samples(tmp_path, observations=["joint_position"]).gather([0])


def test_damaged_picture_is_named(tmp_path):
    dataset = write(tmp_path, Drawn([2], [True], 0))
    samples = Samples(tmp_path, observations=["wrist_rgb"])
    samples.gather([0])
    (tmp_path / dataset.stored()[0].file).write_bytes(b"no HDF5")
    with pytest.raises(DatasetError, match=r"is damaged.*python -m fleet_tools.collect"):
        samples.gather([0])


# --- What cannot be asked for ---------------------------------------------------------------


def test_data_sets_that_differ_are_refused_unless_what_differs_is_not_wanted(tmp_path):
    content = Drawn([1], [True], 0)
    write(tmp_path / "one", content)
    header = a_header(OBSERVATION | {"point_cloud": ((6, 4), "float32"), "more": ((1,), "uint8")})
    write(tmp_path / "other", content, header)
    folders = [tmp_path / "one", tmp_path / "other"]
    match = r"point_cloud: shape \(5, 4\), not \(6, 4\); more: only in the latter\. What fits: jo"
    with pytest.raises(DatasetError, match=match):
        Samples(folders)
    assert len(Samples(folders, observations=["joint_position", "wrist_rgb"])) == 2
    with pytest.raises(UnknownNameError, match=r"observation in .*one 'more'"):
        Samples(folders, observations=["more"])
    action = header.action.model_copy(update={"scale": (1.0,) * 6})
    write(tmp_path / "third", content, header.model_copy(update={"action": action}))
    with pytest.raises(DatasetError, match=r"action: scale"):
        Samples([tmp_path / "other", tmp_path / "third"])


@pytest.mark.parametrize("length", [0, -1, 2.0, True, "whole"])
def test_length_or_stride_that_is_no_count_is_refused(tmp_path, length):
    write(tmp_path, Drawn([1], [True], 0))
    with pytest.raises(ConfigError, match=f"sequence_length is a positive .*given: {length!r}"):
        Samples(tmp_path, sequence_length=length)
    with pytest.raises(ConfigError, match="stride is"):
        Samples(tmp_path, stride=length)


def test_nothing_to_learn_from_is_said_so(tmp_path):
    write(tmp_path, Drawn([1, 2], [False, False], 0))
    with pytest.raises(DatasetError, match=r"no episode that succeeded, 2 that failed"):
        Samples(tmp_path)
    with pytest.raises(DatasetError, match="No data set is given"):
        Samples([])
    with pytest.raises(IndexError, match="no item 3; there are 3"):
        Samples(tmp_path, failures=True).gather([3])


def test_samples_need_no_torch_and_tensors_say_how_to_get_it(tmp_path):
    write(tmp_path, Drawn([1], [True], 0))
    program = f"""
import sys
sys.modules["torch"] = None
from fleet_tools.dataset.normalization import normalization_of
from fleet_tools.dataset.samples import Samples
normalization_of(Samples({str(tmp_path)!r}))
try:
    import fleet_tools.dataset.learning
except ImportError as error:
    print(type(error).__name__, error)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert "MissingLibraryError torch is needed to give samples as tensors" in ran.stdout, ran
    assert "fleet_tools.dataset.samples" in ran.stdout
