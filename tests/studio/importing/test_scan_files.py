"""Files of point clouds: read as they are, and refused where they lie."""

import numpy as np
import pytest
import trimesh
from support.scans import write_ply

from fleet_tools.errors import ConfigError
from fleet_tools.studio.importing.scan_files import MAX_POINTS, is_scan, read_cloud

POINTS = np.random.default_rng(0).uniform(-1, 1, (50, 3)).astype(np.float32)
POINTS = POINTS[np.lexsort(POINTS.T)]


def test_ply_is_read_bit_for_bit_with_and_without_normals(tmp_path):
    normals = POINTS / np.linalg.norm(POINTS, axis=1, keepdims=True)
    for given in (None, normals):
        cloud = read_cloud(write_ply(tmp_path / "a.ply", POINTS, given))
        np.testing.assert_array_equal(cloud.points, POINTS)
        if given is None:
            assert cloud.normals is None
        else:
            assert cloud.normals is not None
            np.testing.assert_allclose(cloud.normals, given, atol=1e-6)


def test_content_decides_what_is_a_scan_and_not_the_name(tmp_path):
    mesh = tmp_path / "mesh.ply"
    content = trimesh.creation.box().export(file_type="ply")
    assert isinstance(content, bytes)
    mesh.write_bytes(content)
    assert not is_scan(mesh)
    with pytest.raises(ConfigError, match="not a point cloud"):
        read_cloud(mesh)
    assert is_scan(write_ply(tmp_path / "cloud.obj", POINTS))
    assert not is_scan(tmp_path / "absent.ply")


def test_points_that_are_not_finite_are_left_out(tmp_path):
    points = POINTS.astype(float)
    points[3, 1], points[7, 0], points[9, 2] = np.nan, np.inf, 1e300
    cloud = read_cloud(write_ply(tmp_path / "a.ply", points))
    assert cloud.dropped == 3 and len(cloud.points) == 47
    normals = np.tile([0.0, 0.0, 2.0], (50, 1))
    normals[5] = 0
    cloud = read_cloud(write_ply(tmp_path / "a.ply", points, normals))
    assert cloud.normals is not None and cloud.dropped == 4
    np.testing.assert_array_equal(cloud.normals, np.tile([0.0, 0.0, 1.0], (46, 1)))


def test_a_ply_file_that_lies_or_is_truncated_is_refused(tmp_path):
    file = write_ply(tmp_path / "a.ply", POINTS)
    whole = file.read_bytes()
    for count in ("51", MAX_POINTS + 1, 2**62, -1, "many"):
        file.write_bytes(whole.replace(b"vertex 50", f"vertex {count}".encode()))
        with pytest.raises(ConfigError, match="damaged"):
            read_cloud(file)
    for length in (0, 3, 30, 100, -1):
        file.write_bytes(whole[:length])
        with pytest.raises(ConfigError):
            read_cloud(file)
