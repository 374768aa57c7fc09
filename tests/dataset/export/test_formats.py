"""Each format's layout and its own reader give the episodes; views copy nothing."""

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from support.exported import each_mode, load_minari, read_robomimic, same, successes
from support.rendering import needs_gl

from fleet_tools.dataset import Dataset, DatasetWriter, episode_file
from fleet_tools.dataset.export.exporting import export_dataset


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
