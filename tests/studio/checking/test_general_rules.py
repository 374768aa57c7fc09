"""General rules against formulas: density, radius of gyration, and the place of the mass."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.planning_problems import vectors

from fleet_tools.assets.model_geometry import ConvexPiece, LinkGeometry
from fleet_tools.studio.checking.general_rules import density, distance_of_mass, gyration

CORNERS = np.array([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], dtype=float)
sizes = st.tuples(*[st.floats(0.01, 0.2)] * 3).map(np.array)


def box(half: np.ndarray, density_kg_m3: float = 1000.0, copies: int = 1) -> LinkGeometry:
    """Returns a homogeneous box, whose collision pieces may be there several times."""
    mass = density_kg_m3 * 8 * half.prod()
    squares = half**2
    moments = mass / 3 * (squares.sum() - squares)
    pieces = tuple(ConvexPiece(CORNERS * half) for _ in range(copies))
    return LinkGeometry(pieces, mass, np.zeros(3), np.sort(moments))


@given(sizes, st.floats(20, 20_000), st.integers(1, 4))
def test_the_density_is_that_of_the_material_whatever_overlaps(half, kg_m3, copies):
    assert density(box(half, kg_m3, copies)) == pytest.approx(kg_m3)


@given(sizes)
def test_a_solid_body_has_a_plausible_radius_of_gyration(half):
    found = gyration(box(half))
    a, b, c = np.sort(half)
    assert found == pytest.approx(math.sqrt((b**2 + c**2) / 3 / (a**2 + b**2 + c**2)))
    assert 0.05 < found < 1


@given(sizes, vectors)
def test_the_mass_is_as_far_outside_as_it_is_from_the_box(half, point):
    link = box(half)
    moved = LinkGeometry(link.pieces, link.mass, point, link.moments)
    expected = max(ConvexPiece(CORNERS * half).signed_distance(point), 0.0)
    assert distance_of_mass(moved) == pytest.approx(expected, abs=1e-9)
