"""Scans of a known body: its surface comes back, and what is no scan of a body is refused."""

from pathlib import Path

import numpy as np
import pytest
import trimesh
import yaml
from scipy.spatial.transform import Rotation
from support.scans import SIZE, body, sampled, write_ply

from fleet_tools.errors import ConfigError
from fleet_tools.experts.perception.shapes import TriangleSurface, sample
from fleet_tools.studio.importing.scan_surface import scanned_mesh
from fleet_tools.studio.importing.settings import ScanSettings

pytest.importorskip("open3d", exc_type=ImportError)
pytest.importorskip("manifold3d")

VOXEL = SIZE[0] / 64


def made(files: list[Path], **settings) -> trimesh.Trimesh:
    mesh = scanned_mesh(files, ScanSettings(**{"voxel": VOXEL, **settings}))
    return trimesh.Trimesh(mesh.vertices, mesh.triangles, process=False)


def refused(files: list[Path], **settings) -> str:
    with pytest.raises(ConfigError) as error:
        made(files, **settings)
    return str(error.value)


def assert_same_body(found: trimesh.Trimesh, true: trimesh.Trimesh, within: float) -> None:
    """Checks the volume, and the distance between surfaces in both directions."""
    assert found.is_watertight
    assert found.volume == pytest.approx(true.volume, rel=0.02)
    for one, other in ((found, true), (true, found)):
        points, _ = sample(np.array(one.triangles), 2000)
        closest, _ = TriangleSurface(np.array(other.triangles)).closest(points)
        assert np.linalg.norm(closest - points, axis=1).max() < within


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_a_body_comes_back_turned_and_scaled(scale, tmp_path):
    true = body()
    true.apply_scale(scale)
    X = np.eye(4)
    X[:3, :3] = Rotation.from_rotvec([0.3, -0.8, 1.9]).as_matrix()
    X[:3, 3] = [0.4 * scale, 3.0 * scale, -0.1 * scale]
    true.apply_transform(X)
    found = made([write_ply(tmp_path / "a.ply", *sampled(true))], voxel=VOXEL * scale)
    assert_same_body(found, true, VOXEL * scale)


def test_the_order_of_points_does_not_matter(tmp_path):
    points, normals = sampled(body(), 6000)
    order = np.random.default_rng(0).permutation(len(points))
    one = made([write_ply(tmp_path / "a.ply", points, normals)])
    other = made([write_ply(tmp_path / "b.ply", points[order], normals[order])])
    np.testing.assert_array_equal(one.vertices, other.vertices)
    np.testing.assert_array_equal(one.faces, other.faces)


def test_strays_far_away_and_points_that_are_not_finite_do_not_matter(tmp_path):
    points, normals = sampled(body())
    far = np.random.default_rng(0).uniform(-1, 1, (15, 3))
    far[:3] = np.nan
    file = write_ply(tmp_path / "a.ply", np.r_[points, far], np.r_[normals, np.ones((15, 3))])
    assert_same_body(made([file]), body(), VOXEL)


def faces_seen_from(direction: list[float], least: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    points, normals = sampled(body(), 30_000)
    seen = normals @ direction > least * np.linalg.norm(direction)
    return points[seen], normals[seen]


VIEWS = ([1.0, 0.5, 0.8], [-1.0, -0.5, 0.8], [0.5, -1.0, -0.8], [-0.5, 1.0, -0.8])


def test_views_in_their_cameras_frames_are_joined_by_their_poses(tmp_path):
    files, poses = [], {}
    for k, direction in enumerate(VIEWS):
        X_WC = np.eye(4)
        X_WC[:3, :3] = Rotation.from_rotvec([0.1 * k, 0.7 * k, -k]).as_matrix()
        X_WC[:3, 3] = np.array(direction)
        points, _ = faces_seen_from(direction)
        files.append(write_ply(tmp_path / f"{k}.ply", (points - X_WC[:3, 3]) @ X_WC[:3, :3]))
        poses[files[-1].name] = X_WC.tolist()
    (tmp_path / "poses.yaml").write_text(yaml.safe_dump({"X_WC": poses}))
    assert_same_body(made(files, poses=tmp_path / "poses.yaml"), body(), VOXEL)
    (tmp_path / "poses.yaml").write_text(yaml.safe_dump({"X_WC": {"0.ply": poses["0.ply"]}}))
    assert "no pose of 1.ply" in refused(files, poses=tmp_path / "poses.yaml")
    poses["0.ply"][0][0] = 7.0
    (tmp_path / "poses.yaml").write_text(yaml.safe_dump({"X_WC": poses}))
    assert "rotation" in refused(files, poses=tmp_path / "poses.yaml")


def test_views_are_registered_to_each_other(tmp_path):
    files = []
    for k, direction in enumerate(VIEWS):
        points, normals = faces_seen_from(direction, -0.6)  # one face is lacking
        if k:
            R = Rotation.from_rotvec([0.02, -0.01 * k, 0.02]).as_matrix()
            points, normals = points @ R.T + [0.004, -0.003, 0.002 * k], normals @ R.T
        files.append(write_ply(tmp_path / f"{k}.ply", points, normals))
    assert_same_body(made(files, align=True), body(), VOXEL)


def test_views_that_do_not_overlap_are_not_registered(tmp_path):
    points, normals = sampled(body())
    files = [write_ply(tmp_path / f"{k}.ply", points + np.eye(3)[0] * k, normals) for k in range(2)]
    assert "overlaps with the other views by 0%" in refused(files, align=True)
    assert "several separate surfaces" in refused(files, voxel=None)


def test_a_table_is_cut_off(tmp_path):
    points, normals = sampled(body(), 40_000)
    kept = points[:, 2] > -SIZE[2] / 2 + 1e-6  # the underside is not seen
    xy = np.random.default_rng(0).uniform(-0.25, 0.25, (30_000, 2))
    under = (np.abs(xy) < np.array(SIZE[:2]) / 2).all(axis=1)
    table = np.column_stack([xy, np.full(len(xy), -SIZE[2] / 2)])[~under]
    up = np.tile([0.0, 0.0, 1.0], (len(table), 1))
    file = write_ply(tmp_path / "a.ply", np.r_[points[kept], table], np.r_[normals[kept], up])
    assert_same_body(made([file], table=True), body(), 1.5 * VOXEL)
    box = ((-0.11, -0.05, -0.02), (0.11, 0.05, 0.05))
    assert "not seen" in refused([file], crop=box)


def test_a_side_that_was_not_seen_is_refused_or_said(tmp_path):
    points, normals = sampled(body())
    kept = normals[:, 0] < 0.5
    file = write_ply(tmp_path / "a.ply", points[kept], normals[kept])
    assert "of the surface was not seen" in refused([file], max_unseen=0.01)
    notes = scanned_mesh([file], ScanSettings(voxel=VOXEL, max_unseen=0.3)).notes
    assert any(note.startswith("not seen") for note in notes)


def test_what_is_no_scan_of_a_body_is_refused(tmp_path):
    points, normals = sampled(body())
    top = normals[:, 2] > 0.5
    flat = write_ply(tmp_path / "flat.ply", points[top] * [1, 1, 0], normals[top])
    assert "one plane" in refused([flat])
    assert "needed" in refused([write_ply(tmp_path / "few.ply", points[:100], normals[:100])])
    corners = np.array(body().vertices)  # a mesh without its faces
    assert "needed" in refused([write_ply(tmp_path / "corners.ply", corners)])
    one = write_ply(tmp_path / "one.ply", np.ones((1000, 3)), normals[:1000])
    assert "no extent" in refused([one])
    file = write_ply(tmp_path / "a.ply", points, normals)
    assert "too fine" in refused([file], voxel=1e-5)
    assert "--crop" in refused([file], crop=((1, 1, 1), (2, 2, 2)))
    around = np.random.default_rng(0).normal(size=(20_000, 3))
    ball = write_ply(tmp_path / "ball.ply", around / np.linalg.norm(around, axis=1)[:, None])
    assert "No table" in refused([ball], voxel=0.03, table=True)
    empty = write_ply(tmp_path / "empty.ply", points[:0])
    assert "no usable point" in refused([empty])
