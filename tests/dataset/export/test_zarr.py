"""The zarr export is lossless."""

from pathlib import Path

import pytest
from support.exported import Collected, each_mode, same
from support.rendering import needs_gl

from fleet_tools.dataset.export.exporting import export_dataset


@each_mode
def test_zarr_is_lossless(mode: str, collected: Collected, tmp_path: Path) -> None:
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
def test_zarr_is_compressed_and_each_image_is_a_chunk(collected: Collected, tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    export_dataset(collected("rgbd"), "zarr", tmp_path / "out.zarr")
    data = zarr.open(tmp_path / "out.zarr", mode="r")["data"]
    assert data.metadata.zarr_format == 2  # zarr 2 reads it, too
    assert data["wrist_rgb"].chunks == (1, 48, 64, 3)
    assert all(rows.compressors for _, rows in data.arrays())
