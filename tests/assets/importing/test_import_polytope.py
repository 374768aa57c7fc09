"""Simple outer polytopes: they contain, they are simple, and Drake makes their field."""

import numpy as np
import pytest
import trimesh
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from fleet_tools.assets.importing.check import contact_problem
from fleet_tools.assets.importing.polytope import hull, outer_polytope
from fleet_tools.assets.importing.volume import volume
from fleet_tools.assets.materials import STEEL
from fleet_tools.assets.model import Link, Model, Part, files

SHORTEST = 3e-4

# What gives hydroelastic margins trouble: many planes at a vertex, round sides, thin plates.
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
rotations = st.integers(0, 2**32 - 1).map(lambda s: Rotation.random(rng=s).as_matrix())


def wrapped(points):
    return outer_polytope(np.asarray(points), tolerance=5e-4, shortest=SHORTEST)


def planes_at(polytope):
    at = polytope.normals @ polytope.solid.vertices.T - polytope.offsets[:, None]
    return np.count_nonzero(np.abs(at) < 1e-9, axis=0)


def problem(solid):
    part = Part("piece", solid, STEEL, (solid,), collision_places=17)
    point = {}
    return contact_problem(files(Model("object", "x", "x", (Link("x", (part,)),), point)))


@pytest.mark.parametrize("name", SHAPES)
def test_it_contains_and_is_simple_and_drake_makes_its_field(name):
    for rotation in (np.eye(3), Rotation.from_rotvec([0.3, 0.5, 0.7]).as_matrix()):
        points = np.asarray(SHAPES[name]) @ rotation.T
        found = wrapped(points)
        assert (found.normals @ points.T <= found.offsets[:, None] + 1e-12).all()
        assert (planes_at(found) == 3).all()
        assert len(found.normals) <= 20
        gaps = np.linalg.norm(found.solid.vertices[:, None] - found.solid.vertices[None], axis=2)
        assert gaps[gaps > 0].min() >= SHORTEST - 1e-12
        mesh = trimesh.Trimesh(found.solid.vertices, found.solid.triangles, process=False)
        assert mesh.is_watertight and mesh.is_winding_consistent
        assert mesh.volume >= volume(hull(points)) * (1 - 1e-9)
        assert mesh.volume < 1.3 * volume(hull(points))
        assert problem(found.solid) is None
        if name in EXACT:
            assert found.excess < 1e-9


@settings(max_examples=8, deadline=None)
@given(rotations, st.integers(0, 2**32 - 1))
def test_of_any_points_it_is_a_bound_within_its_stated_excess(rotation, seed):
    points = np.random.default_rng(seed).normal(size=(30, 3)) * (0.05, 0.02, 0.01) @ rotation.T
    found = wrapped(points)
    assert (found.normals @ points.T <= found.offsets[:, None] + 1e-12).all()
    # By an independent route: no direction sees it stand out by more than it says.
    directions = Rotation.random(50, rng=seed).as_matrix()[:, 0]
    heights = (directions @ found.solid.vertices.T).max(1) - (directions @ points.T).max(1)
    assert heights.max() <= found.excess + 1e-9
    assert problem(found.solid) is None


def test_it_is_the_same_twice_and_of_itself():
    points = SHAPES["wedge"]
    one, other = wrapped(points), wrapped(points)
    assert np.array_equal(one.solid.vertices, other.solid.vertices)
    again = wrapped(one.solid.vertices)
    assert volume(again.solid) == pytest.approx(volume(one.solid), rel=1e-9)


def test_a_plane_has_none():
    with pytest.raises(ValueError, match="plane"):
        wrapped([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]])
