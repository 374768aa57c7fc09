"""The PLY export holds the clouds bit for bit, and the poses that move them to the world."""

from pathlib import Path

import numpy as np
import pytest
import trimesh
from support.small_datasets import Drawn, a_header, write

from fleet_tools.dataset.export.exporting import export_dataset
from fleet_tools.errors import DatasetError

CLOUDS = {"point_cloud": ((10, 4), "float32"), "end_effector_pose": ((3, 4), "float32")}


def test_clouds_and_poses_come_back(tmp_path: Path) -> None:
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


def test_a_dataset_without_clouds_is_refused(tmp_path: Path) -> None:
    dataset = write(tmp_path / "data", Drawn([3], [True], 0), a_header({"ticks": ((), "int64")}))
    with pytest.raises(DatasetError, match="no point clouds"):
        export_dataset(dataset, "ply", tmp_path / "out")
    assert not (tmp_path / "out").exists()
