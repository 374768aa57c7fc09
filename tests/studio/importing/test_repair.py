"""Repair, mass and scale of meshes, and which parts of a mesh have collision geometry."""

import itertools
import re
from typing import Any

import numpy as np
import pytest
import trimesh
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation
from support.shares import few

from fleet_tools.assets.model_description import STEEL
from fleet_tools.assets.solids import MassProperties, Solid
from fleet_tools.errors import ConfigError
from fleet_tools.sim.mesh_reading import rotation_to_z
from fleet_tools.studio.importing.enclosed_body import EnclosedBody, enclosed_body, volume
from fleet_tools.studio.importing.importer import ImportedModel, import_mesh
from fleet_tools.studio.importing.mesh_file import RawMesh, check_size, guess_scale
from fleet_tools.studio.importing.repair import (
    SLIVER,
    cleaned,
    repaired_shells,
    simplified,
    without_slivers,
)
from fleet_tools.studio.importing.settings import ImportSettings, LabelSettings, ScaleSettings

seeds = st.integers(0, 2**32 - 1)
RING = trimesh.creation.torus(0.1, 0.03, major_sections=24, minor_sections=12)
BOX = trimesh.creation.box((0.1, 0.2, 0.3))


def concatenated(*meshes: trimesh.Trimesh) -> trimesh.Trimesh:
    mesh = trimesh.util.concatenate(meshes)
    assert isinstance(mesh, trimesh.Trimesh)
    return mesh


def repaired(mesh: trimesh.Trimesh) -> tuple[EnclosedBody, list[str]]:
    surface, notes = cleaned(np.array(mesh.vertices), np.array(mesh.faces))
    shells, repairs = repaired_shells(surface)
    body, changes = enclosed_body(shells)
    return body, notes + repairs + changes


def mass(mesh: trimesh.Trimesh) -> MassProperties:
    return repaired(mesh)[0].mass_properties(1000.0)


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


@given(seeds)
def test_damage_that_can_be_repaired_changes_no_mass(seed):
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


def test_repair_is_idempotent():
    damaged = RING.copy()
    damaged.update_faces(np.arange(len(damaged.faces)) > 0)
    once, notes = repaired(damaged)
    assert any("closed 1 hole" in note for note in notes)
    (solid,) = once.outer
    twice, notes = repaired(trimesh.Trimesh(solid.vertices, solid.triangles, process=False))
    assert notes == []
    assert np.array_equal(twice.outer[0].vertices, solid.vertices)
    assert np.array_equal(twice.outer[0].triangles, solid.triangles)


def test_a_flat_hole_is_closed_however_wide():
    lidless = BOX.copy()
    lidless.update_faces(lidless.face_normals[:, 2] < 0.5)
    found, notes = repaired(lidless)
    assert found.mass_properties(1000.0).mass == pytest.approx(6.0)
    assert "closed 1 hole(s)" in notes


def test_a_shell_open_beyond_repair_becomes_its_hull():
    ragged = trimesh.creation.icosphere(3, 0.1)
    x, _, z = ragged.triangles_center.T
    ragged.update_faces(z < 0.04 * np.sign(x))
    ragged.remove_unreferenced_vertices()
    found, notes = repaired(ragged)
    assert any("convex hull stands for it" in note for note in notes)
    assert volume(found.outer[0]) == pytest.approx(ragged.convex_hull.volume)


def test_an_inverted_shell_is_turned_and_a_cavity_stays_one():
    inward = BOX.copy()
    inward.invert()
    assert mass(inward).mass == pytest.approx(6.0)
    hollow = trimesh.creation.box((0.08, 0.1, 0.2))
    hollow.invert()
    both = concatenated(BOX, hollow)
    assert mass(both).mass == pytest.approx(6.0 - 1.6)
    both.invert()
    assert mass(both).mass == pytest.approx(6.0 - 1.6)
    hollow.invert()
    assert mass(concatenated(BOX, hollow)).mass == pytest.approx(6.0)


def test_a_moebius_strip_is_said_to_have_no_inside():
    angles = np.linspace(0, 2 * np.pi, 30, endpoint=False)
    across = np.array([[np.cos(a / 2) * np.cos(a), np.cos(a / 2) * np.sin(a), np.sin(a / 2)]
                       for a in angles])  # fmt: skip
    middle = np.column_stack([np.cos(angles), np.sin(angles), np.zeros(30)])
    rims = np.concatenate([middle - 0.3 * across, middle + 0.3 * across])  # one goes into the other
    quads = [(k, k + 30, (k + 1) % 60, (k + 31) % 60) for k in range(30)]
    triangles = [each for a, b, c, d in quads for each in ((a, b, c), (b, d, c))]
    _, notes = repaired_shells(Solid(rims, np.array(triangles)))
    assert any("no inside, like a Möbius strip" in note for note in notes)


def test_overlapping_volume_counts_once():
    pytest.importorskip("manifold3d")
    other = BOX.copy()
    other.apply_translation((0.05, 0, 0))
    found, notes = repaired(concatenated(BOX, other))
    assert found.mass_properties(1000.0).mass == pytest.approx(9.0)
    assert any("united 2" in note for note in notes)


@pytest.mark.parametrize(
    ("vertices", "triangles", "message"),
    [
        ([[np.nan] * 3] * 3, [[0, 1, 2]], "NaN"),
        ([[0, 0, 0]] * 3, [[0, 1, 2]], "no extent"),
        ([[0, 0, 0], [1, 0, 0], [2, 0, 0]], [[0, 1, 2]], "degenerate"),
        ([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]], [[0, 1, 2], [0, 2, 3]], "no volume"),
    ],
)
def test_a_mesh_without_volume_is_refused_with_the_reason(vertices, triangles, message):
    with pytest.raises(ConfigError, match=message):
        repaired(trimesh.Trimesh(vertices, triangles, process=False))


def test_simplification_preserves_the_volume_approximately():
    pytest.importorskip("fast_simplification")
    pytest.importorskip("manifold3d")
    fine = trimesh.creation.torus(0.1, 0.03, major_sections=96, minor_sections=60)
    few = simplified(Solid(np.array(fine.vertices), np.array(fine.faces)), 1000)
    assert 200 < len(few.triangles) <= 1000
    assert volume(few) == pytest.approx(fine.volume, rel=0.05)


@pytest.mark.parametrize(
    ("longest", "kind", "metres", "note"),
    [
        (0.3, "tool", 1.0, "metres"),
        (300.0, "tool", 0.001, "mm"),
        (30.0, "object", 0.001, "cm would give 0.3 m.*--scale cm"),
        (12.0, "tool", 0.01, "inch would give 0.305 m"),
        *((ambiguous, "tool", None, "--length") for ambiguous in (1.0, 2.0, 1e-9, 1e9, 0.7)),
    ],
)
def test_a_unit_is_guessed_and_noted_or_refused(longest, kind, metres, note):
    if metres is None:
        with pytest.raises(ConfigError, match=note):
            guess_scale(longest, kind, "of_a_user")
        return
    found = guess_scale(longest, kind, "of_a_user")
    assert found.factor == metres and re.search(note, found.note), found.note
    for size in (1e-6, 1e3):  # impossible whatever the unit
        with pytest.raises(ConfigError, match="--length"):
            check_size("object", "of_a_user", size, 1.0)


def test_the_up_axis_is_rotated_to_z():
    for sign, index in itertools.product((1, -1), range(3)):
        up: Any = ("" if sign > 0 else "-") + "xyz"[index]
        R = rotation_to_z(up)
        np.testing.assert_allclose(R @ (sign * np.eye(3)[index]), [0, 0, 1], atol=1e-15)
        np.testing.assert_allclose(R @ R.T, np.eye(3), atol=1e-15)
        assert np.linalg.det(R) == pytest.approx(1)


SETTINGS = ImportSettings(
    kind="object",
    family="nail",
    name="block",
    material=STEEL,
    labels=LabelSettings(keypoint=(("head", (0.0, 0.0, 0.05)),)),
    scale=ScaleSettings(scale=1.0),
)
BLOCK = trimesh.creation.box((0.1, 0.06, 0.05))


def imported(*meshes: trimesh.Trimesh) -> ImportedModel:
    whole = concatenated(*meshes)
    return import_mesh(RawMesh(np.array(whole.vertices), np.array(whole.faces)), SETTINGS)


def sheet(thickness: float) -> trimesh.Trimesh:
    return trimesh.creation.box(
        (0.05, 0.04, thickness), trimesh.transformations.translation_matrix((0, 0, 0.1))
    )


@pytest.mark.parametrize(("thickness", "count"), [(1e-3, 2), (1e-4, 1), (1e-5, 1)])
def test_a_sheet_too_thin_for_contact_has_mass_and_a_note(thickness, count):
    result = imported(BLOCK, sheet(thickness))
    assert len(result.model.links[0].parts[0].collision) == count
    volume = BLOCK.volume + 0.05 * 0.04 * thickness
    assert result.inertial.mass == pytest.approx(STEEL.density * volume, rel=1e-6)
    assert any("no collision geometry" in note for note in result.notes) == (count == 1)
    if count == 1:  # and alone it is refused
        with pytest.raises(ConfigError, match=r"only 0\.\d+ mm thick.*Solidify|no volume"):
            imported(sheet(thickness))


@given(st.floats(-12, -6), st.integers(0, len(RING.edges_unique) - 1))
@few(10)
def test_tiny_edges_are_collapsed_and_other_surfaces_stay_as_they_are(exponent, edge):
    pytest.importorskip("manifold3d")
    plain = Solid(np.array(RING.vertices), np.array(RING.faces))
    assert without_slivers(plain) is plain
    a, b = RING.edges_unique[edge]  # a new vertex divides it close to its end
    faces, new = [], len(plain.vertices)
    for face in plain.triangles:
        halves = [np.where(face == end, new, face) for end in (a, b)]
        faces += halves if {a, b} <= {*face} else [face]
    near = plain.vertices[a] + 10**exponent * (plain.vertices[b] - plain.vertices[a])
    mended = without_slivers(Solid(np.vstack([plain.vertices, near]), np.array(faces)))
    mesh = trimesh.Trimesh(mended.vertices, mended.triangles, process=False)
    assert mesh.is_watertight and mesh.volume == pytest.approx(RING.volume)
    assert mesh.edges_unique_length.min() > SLIVER * RING.extents.max()
