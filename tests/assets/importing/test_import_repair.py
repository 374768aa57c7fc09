"""Repair, volume and scale: what happens to a mesh before anyone builds with it."""

import re

import numpy as np
import pytest
import trimesh
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from fleet_tools.assets.importing.repair import clean, shells
from fleet_tools.assets.importing.scale import check_size, guess_scale, rotation_to_z
from fleet_tools.assets.importing.simplify import simplified
from fleet_tools.assets.importing.volume import enclosed, volume, winding
from fleet_tools.assets.solids import Solid
from fleet_tools.errors import ConfigError

seeds = st.integers(0, 2**32 - 1)
RING = trimesh.creation.torus(0.1, 0.03, major_sections=24, minor_sections=12)
BOX = trimesh.creation.box((0.1, 0.2, 0.3))


def repaired(mesh, **options):
    surface, notes = clean(np.array(mesh.vertices), np.array(mesh.faces))
    found, more = shells(surface)
    body, last = enclosed(found, **options)
    return body, notes + more + last


def mass(mesh, **options):
    return repaired(mesh, **options)[0].mass_properties(1000.0)


@settings(max_examples=20, deadline=None)
@given(seeds, st.floats(0.01, 100))
def test_mass_moves_with_the_body_and_grows_with_its_size(seed, scale):
    rng = np.random.default_rng(seed)
    R, p = Rotation.random(rng=rng).as_matrix(), rng.normal(size=3)
    before = mass(RING)
    moved = RING.copy()
    moved.vertices = scale * (RING.vertices @ R.T + p)
    after = mass(moved)
    assert after.mass == pytest.approx(scale**3 * before.mass, rel=1e-6)
    np.testing.assert_allclose(after.centre, scale * (R @ before.centre + p), atol=1e-6 * scale)
    expected = scale**5 * R @ before.inertia @ R.T
    np.testing.assert_allclose(after.inertia, expected, atol=1e-5 * np.abs(expected).max())


def test_inertia_agrees_with_points_drawn_inside():
    found = mass(RING)
    points = np.random.default_rng(0).uniform(*RING.bounds, size=(4000, 3))
    inside = points[winding(points, repaired(RING)[0].outer[0]) > 0.5]
    share = len(inside) / len(points) * np.prod(RING.extents)
    assert found.mass == pytest.approx(1000 * share, rel=0.05)
    centred = inside - inside.mean(axis=0)
    second = centred.T @ centred / len(inside)
    expected = (np.trace(second) * np.eye(3) - second) * found.mass
    np.testing.assert_allclose(found.inertia, expected, atol=0.04 * np.abs(expected).max())


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_damage_that_can_be_mended_changes_no_mass(seed):
    rng = np.random.default_rng(seed)
    soup = RING.triangles.copy()
    turned = rng.random(len(soup)) < rng.uniform(0, 1)
    soup[turned] = soup[turned][:, ::-1]
    soup = np.concatenate([soup, soup[:5], np.repeat(soup[:3, :1], 3, axis=1)])
    soup = np.concatenate([soup, np.full((2, 3, 3), np.nan)])[rng.permutation(len(soup) + 2)]
    damaged = trimesh.Trimesh(
        soup.reshape(-1, 3), np.arange(len(soup) * 3).reshape(-1, 3), process=False, validate=False
    )
    found, notes = repaired(damaged)
    expected = mass(RING)
    np.testing.assert_allclose(found.mass_properties(1000.0).inertia, expected.inertia, rtol=1e-5,
                               atol=1e-9)  # fmt: skip
    assert [n.split()[0] for n in notes[:2]] == ["dropped", "merged"], notes


def test_repair_of_what_is_repaired_changes_nothing():
    damaged = RING.copy()
    damaged.update_faces(np.arange(len(damaged.faces)) > 0)
    once, notes = repaired(damaged)
    assert any("closed 1 hole" in note for note in notes)
    (solid,) = once.outer
    twice, notes = repaired(trimesh.Trimesh(solid.vertices, solid.triangles, process=False))
    assert notes == []
    assert np.array_equal(twice.outer[0].vertices, solid.vertices)
    assert np.array_equal(twice.outer[0].triangles, solid.triangles)


def test_a_flat_lid_is_closed_however_wide():
    lidless = BOX.copy()
    lidless.update_faces(lidless.face_normals[:, 2] < 0.5)
    found, notes = repaired(lidless)
    assert found.mass_properties(1000.0).mass == pytest.approx(6.0)
    assert "closed 1 hole(s)" in notes


def test_what_is_open_beyond_repair_becomes_its_hull_or_is_refused():
    ragged = trimesh.creation.icosphere(3, 0.1)
    x, _, z = ragged.triangles_center.T
    ragged.update_faces(z < 0.04 * np.sign(x))
    ragged.remove_unreferenced_vertices()
    found, notes = repaired(ragged)
    assert any("convex hull stands for it" in note for note in notes)
    assert volume(found.outer[0]) == pytest.approx(ragged.convex_hull.volume)
    with pytest.raises(ConfigError, match=r"not watertight.*--if-open hull"):
        repaired(ragged, hull_if_open=False)


def test_inside_out_is_turned_and_a_cavity_stays_one():
    inward = BOX.copy()
    inward.invert()
    assert mass(inward).mass == pytest.approx(6.0)
    hollow = trimesh.creation.box((0.08, 0.1, 0.2))
    hollow.invert()
    both = trimesh.util.concatenate([BOX, hollow])
    assert mass(both).mass == pytest.approx(6.0 - 1.6)
    both.invert()
    assert mass(both).mass == pytest.approx(6.0 - 1.6)
    hollow.invert()
    assert mass(trimesh.util.concatenate([BOX, hollow])).mass == pytest.approx(6.0)


def test_what_two_parts_share_weighs_once():
    pytest.importorskip("manifold3d")
    other = BOX.copy()
    other.apply_translation((0.05, 0, 0))
    found, notes = repaired(trimesh.util.concatenate([BOX, other]))
    assert found.mass_properties(1000.0).mass == pytest.approx(9.0)
    assert any("united 2" in note for note in notes)


@pytest.mark.parametrize(
    ("vertices", "triangles", "named"),
    [
        ([[np.nan] * 3] * 3, [[0, 1, 2]], "NaN"),
        ([[0, 0, 0]] * 3, [[0, 1, 2]], "no extent"),
        ([[0, 0, 0], [1, 0, 0], [2, 0, 0]], [[0, 1, 2]], "degenerate"),
        ([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]], [[0, 1, 2], [0, 2, 3]], "no volume"),
    ],
)
def test_what_is_no_body_is_refused_with_the_reason(vertices, triangles, named):
    with pytest.raises(ConfigError, match=named):
        repaired(trimesh.Trimesh(vertices, triangles, process=False))


def test_many_triangles_become_few_of_about_the_same_shape():
    pytest.importorskip("fast_simplification")
    pytest.importorskip("manifold3d")
    fine = trimesh.creation.torus(0.1, 0.03, major_sections=96, minor_sections=60)
    few = simplified(Solid(np.array(fine.vertices), np.array(fine.faces)), 1000)
    assert 200 < len(few.triangles) <= 1000
    assert volume(few) == pytest.approx(fine.volume, rel=0.05)


@pytest.mark.parametrize(
    ("longest", "kind", "metres", "said"),
    [
        (0.3, "tool", 1.0, "metres"),
        (300.0, "tool", 0.001, "mm"),
        (30.0, "object", 0.001, "cm would give 0.3 m.*--scale cm"),
        (12.0, "tool", 0.01, "inch would give 0.305 m"),
    ],
)
def test_a_unit_is_guessed_and_said(longest, kind, metres, said):
    found = guess_scale(longest, kind)
    assert found.factor == metres and re.search(said, found.note), found.note


@pytest.mark.parametrize("longest", [1.0, 2.0, 1e-9, 1e9, 0.7])
def test_a_size_that_says_nothing_is_refused_with_the_remedy(longest):
    with pytest.raises(ConfigError, match="--length"):
        guess_scale(longest, "tool")


def test_absurd_sizes_are_refused():
    for size in (1e-6, 1e3):
        with pytest.raises(ConfigError, match="--length"):
            check_size(np.full(3, size))


@pytest.mark.parametrize("up", ["x", "y", "z", "-x", "-y", "-z"])
def test_up_becomes_z_by_a_rotation(up):
    R = rotation_to_z(up)
    axis = (-1 if up[0] == "-" else 1) * np.eye(3)["xyz".index(up[-1])]
    np.testing.assert_allclose(R @ axis, [0, 0, 1], atol=1e-15)
    np.testing.assert_allclose(R @ R.T, np.eye(3), atol=1e-15)
    assert np.linalg.det(R) == pytest.approx(1)
