"""Outer polytopes: they contain the points, are simple, and Drake makes their contact geometry."""

import numpy as np
import pytest
import trimesh
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike
from scipy.spatial.transform import Rotation
from support.shares import few

from fleet_tools.assets.model_description import (
    STEEL,
    LinkDescription,
    ModelDescription,
    PartDescription,
)
from fleet_tools.assets.model_folder import model_files
from fleet_tools.assets.solids import Solid
from fleet_tools.studio.importing.collision_geometry import contact_error
from fleet_tools.studio.importing.enclosed_body import convex_hull, volume
from fleet_tools.studio.importing.outer_polytope import Polytope, outer_polytope

SHORTEST = 3e-4

# Difficult for hydroelastic margins: many planes at a vertex, round sides, thin plates.
SHAPES = {
    "box": trimesh.creation.box((0.02, 0.03, 0.1)).vertices,
    "plate": trimesh.creation.box((0.1, 0.08, 0.001)).vertices,
    "pyramid": np.array([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0], [0, 0, 1]]) * 0.03,
    "octahedron": np.vstack([np.eye(3), -np.eye(3)]) * 0.03,
    "icosahedron": trimesh.creation.icosahedron().vertices * 0.03,
    "cone": trimesh.creation.cone(0.02, 0.05, sections=16).vertices,
    "cylinder": trimesh.creation.cylinder(0.02, 0.1, sections=64).vertices,
    "ball": trimesh.creation.icosphere(3, 0.03).vertices,
    "wedge": np.array([[0, y, z] for y in (0, 1) for z in (0, 1)] + [[4, 0, 0], [4, 1, 0]]) * 0.02,
}
EXACT = {"box", "plate", "wedge"}
seeds = st.integers(0, 2**32 - 1)


def enclosing(points: ArrayLike) -> Polytope:
    return outer_polytope(np.asarray(points), tolerance=5e-4, shortest=SHORTEST)


def planes_at(polytope: Polytope) -> np.ndarray:
    """Returns the number of planes on which each vertex lies, (v,)."""
    heights = polytope.normals @ polytope.solid.vertices.T - polytope.offsets[:, None]
    return np.count_nonzero(np.abs(heights) < 1e-9, axis=0)


def drake_error(solid: Solid) -> str | None:
    part = PartDescription("piece", solid, STEEL, (solid,), collision_digits=17)
    link = LinkDescription("x", (part,))
    return contact_error(model_files(ModelDescription("object", "x", "x", (link,), {})))


def hull_volume(points: np.ndarray) -> float:
    hull = convex_hull(points)
    assert hull is not None
    return volume(hull)


@pytest.mark.parametrize("name", SHAPES)
def test_it_contains_the_points_and_is_simple_and_drake_accepts_it(name):
    for rotation in (np.eye(3), Rotation.from_rotvec([0.3, 0.5, 0.7]).as_matrix()):
        points = np.asarray(SHAPES[name]) @ rotation.T
        found = enclosing(points)
        assert (found.normals @ points.T <= found.offsets[:, None] + 1e-12).all()
        assert (planes_at(found) == 3).all()
        assert len(found.normals) <= 20
        gaps = np.linalg.norm(found.solid.vertices[:, None] - found.solid.vertices[None], axis=2)
        assert gaps[gaps > 0].min() >= SHORTEST - 1e-12
        mesh = trimesh.Trimesh(found.solid.vertices, found.solid.triangles, process=False)
        assert mesh.is_watertight and mesh.is_winding_consistent
        assert mesh.volume >= hull_volume(points) * (1 - 1e-9)
        assert mesh.volume < 1.3 * hull_volume(points)
        assert drake_error(found.solid) is None
        if name in EXACT:
            assert found.excess < 1e-9


@few(8)
@given(seeds, seeds)
def test_random_points_are_within_its_stated_excess(rotation_seed, seed):
    rotation = Rotation.random(rng=np.random.default_rng(rotation_seed)).as_matrix()
    points = np.random.default_rng(seed).normal(size=(30, 3)) * (0.05, 0.02, 0.01) @ rotation.T
    found = enclosing(points)
    assert (found.normals @ points.T <= found.offsets[:, None] + 1e-12).all()
    # An independent check: it exceeds the points by no more than that in any direction.
    directions = Rotation.random(50, rng=np.random.default_rng(seed)).as_matrix()[:, 0]
    heights = (directions @ found.solid.vertices.T).max(1) - (directions @ points.T).max(1)
    assert heights.max() <= found.excess + 1e-9
    assert drake_error(found.solid) is None


def test_it_is_reproducible_and_idempotent_and_refuses_points_in_a_plane():
    points = SHAPES["wedge"]
    one, other = enclosing(points), enclosing(points)
    assert np.array_equal(one.solid.vertices, other.solid.vertices)
    again = enclosing(one.solid.vertices)
    assert volume(again.solid) == pytest.approx(volume(one.solid), rel=1e-9)
    with pytest.raises(ValueError, match="plane"):
        enclosing([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]])
