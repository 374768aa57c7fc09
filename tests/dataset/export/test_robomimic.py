"""robomimic's layout and its own reader give the episodes."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from support.exported import Collected, each_mode, read_robomimic, same, successes

from fleet_tools.dataset.export.exporting import export_dataset


def with_channel(name: str, rows: np.ndarray) -> np.ndarray:
    return rows[..., None] if name.endswith("_depth") else rows


@each_mode
def test_robomimic_layout_holds_every_row(mode: str, collected: Collected, tmp_path: Path) -> None:
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
def test_robomimic_reads_it(mode: str, collected: Collected, tmp_path: Path) -> None:
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


def test_robomimic_masks_mark_failures(collected: Collected, tmp_path: Path) -> None:
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
