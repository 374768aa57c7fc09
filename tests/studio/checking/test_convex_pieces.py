"""Measurements of convex pieces against formulas, and against membership of sampled points."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.planning_problems import directions, poses, vectors

from fleet_tools.assets.model_geometry import ConvexPiece, chords, signed_distance
from fleet_tools.errors import ConfigError

CORNERS = np.array([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], dtype=float)
sizes = st.tuples(*[st.floats(0.1, 2.0)] * 3).map(np.array)
seeds = st.integers(0, 2**32 - 1)


def random_piece(seed: int) -> ConvexPiece:
    return ConvexPiece(np.random.default_rng(seed).normal(size=(12, 3)))


def inside(piece: ConvexPiece, points: np.ndarray) -> np.ndarray:
    return np.all(points @ piece.normals.T <= piece.offsets, axis=1)


@given(sizes, poses)
def test_a_box_has_the_volume_and_the_chords_of_its_formula(half, X):
    piece = ConvexPiece((X @ (CORNERS * half).T).T)
    assert piece.volume == pytest.approx(8 * half.prod())
    for k in range(3):
        chord = piece.chord(X.translation(), X.rotation().matrix()[:, k])
        assert chord == pytest.approx((-half[k], half[k]))


@given(seeds, vectors, directions)
def test_a_line_is_inside_exactly_within_its_chords(seed, origin, direction):
    pieces = [random_piece(seed), random_piece(seed + 1)]
    t = np.linspace(-6, 6, 400)
    points = origin + t[:, None] * direction
    expected = inside(pieces[0], points) | inside(pieces[1], points)
    found = chords(pieces, origin, direction)
    ends = np.array(found).ravel()
    near_an_end = (np.abs(t[:, None] - ends) < 1e-4).any(axis=1)
    within = np.array([any(start <= each <= end for start, end in found) for each in t])
    np.testing.assert_array_equal(within[~near_an_end], expected[~near_an_end])
    assert all(a[1] < b[0] for a, b in itertools.pairwise(found))


@given(sizes, vectors)
def test_the_distance_from_a_box_is_that_of_its_formula(half, point):
    point = 3 * point
    beyond = np.abs(point) - half
    expected = np.linalg.norm(np.maximum(beyond, 0)) + min(beyond.max(), 0)
    assert ConvexPiece(CORNERS * half).signed_distance(point) == pytest.approx(expected, abs=1e-9)


@given(seeds, vectors, directions, st.floats(0.0, 0.5))
def test_the_distance_changes_at_most_as_fast_as_the_point_moves(seed, point, direction, step):
    pieces = [random_piece(seed), random_piece(seed + 1)]
    one, other = (signed_distance(pieces, p) for p in (point, point + step * direction))
    assert abs(one - other) <= step + 1e-9


@given(seeds, directions)
def test_a_chord_ends_on_the_surface(seed, direction):
    piece = random_piece(seed)
    chord = piece.chord(piece.vertices.mean(axis=0), direction)
    assume(chord is not None)
    assert chord is not None
    for t in chord:
        point = piece.vertices.mean(axis=0) + t * direction
        assert piece.signed_distance(point) == pytest.approx(0, abs=1e-9)


def test_vertices_in_a_plane_are_refused():
    with pytest.raises(ConfigError, match="no volume: its 4 vertices lie in a plane"):
        _ = ConvexPiece(CORNERS[:4]).volume
