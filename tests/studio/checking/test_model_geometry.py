"""What rules measure: convex pieces against formulas, and models as Drake reads them."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.planning_problems import directions, poses, vectors

from fleet_tools.assets.model_geometry import (
    ConvexPiece,
    LinkGeometry,
    ModelGeometry,
    chords,
    signed_distance,
)
from fleet_tools.errors import ConfigError
from fleet_tools.sim.catalog import load_model
from fleet_tools.studio.checking.general_rules import (
    density,
    distance_of_mass,
    gyration,
    measure_model,
)

CORNERS = np.array([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], dtype=float)
sizes = st.tuples(*[st.floats(0.1, 2.0)] * 3).map(np.array)
seeds = st.integers(0, 2**32 - 1)


def random_pieces(seed: int) -> list[ConvexPiece]:
    return [ConvexPiece(np.random.default_rng(k).normal(size=(12, 3))) for k in (seed, seed + 1)]


@given(sizes, poses)
def test_a_box_has_the_volume_and_the_chords_of_its_formula(half, X):
    piece = ConvexPiece((X @ (CORNERS * half).T).T)
    assert piece.volume == pytest.approx(8 * half.prod())
    for k in range(3):
        chord = piece.chord(X.translation(), X.rotation().matrix()[:, k])
        assert chord == pytest.approx((-half[k], half[k]))


@given(seeds, vectors, directions)
def test_a_line_is_inside_exactly_within_its_chords(seed, origin, direction):
    pieces = random_pieces(seed)
    t = np.linspace(-6, 6, 400)
    points = origin + t[:, None] * direction
    inside = [np.all(points @ each.normals.T <= each.offsets, axis=1) for each in pieces]
    found = chords(pieces, origin, direction)
    near_an_end = (np.abs(t[:, None] - np.array(found).ravel()) < 1e-4).any(axis=1)
    within = np.array([any(start <= each <= end for start, end in found) for each in t])
    np.testing.assert_array_equal(within[~near_an_end], np.any(inside, axis=0)[~near_an_end])
    assert all(a[1] < b[0] for a, b in itertools.pairwise(found))
    for t in np.array(found).ravel():
        assert signed_distance(pieces, origin + t * direction) == pytest.approx(0, abs=1e-9)


@given(seeds, vectors, directions, st.floats(0.0, 0.5))
def test_the_distance_changes_at_most_as_fast_as_the_point_moves(seed, point, direction, step):
    pieces = random_pieces(seed)
    one, other = (signed_distance(pieces, p) for p in (point, point + step * direction))
    assert abs(one - other) <= step + 1e-9


@given(sizes, vectors, st.floats(20, 20_000), st.integers(1, 4))
def test_general_rules_of_a_box_are_those_of_its_formulas(half, point, kg_m3, copies):
    mass, squares = kg_m3 * 8 * half.prod(), half**2
    moments = np.sort(mass / 3 * (squares.sum() - squares))
    pieces = tuple(ConvexPiece(CORNERS * half) for _ in range(copies))  # overlaps count once
    box = LinkGeometry(pieces, mass, 3 * point, moments)
    assert density(box) == pytest.approx(kg_m3)
    a, b, c = np.sort(squares)
    assert 0.05 < gyration(box) < 1
    assert gyration(box) == pytest.approx(math.sqrt((b + c) / 3 / (a + b + c)))
    beyond = np.abs(3 * point) - half
    outside = np.linalg.norm(np.maximum(beyond, 0))
    assert pieces[0].signed_distance(3 * point) == pytest.approx(
        outside + min(beyond.max(), 0), abs=1e-9
    )
    assert distance_of_mass(box) == pytest.approx(outside, abs=1e-9)


def test_vertices_in_a_plane_are_refused():
    with pytest.raises(ConfigError, match="no volume: its 4 vertices lie in a plane"):
        _ = ConvexPiece(CORNERS[:4]).volume


INERTIAL = """<inertial><mass value="0.5"/><origin xyz="0.01 0 0"/>
  <inertia ixx="1e-3" iyy="2e-3" izz="2.5e-3" ixy="0" ixz="0" iyz="0"/></inertial>"""
BOX = '<box size="0.1 0.1 0.1"/>'


def write(folder: Path, geometry: str = BOX, link: str = "arm") -> Path:
    """Writes a URDF with two links, the second 0.2 m beside the first and turned by 90 degrees."""
    (folder / "model.urdf").write_text(
        f"""<robot name="shapes">
          <link name="body">{INERTIAL}
            <collision><origin xyz="0 0 0.3"/><geometry>{geometry}</geometry></collision></link>
          <link name="arm">{INERTIAL}
            <collision><geometry><box size="0.1 0.02 0.02"/></geometry></collision></link>
          <joint name="weld" type="fixed"><parent link="body"/><child link="arm"/>
            <origin xyz="0.2 0 0" rpy="0 0 {math.pi / 2}"/></joint>
        </robot>"""
    )
    (folder / "keypoints.yaml").write_text(
        f"family: hook\nkind: tool\nkeypoints:\n  tip: {{link: {link}, position: [0.1, 0, 0]}}\n"
        "grasp: {translation_m: [0.0, 0.0, 0.02], rpy_deg: [0, 0, 90]}\n"
    )
    return folder / "model.urdf"


def measured(folder: Path) -> ModelGeometry:
    return measure_model(load_model(folder, "tool"))


@pytest.mark.parametrize(
    ("shape", "volume", "height"),
    [
        ('<box size="0.1 0.2 0.3"/>', 0.006, 0.3),
        ('<sphere radius="0.1"/>', 4 / 3 * math.pi * 1e-3, 0.2),
        ('<cylinder radius="0.1" length="0.2"/>', 0.2 * math.pi * 1e-2, 0.2),
    ],
)
def test_a_shape_has_its_volume_and_its_place(tmp_path, shape, volume, height):
    write(tmp_path, shape)
    (piece,) = measured(tmp_path).links["body"].pieces
    assert piece.volume == pytest.approx(volume, rel=0.02)
    low, high = piece.vertices.min(axis=0), piece.vertices.max(axis=0)
    assert high[2] - low[2] == pytest.approx(height, rel=0.01)
    np.testing.assert_allclose((low + high) / 2, [0, 0, 0.3], atol=1e-9)


def test_links_keypoints_and_grasp_are_in_the_model_frame(tmp_path):
    write(tmp_path)
    geometry = measured(tmp_path)
    arm = geometry.links["arm"]
    np.testing.assert_allclose(np.ptp(arm.pieces[0].vertices, axis=0), [0.02, 0.1, 0.02], atol=1e-9)
    np.testing.assert_allclose(geometry.p_M["tip"], [0.2, 0.1, 0], atol=1e-9)
    np.testing.assert_allclose(arm.p_MCom, [0.2, 0.01, 0], atol=1e-9)
    np.testing.assert_allclose(arm.moments, [1e-3, 2e-3, 2.5e-3], atol=1e-9)
    np.testing.assert_allclose(geometry.X_MG.rotation().matrix()[:, 1], [-1, 0, 0], atol=1e-9)
    assert geometry.keypoint_links == {"tip": "arm"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("arm", "leg", "'tip' is on the link 'arm'"),
        ('child link="arm"', 'child link="nobody"', r"Drake cannot read .*model\.urdf"),
        # Drake raises a ValueError, or ends the program.
        ('xyz="0.2 0 0"', 'xyz="0.2 0"', r"Drake cannot read .*model\.urdf"),
        ("</joint>", '<limit lower="1" upper="-1"/></joint>', r"Drake cannot read .*model\.urdf"),
    ],
)
def test_a_file_that_drake_cannot_read_is_an_error(tmp_path, old, new, message):
    file = write(tmp_path)
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new).replace('"fixed"', '"revolute"'))
    with pytest.raises(ConfigError, match=message):
        measured(tmp_path)
