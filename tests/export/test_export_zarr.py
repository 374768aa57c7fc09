"""zarr loses nothing."""

import pytest
from conftest import needs_gl
from exported import each_mode, same

from fleet_tools.dataset.export import export_dataset


@each_mode
def test_zarr_loses_nothing(mode, collected, tmp_path):
    zarr = pytest.importorskip("zarr")
    dataset = collected(mode)
    export_dataset(dataset, "zarr", tmp_path / "out.zarr", failures=True)
    root = zarr.open(tmp_path / "out.zarr", mode="r")
    ends = root["meta/episode_ends"][:]
    assert all(rows.shape[0] == ends[-1] for _, rows in root["data"].arrays())
    assert root["meta/attempt"][:].tolist() == [0, 1, 4]
    assert root["meta/success"][:].tolist() == [True, False, True]
    for number, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        told = root.attrs["episodes"][number]
        ours = dataset.episode(told["attempt"])
        assert (told["outcome"], told["error"]) == (ours.outcome, ours.error)
        assert told["scene"] == ours.scene.to_json()
        for name, rows in {
            "action": ours.actions, "reward": ours.rewards, "success": ours.success,
            "terminated": ours.terminated, "truncated": ours.truncated,
        }.items():  # fmt: skip
            assert same(root["data"][name][begin:end], rows), name
        for name, rows in {**ours.observations, "state_digest": ours.digests}.items():
            assert same(root["data"][name][begin:end], rows[:-1]), name
            assert same(root["final"][name][number], rows[-1]), name


@needs_gl
def test_zarr_is_compressed_and_pictures_are_chunks(collected, tmp_path):
    zarr = pytest.importorskip("zarr")
    export_dataset(collected("rgbd"), "zarr", tmp_path / "out.zarr")
    data = zarr.open(tmp_path / "out.zarr", mode="r")["data"]
    assert data.metadata.zarr_format == 2  # zarr 2 reads it, too
    assert data["wrist_rgb"].chunks == (1, 48, 64, 3)
    assert all(rows.compressors for _, rows in data.arrays())
