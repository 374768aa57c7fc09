"""robomimic's layout and its own reader give the episodes."""

import json

import h5py
import pytest
from exported import each_mode, read_robomimic, same, successes

from fleet_tools.dataset.export import export_dataset


def with_channel(name, rows):
    return rows[..., None] if name.endswith("_depth") else rows


@each_mode
def test_robomimic_layout_holds_every_row(mode, collected, tmp_path):
    dataset = collected(mode)
    export_dataset(dataset, "robomimic", tmp_path / "view.hdf5")
    demos = read_robomimic(tmp_path / "view.hdf5")
    for demo, ours in zip(demos, successes(dataset), strict=True):
        assert demo["attributes"]["num_samples"] == len(ours)
        assert same(demo["actions"], ours.actions)
        assert same(demo["rewards"], ours.rewards)
        assert same(demo["success"], ours.success)
        assert same(demo["state_digest"], ours.digests)
        assert demo["dones"].tolist() == [0] * (len(ours) - 1) + [1]
        for name, rows in ours.observations.items():
            assert same(demo["obs"][name], with_channel(name, rows[:-1])), name
            assert same(demo["next_obs"][name], with_channel(name, rows[1:])), name


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
    for number, (mask, ours) in enumerate(zip(("train", "valid"), successes(dataset), strict=True)):
        sequences = reader.SequenceDataset(
            str(tmp_path / "view.hdf5"), names, ("actions", "rewards", "dones"),
            hdf5_cache_mode=(None, "low_dim")[number], filter_by_attribute=mask,
        )  # fmt: skip
        assert len(sequences) == len(ours)
        for t, item in enumerate(sequences[k] for k in range(len(ours))):
            assert same(item["actions"][0], ours.actions[t])
            for name, rows in ours.observations.items():
                assert same(item["obs"][name][0], with_channel(name, rows[t])), name
                assert same(item["next_obs"][name][0], with_channel(name, rows[t + 1])), name


def test_robomimic_masks_mark_failures(collected, tmp_path):
    export_dataset(collected("state"), "robomimic", tmp_path / "view.hdf5", failures=True)
    with h5py.File(tmp_path / "view.hdf5") as file:
        masks = {name: [demo.decode() for demo in rows] for name, rows in file["mask"].items()}
        assert json.loads(file["data"].attrs["env_args"]) == {
            "env_name": "FleetTools/Hammer-v0", "type": 2, "env_kwargs": {"task": "hammer"},
        }  # fmt: skip
        failed = dict(file["data/demo_1"].attrs)
    assert masks == {
        "train": ["demo_0"],
        "valid": ["demo_2"],
        "success": ["demo_0", "demo_2"],
        "failure": ["demo_1"],
    }
    assert (failed["attempt"], failed["outcome"]) == (1, "policy_error")
    assert "No plan" in json.loads(failed["error"])
