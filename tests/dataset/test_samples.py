"""Samples are the steps of episodes, their statistics, and partitions among robots."""

import json
import os
import pickle
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.processes import run_python
from support.shares import few
from support.small_datasets import (
    OBSERVATION,
    Drawn,
    a_header,
    a_record,
    an_episode,
    drawn,
    to_imitate,
    write,
)

from fleet_tools.config.values import parse
from fleet_tools.dataset import Dataset, DatasetWriter, episode_file
from fleet_tools.dataset.normalization import Normalization, normalization_of
from fleet_tools.dataset.partition import dirichlet_partition
from fleet_tools.dataset.samples import Samples
from fleet_tools.errors import ConfigError, DatasetError, UnknownNameError
from fleet_tools.rollouts.episode import Episode

Length = int | Literal["episode"] | None
LENGTHS = st.none() | st.integers(1, 7) | st.just("episode")


@contextmanager
def on_disk(*contents: Drawn) -> Iterator[list[Dataset]]:
    """Writes datasets, and removes them at the end."""
    with tempfile.TemporaryDirectory() as folder:
        folders = [Path(folder) / str(number) for number in range(len(contents))]
        yield [write(*each) for each in zip(folders, contents, strict=True)]


def expected_samples(
    datasets: Sequence[Dataset],
    length: Length,
    stride: int,
    padded: bool,
    names: Sequence[str] = tuple(OBSERVATION),
) -> list[dict[str, Any]]:
    """Returns every sample, cut out of complete episodes one by one."""
    episodes = [
        dataset.episode(record.attempt) for dataset in datasets for record in dataset.stored()
    ]
    if length == "episode":
        length = stride = max([1, *map(len, episodes)])
        padded = True
    return [
        expected_sample(episode, start, length, names)
        for episode in episodes
        for start in range(0, len(episode), stride)
        if padded or start + (length or 1) <= len(episode)
    ]


def expected_sample(
    episode: Episode, start: int, length: int | None, names: Sequence[str]
) -> dict[str, Any]:
    observed = {name: episode.observations[name][:-1] for name in names}
    imitate, action = to_imitate(episode)
    of_steps = {"action": action, "imitate": imitate, "executed_action": episode.actions}
    if length is None:
        cut = {name: array[start] for name, array in observed.items()}
        return {"observation": cut, **{name: array[start] for name, array in of_steps.items()}}
    present = min(length, len(episode) - start)

    def window(rows: np.ndarray) -> np.ndarray:
        padding = np.zeros((length - present, *rows.shape[1:]), rows.dtype)
        return np.concatenate([rows[start : start + present], padding])

    return {
        "observation": {name: window(array) for name, array in observed.items()},
        **{name: window(array) for name, array in of_steps.items()},
        "mask": np.array([True] * present + [False] * (length - present)),
    }


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, array in one.items():
        if isinstance(array, dict):
            assert_same(array, other[name])
        else:
            assert np.asarray(array).dtype == np.asarray(other[name]).dtype
            np.testing.assert_array_equal(array, other[name])


def row(batch: dict[str, Any], k: Any) -> dict[str, Any]:
    """Returns one sample of a batch."""
    return {
        name: row(part, k) if isinstance(part, dict) else part[k] for name, part in batch.items()
    }


# --- Samples are what is in the episodes ----------------------------------------------------


@few(10)
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
        expected = expected_samples(datasets, length, stride, padded, names)
        assert len(samples) == len(expected)
        if expected:
            bound = st.integers(-len(expected), len(expected) - 1)
            indices = data.draw(st.lists(bound, max_size=9))
            batch = samples.gather(indices)
            assert len(batch["action"]) == len(indices)
            for k, index in enumerate(indices):
                assert_same(row(batch, k), expected[index])


@few(10)
@given(drawn(), LENGTHS, st.data())
def test_subset_has_the_samples_of_its_episodes(content, length, data):
    with on_disk(content) as (dataset,):
        samples = Samples(dataset.folder, sequence_length=length, failures=True)
        indices = range(len(samples.episodes))
        part = data.draw(st.lists(st.sampled_from(indices), unique=True))
        subset = samples.subset(part)
        assert subset.episodes == tuple(samples.episodes[index] for index in part)
        rest = samples.subset(index for index in indices if index not in part)
        assert len(subset) + len(rest) == len(samples)
        everything = samples.gather(range(len(samples)))
        starts, _ = samples._locate(range(len(samples)))
        owners = np.searchsorted(samples.starts + samples.lengths, starts, side="right")
        order = [int(k) for index in part for k in np.flatnonzero(owners == index)]
        batch = subset.gather(range(len(subset)))
        assert len(order) == len(subset)
        for k, index in enumerate(order):
            assert_same(row(batch, k), row(everything, index))


def test_failures_are_used_only_on_request(tmp_path):
    dataset = write(tmp_path, Drawn([2, 3, 4], [True, False, True], 0))
    assert len(Samples(tmp_path)) == 6
    assert len(Samples(tmp_path, failures=True)) == 9
    assert [episode.record for episode in Samples(tmp_path).episodes] == [
        record for record in dataset.stored() if record.success
    ]


@few(10)
@given(drawn(), st.data())
def test_steps_are_read_in_any_order_and_shape(content, data):
    with on_disk(content) as (dataset,):
        samples = Samples(dataset.folder, sequence_length=2, failures=True)
        count = int(samples.lengths.sum())
        shape = data.draw(hnp.array_shapes(min_side=0, max_dims=3, max_side=4))
        steps = data.draw(hnp.arrays(np.int64, shape, elements=st.integers(0, max(count - 1, 0))))
        if count == 0:
            steps = steps[:0]
        expected = Samples(dataset.folder, failures=True).gather(steps.reshape(-1))
        read = samples.read(steps)
        for k, place in enumerate(np.ndindex(steps.shape)):
            assert_same(row(read, place), row(expected, k))


# --- PyTorch --------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [None, 3, "episode"])
@pytest.mark.parametrize(
    ("workers", "start"), [(0, None), (2, "fork"), pytest.param(2, "spawn", marks=pytest.mark.slow)]
)
def test_a_loader_gives_tensors_of_the_samples(tmp_path, length, workers, start):
    torch = pytest.importorskip("torch")
    from torch.utils.data import BatchSampler, ConcatDataset, DataLoader, Subset

    torch.set_num_threads(1)
    write(tmp_path, Drawn([4, 0, 7], [True] * 3, 0))
    samples = Samples(tmp_path, sequence_length=length)
    assert_same(samples[0], row(samples.gather([0]), 0))  # one is read before workers begin
    with pytest.raises(IndexError):
        samples[len(samples)]  # so that a loop over them ends
    order = np.random.default_rng(0).permutation(len(samples)).tolist()
    where: Any = {"num_workers": workers, "multiprocessing_context": start}
    at_once = BatchSampler(order, 4, drop_last=False)
    for loader in (
        DataLoader(samples, 4, sampler=order, **where),  # pyright: ignore[reportArgumentType]
        DataLoader(samples, sampler=at_once, batch_size=None, **where),  # pyright: ignore
        DataLoader(Subset(samples, order), 4, **where),  # pyright: ignore[reportArgumentType]
        DataLoader(ConcatDataset([samples, samples]), 4, sampler=order, **where),  # pyright: ignore
    ):
        for k, batch in enumerate(loader):
            assert_same(batch, samples.gather(order[4 * k : 4 * k + 4]))
            assert isinstance(batch["action"], torch.Tensor)


def test_a_copy_in_another_process_has_read_nothing_and_gives_the_same(tmp_path):
    write(tmp_path, Drawn([3, 2], [True, True], 0))
    samples = Samples(tmp_path, sequence_length=2)
    batch = samples.gather(range(5))
    copied = pickle.loads(pickle.dumps(samples))
    assert not any("contents" in vars(episode) for episode in copied.episodes)
    assert_same(copied.gather(range(5)), batch)


def test_samples_need_no_pytorch(tmp_path):
    write(tmp_path, Drawn([1], [True], 0))
    code = """
import json, sys
sys.modules["torch"] = None
from fleet_tools.dataset.normalization import normalization_of
from fleet_tools.dataset.samples import Samples
print(json.dumps(normalization_of(Samples(sys.argv[1])).action.count))
"""
    assert run_python(code, str(tmp_path)) == 1


# --- Files ----------------------------------------------------------------------------------


def test_no_episode_is_opened_before_it_is_used_nor_stays_open(tmp_path):
    dataset = write(tmp_path, Drawn([2, 2], [True, True], 0))
    dataset.path(dataset.stored()[1]).unlink()
    samples, before = Samples(tmp_path), os.listdir("/dev/fd")
    assert len(samples) == 4
    samples.gather([0, 1])
    assert os.listdir("/dev/fd") == before
    with pytest.raises(DatasetError, match=r"episode_000001\.hdf5 is missing.*--seed 7"):
        samples.gather([1, 2])


@pytest.mark.parametrize("name", ["joint_position", "wrist_rgb"])
def test_a_file_that_is_damaged_after_it_was_located_is_named(tmp_path, name):
    dataset = write(tmp_path, Drawn([2], [True], 0))
    samples = Samples(tmp_path, observations=[name])
    samples.gather([0])
    path = dataset.path(dataset.stored()[0])
    path.write_bytes(path.read_bytes()[:256])
    with pytest.raises(
        DatasetError, match=r"episode_000000\.hdf5 (cannot be read: it is shorter|is)"
    ):
        samples.gather([0])
    path.unlink()
    with pytest.raises(DatasetError, match=r"episode_000000\.hdf5 .*collect --tool"):
        samples.gather([0])


def test_an_array_that_the_header_describes_otherwise_is_refused(tmp_path):
    write(tmp_path, Drawn([2], [True], 0))
    path = tmp_path / "dataset.json"
    path.write_text(path.read_text().replace('"float32"', '"float64"'))
    with pytest.raises(DatasetError, match=r"float32 of shape \(2, 6\).*float64"):
        Samples(tmp_path, observations=["joint_position"]).gather([0])


# --- What is refused ------------------------------------------------------------------------


def test_datasets_that_differ_are_refused_unless_the_difference_is_not_used(tmp_path):
    content = Drawn([1], [True], 0)
    write(tmp_path / "one", content)
    layout = {**OBSERVATION, "point_cloud": ((6, 4), "float32"), "more": ((1,), "uint8")}
    header = a_header(layout)
    write(tmp_path / "other", content, header)
    folders = [tmp_path / "one", tmp_path / "other"]
    match = r"point_cloud: shape \(5, 4\), not \(6, 4\); more: only in the latter\. Entries that"
    with pytest.raises(DatasetError, match=match):
        Samples(folders)
    assert len(Samples(folders, observations=["joint_position", "wrist_rgb"])) == 2
    with pytest.raises(UnknownNameError, match=r"observation in .*one: 'more'"):
        Samples(folders, observations=["more"])
    action = header.action.model_copy(update={"scale": (1.0,) * 6})
    write(tmp_path / "third", content, header.model_copy(update={"action": action}))
    with pytest.raises(DatasetError, match=r"action: scale"):
        Samples([tmp_path / "other", tmp_path / "third"])


@pytest.mark.parametrize("length", [0, -1, 2.0, True, "whole"])
def test_length_or_stride_that_is_no_count_is_refused(tmp_path, length):
    write(tmp_path, Drawn([1], [True], 0))
    with pytest.raises(
        ConfigError, match=f"sequence_length must be a positive .*given: {length!r}"
    ):
        Samples(tmp_path, sequence_length=length)
    with pytest.raises(ConfigError, match="stride must be"):
        Samples(tmp_path, stride=length)


def test_datasets_without_samples_are_refused(tmp_path):
    write(tmp_path, Drawn([1, 2], [False, False], 0))
    with pytest.raises(DatasetError, match=r"no episode succeeded, 2 failed"):
        Samples(tmp_path)
    with pytest.raises(DatasetError, match="No dataset is given"):
        Samples([])
    with pytest.raises(IndexError, match="no item 3; the last one is 2"):
        Samples(tmp_path, failures=True).gather([3])


def all_rows(dataset: Dataset) -> dict[str, np.ndarray]:
    """Returns the rows of all steps, and the present points of all clouds, as float64."""
    episodes = list(dataset)
    imitated = [actions[mask] for mask, actions in map(to_imitate, episodes)]
    rows = {"action": np.concatenate(imitated)}
    for name in episodes[0].observations:
        rows[name] = np.concatenate([episode.observations[name][:-1] for episode in episodes])
    points = rows["point_cloud"].reshape(-1, 4)
    rows["point_cloud"] = points[points[:, 3] != 0]
    return {name: array.astype(float) for name, array in rows.items()}


@few(10)
@given(drawn(), st.randoms())
def test_statistics_are_those_of_all_rows_at_once_in_any_order(content, random):
    assume(sum(content.steps) > 0)
    with tempfile.TemporaryDirectory() as folder:
        dataset = write(Path(folder), content)
        rows = all_rows(dataset)
        assume(len(rows["action"]) > 0)
        samples = Samples(folder, failures=True)
        found = normalization_of(samples)
        order = random.sample(range(len(samples.episodes)), len(samples.episodes))
        again = normalization_of(samples.subset(order))
    assert found.observation.keys() == {"joint_position", "point_cloud", "ticks"}  # no images
    for entry, array in rows.items():
        if entry == "wrist_rgb":
            continue
        for each in (found, again):
            statistics = each.action if entry == "action" else each.observation[entry]
            assert (statistics.shape, statistics.count) == (array.shape[1:], len(array))
            for name in ("mean", "std", "min", "max"):
                direct = getattr(array, name)(axis=0).ravel()
                np.testing.assert_allclose(
                    getattr(statistics, name), direct, rtol=1e-10, atol=1e-11
                )


def test_statistics_survive_json(tmp_path):
    write(tmp_path, Drawn([3, 2], [True, True], 0))
    found = normalization_of(Samples(tmp_path))
    assert parse(Normalization, json.loads(found.to_json()), "it") == found


def test_normalized_samples_have_mean_zero_and_deviation_one(tmp_path):
    write(tmp_path, Drawn([9, 7], [True, True], 0))
    samples = Samples(tmp_path)
    batch = samples.gather(range(len(samples)))
    found = normalization_of(samples)
    for statistics, rows in (
        (found.action, batch["action"]),
        (found.observation["joint_position"], batch["observation"]["joint_position"]),
    ):
        normal = statistics.normalize(rows)
        assert normal.dtype == rows.dtype
        np.testing.assert_allclose(normal.mean(axis=0), 0, atol=1e-5)
        np.testing.assert_allclose(normal.std(axis=0), 1, atol=1e-5)


def test_absent_points_and_the_mask_stay_as_they_are(tmp_path):
    write(tmp_path, Drawn([9, 7], [True, True], 0))
    samples = Samples(tmp_path, sequence_length=3)
    cloud = samples.gather(range(len(samples)))["observation"]["point_cloud"]
    statistics = normalization_of(samples).observation["point_cloud"]
    normal = statistics.normalize(cloud)
    present = cloud[..., 3] != 0
    assert 0 < present.mean() < 1
    np.testing.assert_array_equal(normal[..., 3], cloud[..., 3])
    assert (normal[~present] == 0).all()
    assert (normal[present][:, :3] != cloud[present][:, :3]).all()


def one_episode(folder: Path, observations: np.ndarray) -> Samples:
    """Writes a dataset of one episode that observes `x` as given, (T + 1, ...)."""
    layout = {"x": (observations.shape[1:], str(observations.dtype))}
    episode = an_episode(np.random.default_rng(0), len(observations) - 1, True, layout)
    episode.observations["x"][:] = observations
    with DatasetWriter(folder, a_header(layout)) as writer:
        writer.add(a_record(0, episode), episode_file.to_bytes(episode, 0))
    return Samples(folder, check=False)


def test_constant_entries_become_zero_and_deviations_far_from_zero_are_exact(tmp_path):
    rows = np.full((8, 2), 0.1, np.float64)
    rows[:, 1] = np.arange(8)
    statistics = normalization_of(one_episode(tmp_path / "constant", rows)).observation["x"]
    normal = statistics.normalize(rows)
    np.testing.assert_allclose(normal[:, 0], 0, atol=1e-15)
    rows = 1e9 + np.random.default_rng(0).normal(size=(50, 1))
    statistics = normalization_of(one_episode(tmp_path / "far", rows)).observation["x"]
    np.testing.assert_allclose(statistics.std, (rows[:-1] - 1e9).std(axis=0), rtol=1e-6)


def test_samples_without_statistics_are_refused(tmp_path):
    write(tmp_path / "empty", Drawn([0], [True], 0))
    with pytest.raises(DatasetError, match="no step"):
        normalization_of(Samples(tmp_path / "empty"))
    rows = np.array([[1.0], [np.inf], [2.0]])
    with pytest.raises(DatasetError, match=r"episode_000000\.hdf5 has NaN or infinity in '.*x'"):
        normalization_of(one_episode(tmp_path / "infinite", rows))


def test_tensors_are_normalized_as_arrays_are(tmp_path):
    torch = pytest.importorskip("torch")
    write(tmp_path, Drawn([5], [True], 0))
    samples = Samples(tmp_path)
    found, batch = normalization_of(samples), samples.gather(range(5))
    for name in ("joint_position", "point_cloud"):
        rows, statistics = batch["observation"][name], found.observation[name]
        tensor = statistics.normalize(torch.from_numpy(rows))
        np.testing.assert_array_equal(tensor.numpy(), statistics.normalize(rows))


LABELS = st.lists(st.sampled_from("abcd"), min_size=1, max_size=60)
ALPHAS = st.floats(1e-4, 1e6)
SEEDS = st.integers(0, 2**32)


def partition(labels: Sequence[str], robots: int, alpha: float, seed: int) -> list[list[int]]:
    return dirichlet_partition(labels, robots, alpha, np.random.default_rng(seed))


@given(LABELS, st.data(), ALPHAS, SEEDS)
def test_every_item_belongs_to_one_robot_and_sizes_are_equal(labels, data, alpha, seed):
    robots = data.draw(st.integers(1, len(labels)))
    parts = partition(labels, robots, alpha, seed)
    assert sorted(index for part in parts for index in part) == list(range(len(labels)))
    assert all(part == sorted(part) for part in parts)
    sizes = [len(part) for part in parts]
    assert len(parts) == robots and max(sizes) - min(sizes) <= 1
    assert parts == partition(labels, robots, alpha, seed)


@given(LABELS, st.data(), ALPHAS, SEEDS, st.permutations("abcd"))
def test_names_of_labels_do_not_matter(labels, data, alpha, seed, others):
    robots = data.draw(st.integers(1, len(labels)))
    renamed = [dict(zip("abcd", others, strict=True))[label] for label in labels]
    assert partition(labels, robots, alpha, seed) == partition(renamed, robots, alpha, seed)


def mixtures(labels: Sequence[str], parts: list[list[int]]) -> np.ndarray:
    """Returns the fraction of every label in every part, (robots, labels)."""
    names = sorted(set(labels))
    return np.array(
        [[np.mean([labels[index] == name for index in part]) for name in names] for part in parts]
    )


def test_alpha_ranges_from_one_label_per_robot_to_the_same_mixture_for_all():
    labels = ["a"] * 400 + ["b"] * 300 + ["c"] * 200 + ["d"] * 100
    purity, parts = [], []
    for alpha in (0.01, 0.3, 3, 1e5):
        parts = [part for seed in range(5) for part in partition(labels, 10, alpha, seed)]
        purity.append(mixtures(labels, parts).max(axis=1).mean())
    assert purity == sorted(purity, reverse=True)
    assert purity[0] > 0.7
    # All draw from the pool's mixture: a robot's 100 items have the deviation of a binomial.
    np.testing.assert_allclose(mixtures(labels, parts), [[0.4, 0.3, 0.2, 0.1]] * 50, atol=0.2)
    np.testing.assert_allclose(
        mixtures(labels, parts).std(axis=0), np.sqrt(np.array([24, 21, 16, 9]) / 1e4), rtol=0.35
    )


@pytest.mark.parametrize(("robots", "alpha"), [(0, 1), (4, 1), (2, 0), (2, -1), (2, np.inf)])
def test_impossible_partition_is_refused(robots, alpha):
    with pytest.raises(ConfigError, match="given: "):
        partition("aab", robots, alpha, 0)
