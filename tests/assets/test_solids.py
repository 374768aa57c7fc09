"""Solids and their mass properties: closed forms, rigid motions, closed outward surfaces."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydrake.math import RigidTransform
from support.planning_problems import poses, vectors
from support.shares import few

from fleet_tools.assets.model_description import Position
from fleet_tools.assets.model_folder import corner_normals, decimal, obj_text
from fleet_tools.assets.solids import (
    MassProperties,
    Section,
    Solid,
    Station,
    box,
    circle,
    combined,
    joined,
    loft,
    mass_properties,
    section_loft,
)

lengths = st.integers(50, 2000).map(lambda tenths: tenths / 1e4)  # whole tenths of a millimetre
corner_counts = st.integers(1, 8)


@st.composite
def sections(draw: st.DrawFn) -> Section:
    half_x, half_y = draw(lengths), draw(lengths)
    return Section(half_x, half_y, draw(st.floats(0.2, 1)) * min(half_x, half_y))


@st.composite
def lofts(draw: st.DrawFn) -> Solid:
    heights = np.cumsum(draw(st.lists(lengths, min_size=2, max_size=5)))
    stations: list[Station] = [(z, draw(sections())) for z in heights]
    if draw(st.booleans()):
        stations.append((heights[-1] + draw(lengths), None))
    return section_loft(stations, draw(corner_counts), (draw(lengths), draw(lengths)))


def assert_same_body(
    actual: MassProperties, expected: MassProperties, tolerance: float = 1e-9
) -> None:
    atol = tolerance * expected.mass * 0.1**2
    assert actual.mass == pytest.approx(expected.mass, rel=tolerance)
    np.testing.assert_allclose(actual.centre, expected.centre, atol=1e-9)
    np.testing.assert_allclose(actual.inertia, expected.inertia, atol=atol, rtol=tolerance)


@few(10)
@given(vectors, st.tuples(lengths, lengths, lengths))
def test_box(corner: Position, sides: Position) -> None:
    body = mass_properties(box(corner, np.add(corner, sides)), 700.0)
    mass, squares = 700.0 * math.prod(sides), np.square(sides)
    inertia = mass / 12 * np.diag(squares.sum() - squares)
    assert_same_body(body, MassProperties(mass, np.add(corner, np.array(sides) / 2), inertia))


@few(10)
@given(lengths, lengths, corner_counts)
def test_regular_prism(apothem: float, height: float, corner_points: int) -> None:
    n = 4 * corner_points
    ends = [(0, circle(apothem)), (height, circle(apothem))]
    body = mass_properties(section_loft(ends, corner_points), 1.0)
    area = n * apothem**2 * math.tan(math.pi / n)
    polar = area * apothem**2 / 6 * (3 + math.tan(math.pi / n) ** 2)  # second moment about z
    axial, across = polar * height, polar / 2 * height + area * height**3 / 12
    inertia = np.diag([across, across, axial])
    expected = MassProperties(area * height, np.array([0, 0, height / 2]), inertia)
    assert_same_body(body, expected, tolerance=1e-6)  # points of outlines are whole nanometres


def test_tetrahedron() -> None:
    corners = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1.0]])
    body = mass_properties(loft([corners[:3], corners[3:]]), 6.0)
    inertia = np.full((3, 3), 1 / 80) + np.diag([1 / 16] * 3)  # of a unit mass
    assert_same_body(body, MassProperties(1.0, np.full(3, 0.25), inertia))


@few(10)
@given(lofts(), poses)
def test_mass_moves_with_the_body_and_parts_add_up(solid: Solid, X: RigidTransform) -> None:
    R = X.rotation().matrix()
    moved = solid.transformed(R, X.translation())
    before, after = (mass_properties(each, 1e3) for each in (solid, moved))
    assert_same_body(
        after, MassProperties(before.mass, X @ before.centre, R @ before.inertia @ R.T)
    )
    other = moved.transformed(np.eye(3), (2.0, 2.0, 2.0))
    whole = mass_properties(joined(solid, other), 1e3)
    parts = combined([mass_properties(each, 1e3) for each in (solid, other)])
    assert whole.mass == pytest.approx(parts.mass, rel=1e-6)
    np.testing.assert_allclose(whole.centre, parts.centre, rtol=1e-6)
    np.testing.assert_allclose(whole.inertia, parts.inertia, rtol=1e-5, atol=1e-6 * whole.mass)


@few(10)
@given(lofts())
def test_lofts_are_closed_face_outwards_and_have_normals_in_obj(solid: Solid) -> None:
    edges = [(int(t[k]), int(t[k - 1])) for t in solid.triangles for k in range(3)]
    assert len(set(edges)) == len(edges)
    assert {(b, a) for a, b in edges} == set(edges)
    assert mass_properties(solid, 1.0).mass > 0

    lines = [line.split() for line in obj_text(solid).splitlines()]
    normals = np.array([line[1:] for line in lines if line[0] == "vn"], float)
    faces = [corner.split("//") for line in lines if line[0] == "f" for corner in line[1:]]
    np.testing.assert_allclose(np.linalg.norm(normals, axis=1), 1, atol=2e-4)
    assert {int(normal) for _, normal in faces} == set(range(1, len(normals) + 1))
    assert {int(vertex) for vertex, _ in faces} == set(range(1, len(solid.vertices) + 1))


@few(10)
@given(sections(), sections(), lengths, corner_counts)
def test_a_loft_between_two_sections_is_convex_and_exactly_as_wide(
    below: Section, above: Section, height: float, corner_points: int
) -> None:
    solid = section_loft([(0, below), (height, above)], corner_points)
    a, b, c = np.moveaxis(solid.vertices[solid.triangles], 1, 0)
    normals = np.cross(b - a, c - a)
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    heights = np.einsum("ti,tvi->tv", normals, solid.vertices - a[:, None])
    assert heights.max() < (1e-14 if corner_points <= 2 else 1e-7)
    outline = below.outline(corner_points)
    assert len(np.unique(outline.round(12), axis=0)) == 4 * corner_points
    for found in (outline.max(axis=0), -outline.min(axis=0)):
        np.testing.assert_allclose(found, [below.half_x, below.half_y], atol=1.1e-9)


def test_normals_are_sharp_at_a_box_and_smooth_around_a_cylinder() -> None:
    sharp = corner_normals(box((-1, -1, -1), (1, 1, 1)))
    assert set(np.abs(sharp).max(axis=2).ravel()) == {1.0}
    cylinder = section_loft([(0, circle(0.1)), (0.1, circle(0.1))], 8)
    on_side = np.ptp(cylinder.vertices[cylinder.triangles], axis=1)[:, 2] > 0
    normals = corner_normals(cylinder)[on_side]
    radial = cylinder.vertices[cylinder.triangles[on_side]] * [1, 1, 0]
    radial /= np.linalg.norm(radial, axis=2, keepdims=True)
    assert np.einsum("tci,tci->tc", normals, radial).min() > 0.99


@few(10)
@given(st.floats(-10, 10), st.integers(0, 9))
def test_decimals_are_short_and_close(value: float, digits: int) -> None:
    assert abs(float(decimal(value, digits)) - value) <= 0.5000001 * 10.0**-digits
