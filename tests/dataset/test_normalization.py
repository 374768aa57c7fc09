"""Statistics of samples, compared with those that NumPy computes of all rows at once."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.shares import few
from support.small_datasets import Drawn, a_header, a_record, an_episode, drawn, to_imitate, write

from fleet_tools.config.values import parse
from fleet_tools.dataset import Dataset, DatasetWriter, episode_file
from fleet_tools.dataset.normalization import Normalization, normalization_of
from fleet_tools.dataset.samples import Samples
from fleet_tools.errors import DatasetError


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
        np.testing.assert_allclose(statistics.denormalize(normal), rows, rtol=1e-5, atol=1e-4)


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
    np.testing.assert_allclose(statistics.denormalize(normal), cloud, rtol=1e-5, atol=1e-4)


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
    np.testing.assert_allclose(statistics.denormalize(normal), rows, rtol=1e-12)
    rows = 1e9 + np.random.default_rng(0).normal(size=(50, 1))
    statistics = normalization_of(one_episode(tmp_path / "far", rows)).observation["x"]
    np.testing.assert_allclose(statistics.std, (rows[:-1] - 1e9).std(axis=0), rtol=1e-6)


def test_samples_without_statistics_are_refused(tmp_path):
    write(tmp_path / "empty", Drawn([0], [True], 0))
    with pytest.raises(DatasetError, match="no step"):
        normalization_of(Samples(tmp_path / "empty"))
    rows = np.array([[1.0], [np.inf], [2.0]])
    with pytest.raises(DatasetError, match=r"episode_000000\.hdf5 has .*x' that are not finite"):
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
