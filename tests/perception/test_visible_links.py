"""Surfaces of shapes as triangles: dimensions and frames as Drake draws them."""

from pathlib import Path

import numpy as np
import pytest
import trimesh
from pydrake.geometry import Box, Capsule, Convex, Cylinder, Ellipsoid, HalfSpace, Mesh, Sphere

from fleet_tools.errors import ConfigError
from fleet_tools.perception.visible_links import shape_triangles


def bounds(shape) -> np.ndarray:
    return np.array([f(shape_triangles(shape).reshape(-1, 3), axis=0) for f in (np.min, np.max)])


@pytest.mark.parametrize(
    ("shape", "half"),
    [
        (Box(0.2, 0.4, 0.6), (0.1, 0.2, 0.3)),
        (Sphere(0.3), (0.3, 0.3, 0.3)),
        (Cylinder(0.1, 0.8), (0.1, 0.1, 0.4)),
        (Capsule(0.1, 0.8), (0.1, 0.1, 0.5)),
        (Ellipsoid(0.1, 0.2, 0.3), (0.1, 0.2, 0.3)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_solids_have_their_dimensions(shape, half):
    np.testing.assert_allclose(bounds(shape), [[-x for x in half], half], atol=2e-3)


def test_meshes_are_scaled_and_stand_upright(tmp_path: Path):
    box = trimesh.creation.box((0.2, 0.4, 0.6))
    for suffix, size in (("obj", (0.2, 0.4, 0.6)), ("glb", (0.2, 0.6, 0.4))):  # its up is y
        box.export(tmp_path / f"box.{suffix}")
        extent = np.ptp(bounds(Mesh(tmp_path / f"box.{suffix}", 2.0)), axis=0)
        np.testing.assert_allclose(extent, 2 * np.array(size), atol=1e-6)


def test_a_convex_shape_is_the_hull_of_its_mesh(tmp_path: Path):
    two = trimesh.util.concatenate(
        [trimesh.creation.box((0.1, 0.1, 0.1)).apply_translation((x, 0, 0)) for x in (0, 0.5)]
    )
    two.export(tmp_path / "two.obj")
    hull = shape_triangles(Convex(tmp_path / "two.obj"))
    areas = np.linalg.norm(np.cross(hull[:, 1] - hull[:, 0], hull[:, 2] - hull[:, 0]), axis=1) / 2
    np.testing.assert_allclose(areas.sum(), 2 * 0.01 + 4 * 0.06, rtol=1e-6)


def test_a_damaged_mesh_is_refused_by_name(tmp_path: Path):
    file = tmp_path / "damaged.obj"
    file.write_text("v 0 0 0\nv 1 0 0\nv 0 1\n 0\nf 1 2 3\n")
    with pytest.raises(ConfigError, match=r"damaged.obj cannot be read as OBJ"):
        shape_triangles(Mesh(file))


def test_a_shape_without_triangles_is_refused_by_its_kind():
    with pytest.raises(ConfigError, match="HalfSpace"):
        shape_triangles(HalfSpace())
