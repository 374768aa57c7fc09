"""Each format's layout and its own reader give the episodes; views copy nothing."""

import io
import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import trimesh
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from support.exported import each_mode, load_minari, read_robomimic, same, successes
from support.rendering import needs_gl
from support.small_datasets import Drawn, a_header, write
from trimesh.exchange.ply import load_ply

from fleet_tools.dataset import Dataset, DatasetWriter, episode_file
from fleet_tools.dataset.export.exporting import export_dataset
from fleet_tools.dataset.export.ply import cloud_to_ply, to_open3d
from fleet_tools.errors import ConfigError, DatasetError


@each_mode
def test_minari_reads_the_episodes_bit_for_bit_and_their_environment(
    mode, collected, tmp_path, monkeypatch
):
    dataset = collected(mode)
    export_dataset(dataset, "minari", tmp_path, failures=True)
    loaded = load_minari(monkeypatch, tmp_path, mode)
    assert (loaded.total_episodes, loaded.total_steps) == (3, sum(len(e) for e in dataset))
    loaded.set_seed(0)
    sampled = sorted(loaded.sample_episodes(3), key=lambda episode: episode.id)
    for read in (list(loaded.iterate_episodes()), sampled):
        assert [episode.id for episode in read] == [0, 1, 2]
        for exported, attempt in zip(read, (0, 1, 4), strict=True):
            stored = dataset.episode(attempt)
            assert exported.observations.keys() == stored.observations.keys()
            for name, rows in stored.observations.items():
                assert same(exported.observations[name], rows), name
            assert same(exported.actions, stored.actions)
            assert same(exported.rewards, stored.rewards)
            assert same(exported.terminations, stored.terminated)
            assert same(exported.truncations, stored.truncated)
            assert same(exported.infos["success"], stored.success)
            assert same(exported.infos["state_digest"], stored.digests)
    metadata = list(loaded.storage.get_episode_metadata(range(3)))
    assert [(each["id"], each["seed"]) for each in metadata] == [(0, 0), (1, 1), (4, 4)]
    assert [each["outcome"] for each in metadata] == ["success", "policy_error", "success"]
    assert metadata[2]["scene"] == dataset.episode(4).scene.to_json()
    assert loaded.spec.env_spec.kwargs == dataset.header.env_spec.kwargs
    if mode != "state":  # whose environments differ in nothing else
        return
    env = loaded.recover_environment()
    assert env.observation_space == loaded.observation_space
    assert env.action_space == loaded.action_space
    first = dataset.episode(0).observations
    observation, _ = env.reset(seed=0)
    assert all(same(observation[name], first[name][0]) for name in observation)
    env.close()


def test_minari_root_holds_several_datasets(collected, tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    first = collected("state")
    other = first.header.model_copy(update={"policy": "m y/policy"})
    with DatasetWriter(tmp_path / "set", other) as writer:
        writer.add(first.manifest()[0], episode_file.to_bytes(first.episode(0), 0))
    for dataset in (first, Dataset(tmp_path / "set")):
        export_dataset(dataset, "minari", tmp_path / "root")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "root"))
    assert set(minari.list_local_datasets()) == {
        "fleet_tools/hammer/expert-state-v0",
        "fleet_tools/hammer/m_y_policy-state-v0",
    }


def with_channel(name: str, rows: np.ndarray) -> np.ndarray:
    return rows[..., None] if name.endswith("_depth") else rows


@each_mode
def test_robomimic_layout_holds_every_row(mode, collected, tmp_path):
    dataset = collected(mode)
    export_dataset(dataset, "robomimic", tmp_path / "view.hdf5")
    demonstrations = read_robomimic(tmp_path / "view.hdf5")
    for demonstration, episode in zip(demonstrations, successes(dataset), strict=True):
        assert demonstration["attributes"]["num_samples"] == len(episode)
        assert same(demonstration["actions"], episode.actions)
        assert same(demonstration["rewards"], episode.rewards)
        assert same(demonstration["success"], episode.success)
        assert same(demonstration["state_digest"], episode.digests)
        assert demonstration["dones"].tolist() == [0] * (len(episode) - 1) + [1]
        for name, rows in episode.observations.items():
            assert same(demonstration["obs"][name], with_channel(name, rows[:-1])), name
            assert same(demonstration["next_obs"][name], with_channel(name, rows[1:])), name


@each_mode
def test_robomimic_reads_it(mode, collected, tmp_path):
    reader = pytest.importorskip("robomimic.utils.dataset")
    utils = pytest.importorskip("robomimic.utils.obs_utils")
    dataset = collected(mode)
    names = tuple(dataset.header.observation)
    kinds = {kind: [n for n in names if n.endswith(f"_{kind}")] for kind in ("rgb", "depth")}
    rest = [n for n in names if not n.endswith(("_rgb", "_depth"))]
    utils.initialize_obs_utils_with_obs_specs({"obs": kinds | {"low_dim": rest}})
    export_dataset(dataset, "robomimic", tmp_path / "view.hdf5")
    masks = zip(("train", "valid"), successes(dataset), strict=True)
    for number, (mask, episode) in enumerate(masks):
        sequences = reader.SequenceDataset(
            str(tmp_path / "view.hdf5"),
            names,
            ("actions", "rewards", "dones"),
            hdf5_cache_mode=(None, "low_dim")[number],
            filter_by_attribute=mask,
        )
        assert len(sequences) == len(episode)
        for t, item in enumerate(sequences[k] for k in range(len(episode))):
            assert same(item["actions"][0], episode.actions[t])
            for name, rows in episode.observations.items():
                assert same(item["obs"][name][0], with_channel(name, rows[t])), name
                assert same(item["next_obs"][name][0], with_channel(name, rows[t + 1])), name


def test_robomimic_masks_mark_failures(collected, tmp_path):
    export_dataset(collected("state"), "robomimic", tmp_path / "view.hdf5", failures=True)
    with h5py.File(tmp_path / "view.hdf5") as file:
        masks = {
            name: [demonstration.decode() for demonstration in rows[()]]
            for name, rows in file.require_group("mask").items()
            if isinstance(rows, h5py.Dataset)
        }
        data = file.require_group("data")
        env_args = json.loads(str(data.attrs["env_args"]))
        failed = dict(data.require_group("demo_1").attrs)
    assert env_args == {
        "env_name": "FleetTools/Hammer-v0",
        "type": 2,
        "env_kwargs": {"task": "hammer"},
    }
    assert masks == {
        "train": ["demo_0"],
        "valid": ["demo_2"],
        "success": ["demo_0", "demo_2"],
        "failure": ["demo_1"],
    }
    assert (failed["attempt"], failed["outcome"]) == (1, "policy_error")
    assert "No plan" in json.loads(str(failed["error"]))


@needs_gl
def test_views_copy_nothing(collected, tmp_path):
    export_dataset(collected("rgbd"), "minari", tmp_path / "minari")
    export_dataset(collected("rgbd"), "robomimic", tmp_path / "view.hdf5")
    copied = []

    def visit(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset) and not item.is_virtual:
            copied.append(name)

    for path in (*tmp_path.rglob("main_data.hdf5"), tmp_path / "view.hdf5"):
        with h5py.File(path) as file:
            file.visititems(visit)  # which follows no links
    new = ("dones", "imitate")
    assert {name.split("/")[0] for name in copied if not name.endswith(new)} == {"mask"}


@pytest.mark.parametrize("format_name", ["minari", "robomimic"])
def test_view_and_data_move_together(format_name, collected, tmp_path, monkeypatch):
    old, new = tmp_path / "old", tmp_path / "new"
    shutil.copytree(collected("state").folder, old / "data" / "hammer")
    export = export_dataset(Dataset(old / "data" / "hammer"), format_name)  # beside the dataset
    assert Path(export.output).is_relative_to(old / "data")
    old.rename(new)
    view = new / Path(export.output).relative_to(old)
    episode = successes(Dataset(new / "data/hammer"))[1]

    def actions() -> np.ndarray:
        if format_name == "robomimic":
            return read_robomimic(view)[1]["actions"]
        return load_minari(monkeypatch, new / "data/hammer-minari", "state")[1].actions

    assert same(actions(), episode.actions)
    shutil.rmtree(new / "data/hammer")
    with pytest.raises((KeyError, OSError, ValueError)):
        actions()


@each_mode
def test_zarr_is_lossless(mode, collected, tmp_path):
    zarr = pytest.importorskip("zarr")
    dataset = collected(mode)
    export_dataset(dataset, "zarr", tmp_path / "out.zarr", failures=True)
    root = zarr.open(tmp_path / "out.zarr", mode="r")
    ends = root["meta/episode_ends"][:]
    assert all(rows.shape[0] == ends[-1] for _, rows in root["data"].arrays())
    assert root["meta/attempt"][:].tolist() == [0, 1, 4]
    assert root["meta/success"][:].tolist() == [True, False, True]
    for number, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        metadata = root.attrs["episodes"][number]
        episode = dataset.episode(metadata["attempt"])
        assert (metadata["outcome"], metadata["error"]) == (episode.outcome, episode.error)
        assert metadata["scene"] == episode.scene.to_json()
        step_arrays = {
            "action": episode.actions,
            "reward": episode.rewards,
            "success": episode.success,
            "terminated": episode.terminated,
            "truncated": episode.truncated,
        }
        for name, rows in step_arrays.items():
            assert same(root["data"][name][begin:end], rows), name
        for name, rows in {**episode.observations, "state_digest": episode.digests}.items():
            assert same(root["data"][name][begin:end], rows[:-1]), name
            assert same(root["final"][name][number], rows[-1]), name


@needs_gl
def test_zarr_is_compressed_and_each_image_is_a_chunk(collected, tmp_path):
    zarr = pytest.importorskip("zarr")
    export_dataset(collected("rgbd"), "zarr", tmp_path / "out.zarr")
    data = zarr.open(tmp_path / "out.zarr", mode="r")["data"]
    assert data.metadata.zarr_format == 2  # zarr 2 reads it, too
    assert data["wrist_rgb"].chunks == (1, 48, 64, 3)
    assert all(rows.compressors for _, rows in data.arrays())


CLOUDS = {"point_cloud": ((10, 4), "float32"), "end_effector_pose": ((3, 4), "float32")}


def test_clouds_and_poses_come_back(tmp_path):
    dataset = write(tmp_path / "data", Drawn([3, 2], [True, True], 0), a_header(CLOUDS))
    export = export_dataset(dataset, "ply", tmp_path / "out")
    assert export.episodes == 2 and "actions" in export.left_out[0]
    for attempt, steps in enumerate((3, 2)):
        folder = tmp_path / "out" / f"{attempt:06}"
        episode = dataset.episode(attempt)
        assert len(list(folder.glob("*.ply"))) == steps + 1
        poses = np.loadtxt(folder / "poses.csv", delimiter=",")
        for step, cloud in enumerate(episode.observations["point_cloud"]):
            there = cloud[cloud[:, 3] != 0]
            points = trimesh.load(folder / f"{step:04}.ply", process=False)
            assert isinstance(points, trimesh.PointCloud)
            np.testing.assert_array_equal(np.asarray(points.vertices, np.float32), there[:, :3])
            pose = episode.observations["end_effector_pose"][step]
            np.testing.assert_array_equal(poses[step, 1:].astype(np.float32), pose.ravel())


def test_a_dataset_without_clouds_is_refused(tmp_path):
    dataset = write(tmp_path / "data", Drawn([3], [True], 0), a_header({"ticks": ((), "int64")}))
    with pytest.raises(DatasetError, match="no point clouds"):
        export_dataset(dataset, "ply", tmp_path / "out")
    assert not (tmp_path / "out").exists()


X_WE = np.array([[0.0, -1.0, 0.0, 0.5], [1.0, 0.0, 0.0, 0.1], [0.0, 0.0, 1.0, -0.2]], np.float32)

clouds = st.integers(0, 20).flatmap(
    lambda n: st.tuples(
        arrays.arrays(np.float32, (n, 3), elements=st.floats(-2, 2, width=32)),
        arrays.arrays(np.float32, (n, 1), elements=st.sampled_from([1.0, -1.0, 0.0])),
    ).map(np.hstack)
)


def read(content: bytes) -> np.ndarray:
    (vertices,) = (
        element["data"]
        for element in load_ply(io.BytesIO(content))["metadata"]["_ply_raw"].values()
    )
    return vertices


@given(clouds)
def test_ply_keeps_every_bit_and_tells_tool_from_object(cloud: np.ndarray) -> None:
    there = cloud[cloud[:, 3] != 0]
    rows = read(cloud_to_ply(cloud))
    assert len(rows) == len(there)
    for k, name in enumerate(("x", "y", "z", "part")):
        np.testing.assert_array_equal(rows[name], there[:, k])
    for mask in (1, -1):
        of_part = rows[rows["part"] == mask]
        assert len(np.unique(of_part[["red", "green", "blue"]])) <= 1


@given(clouds)
def test_a_pose_moves_points_to_the_world(cloud: np.ndarray) -> None:
    rows = read(cloud_to_ply(cloud, X_WE))
    there = cloud[cloud[:, 3] != 0].astype(float)
    p_W = np.column_stack([0.5 - there[:, 1], 0.1 + there[:, 0], there[:, 2] - 0.2])
    for k, name in enumerate("xyz"):
        np.testing.assert_allclose(rows[name], p_W[:, k], atol=1e-6)
    assert b"comment frame W" in cloud_to_ply(cloud, X_WE)
    assert b"comment frame E" in cloud_to_ply(cloud)


@pytest.mark.parametrize(
    "cloud", [np.zeros((3, 3)), np.full((3, 4), np.nan), np.full((2, 4), 0.5), np.zeros(4)]
)
def test_what_is_no_cloud_is_refused(cloud: np.ndarray) -> None:
    with pytest.raises(ConfigError, match="cloud"):
        cloud_to_ply(cloud)


def test_a_pose_of_another_shape_is_refused() -> None:
    with pytest.raises(ConfigError, match="pose"):
        cloud_to_ply(np.zeros((3, 4)), np.eye(4))


def test_open3d_gets_the_same_points() -> None:
    pytest.importorskip("open3d", exc_type=ImportError)
    cloud = np.array([[1, 2, 3, 1], [4, 5, 6, -1], [0, 0, 0, 0]], np.float32)
    found = to_open3d(cloud)
    np.testing.assert_array_equal(found.point.positions.numpy(), cloud[:2, :3])
    np.testing.assert_array_equal(found.point.part.numpy()[:, 0], [1, -1])
    assert len(found.to_legacy().colors) == 2
    assert len(to_open3d(cloud[2:]).to_legacy().points) == 0
