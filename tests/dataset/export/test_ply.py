"""Clouds for other programs: what they read back is what was observed."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from trimesh.exchange.ply import load_ply

from fleet_tools.dataset.export.ply import cloud_to_ply, to_open3d
from fleet_tools.errors import ConfigError

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
