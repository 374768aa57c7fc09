"""Scans of a known body: its surface comes back, and what is no scan of a body is refused."""

from pathlib import Path

import numpy as np
import pytest
import trimesh
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


VIEWS = ([1.0, 0.5, 0.8], [-1.0, -0.5, 0.8], [0.5, -1.0, -0.8], [-0.5, 1.0, -0.8])


def test_views_are_joined(tmp_path):
    points, normals = sampled(body(), 30_000)
    files = []
    for k, direction in enumerate(VIEWS):
        seen = normals @ direction > 0.1
        files.append(write_ply(tmp_path / f"{k}.ply", points[seen], normals[seen]))
    assert_same_body(made(files), body(), VOXEL)
    apart = write_ply(tmp_path / "apart.ply", points + np.eye(3)[0], normals)
    assert "several separate surfaces" in refused([*files, apart], voxel=None)


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
    empty = write_ply(tmp_path / "empty.ply", points[:0])
    assert "no usable point" in refused([empty])
