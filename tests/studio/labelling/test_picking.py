"""Where clicks meet a surface, and what lies opposite: laws over random surfaces and motions."""

import numpy as np
import pytest
import trimesh
from hypothesis import assume, example, given
from hypothesis import strategies as st

from fleet_tools.assets.solids import Solid, box, joined
from fleet_tools.studio.labelling.picking import (
    Hit,
    Snap,
    across,
    behind,
    face_of,
    nearest,
    normals,
    outline,
    outward,
    pick,
    size,
    snapped,
)

SEEDS = st.integers(0, 2**32 - 1)
SNAPS: tuple[Snap, ...] = ("surface", "vertex", "edge", "face centre")


def body(seed: int) -> Solid:
    """Returns a convex body, a box or two bodies side by side, turned and moved at random."""
    rng = np.random.default_rng(seed)
    hull = trimesh.convex.convex_hull(rng.normal(size=(12, 3)))
    first = Solid(np.array(hull.vertices), np.array(hull.faces))
    block = box(-rng.uniform(0.3, 1, 3), rng.uniform(0.3, 1, 3))
    solid = (first, block, joined(block, block.transformed(np.eye(3), (3.0, 0.2, 0.1))))[seed % 3]
    return moved(solid, rng)


def moved(solid: Solid, rng: np.random.Generator) -> Solid:
    scale = 10 ** rng.uniform(-3, 3)
    rotation = trimesh.transformations.random_rotation_matrix(rng.random(3))[:3, :3]
    turned = solid.transformed(rotation, rng.normal(size=3))
    return Solid(scale * turned.vertices, turned.triangles)


def ray(surface: Solid, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Returns a ray from outside to a point within the bounding box."""
    low, high = surface.vertices.min(axis=0), surface.vertices.max(axis=0)
    away = rng.normal(size=3)
    origin = (low + high) / 2 + 3 * size(surface) * away / np.linalg.norm(away)
    return origin, rng.uniform(low, high) - origin


def picked(surface: Solid, seed: int) -> Hit:
    """Returns where a ray meets a surface; others are none of the examples."""
    hit = pick(surface, *ray(surface, np.random.default_rng(seed)))
    assume(hit is not None)
    assert hit is not None
    return hit


def samples(surface: Solid, count: int) -> tuple[np.ndarray, float]:
    """Returns points of a surface, (n, 3), and how far any other point is from them at most."""
    grid = [(i, j, count - i - j) for i in range(count + 1) for j in range(count + 1 - i)]
    corners = surface.vertices[surface.triangles]
    points = np.einsum("gk,nki->ngi", np.array(grid) / count, corners).reshape(-1, 3)
    longest = np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=2).max()
    return points, longest / count


@given(SEEDS)
def test_a_pick_is_the_first_point_of_the_surface_on_the_ray(seed):
    surface, rng = body(seed), np.random.default_rng(seed + 1)
    origin, direction = ray(surface, rng)
    hit = pick(surface, origin, direction)
    mesh = trimesh.Trimesh(surface.vertices, surface.triangles, process=False)
    expected = mesh.ray.intersects_location([origin], [direction])[0]
    if hit is None:
        assert len(expected) == 0
        return
    unit = direction / np.linalg.norm(direction)
    along = (hit.point - origin) @ unit
    assert along >= 0
    tolerance = 1e-6 * size(surface)
    assert np.linalg.norm(hit.point - origin - along * unit) <= tolerance
    triangle = Solid(surface.vertices, surface.triangles[[hit.triangle]])
    assert nearest(triangle, hit.point).point == pytest.approx(hit.point, abs=tolerance)
    if len(expected):  # the other caster is of single precision
        first = np.min((expected - origin) @ unit)
        assert along == pytest.approx(first, abs=1e-4 * size(surface))


def test_a_ray_that_misses_or_looks_away_meets_nothing():
    cube = box((-1, -1, -1), (1, 1, 1))
    assert pick(cube, np.array([0, 0, 5.0]), np.array([0, 0, 1.0])) is None
    assert pick(cube, np.array([3, 0, 5.0]), np.array([0, 0, -1.0])) is None


def test_no_ray_passes_between_two_triangles():
    cube = box((-1, -1, -1), (1, 1, 1))
    for t in np.linspace(-1, 1, 41):  # the diagonals of the faces
        for target in ([t, t, 1.0], [t, -t, 1.0], [1.0, t, t], [1.0, t, -t]):
            origin = 4 * np.array(target) + 0.1
            assert pick(cube, origin, np.array(target) - origin) is not None


@given(SEEDS)
def test_the_nearest_point_is_nearest(seed):
    surface, rng = body(seed), np.random.default_rng(seed)
    origin, _ = ray(surface, rng)
    found = nearest(surface, origin)
    points, spacing = samples(surface, 60)
    least = np.linalg.norm(points - origin, axis=1).min()
    assert least - spacing <= np.linalg.norm(found.point - origin) <= least * (1 + 1e-12)
    again = nearest(surface, found.point)
    assert again.point == pytest.approx(found.point, abs=1e-9 * size(surface))


@pytest.mark.parametrize("snap", SNAPS)
@example(seed=29377)  # a body of 2 mm
@given(seed=SEEDS)
def test_a_snap_stays_on_the_face_and_is_idempotent(snap, seed):
    surface = body(seed)
    hit = picked(surface, seed)
    once = snapped(surface, hit, snap)
    twice = snapped(surface, once, snap)
    tolerance = 1e-9 * size(surface)
    assert twice.point == pytest.approx(once.point, abs=tolerance)
    face = Solid(surface.vertices, surface.triangles[face_of(surface, hit.triangle)])
    assert nearest(face, once.point).point == pytest.approx(once.point, abs=1e-7 * size(surface))


@given(SEEDS)
def test_snaps_are_nearest_of_their_kind(seed):
    surface = body(seed)
    hit = picked(surface, seed)
    edges = surface.vertices[outline(surface, face_of(surface, hit.triangle))]
    corners = [corner for edge in edges for corner in edge]
    to_corner = min(np.linalg.norm(corner - hit.point) for corner in corners)
    along = [a + t * (b - a) for a, b in edges for t in np.linspace(0, 1, 400)]
    to_edge = min(np.linalg.norm(sample - hit.point) for sample in along)
    vertex, edge = (snapped(surface, hit, snap).point for snap in ("vertex", "edge"))
    assert np.linalg.norm(vertex - hit.point) == pytest.approx(to_corner)
    assert to_edge * (1 - 1e-3) - 0.01 * size(surface) <= np.linalg.norm(edge - hit.point)
    assert np.linalg.norm(edge - hit.point) <= to_edge + 1e-12


def test_a_face_is_what_looks_flat_however_it_is_divided():
    cylinder = trimesh.creation.cylinder(radius=0.02, height=0.1, sections=64)
    disc = Solid(np.array(cylinder.vertices), np.array(cylinder.faces))
    finer = cylinder.subdivide().subdivide()
    for surface in (disc, Solid(np.array(finer.vertices), np.array(finer.faces))):
        top = pick(surface, np.array([0.011, 0.004, 1.0]), np.array([0, 0, -1.0]))
        assert top is not None
        assert snapped(surface, top, "face centre").point == pytest.approx([0, 0, 0.05], abs=1e-9)
        assert np.linalg.norm(snapped(surface, top, "vertex").point[:2]) == pytest.approx(
            0.02, rel=2e-3
        )


@given(SEEDS)
def test_what_is_behind_is_where_the_line_leaves_the_body(seed):
    surface = body(seed)
    hit = picked(surface, seed)
    away = outward(surface, hit)
    assert np.linalg.norm(away) == pytest.approx(1)
    found = behind(surface, hit)
    assert found is not None
    step = found.point - hit.point
    assert step @ away < 0
    assert np.cross(step, away) == pytest.approx(np.zeros(3), abs=1e-6 * size(surface))
    mesh = trimesh.Trimesh(surface.vertices, surface.triangles, process=False)
    within = hit.point + np.linspace(0.02, 0.98, 25)[:, None] * step
    beyond = found.point + 1e-4 * step
    if np.linalg.norm(step) > 1e-3 * size(surface):
        assert mesh.contains(within).all()
        assert not mesh.contains([beyond]).any()


def test_behind_an_edge_is_the_back_of_the_blade():
    section = ((0, 0), (-0.002, 0.04), (0.002, 0.04))
    wedge = trimesh.convex.convex_hull(np.array([(x, *yz) for x in (0, 0.1) for yz in section]))
    surface = Solid(np.array(wedge.vertices), np.array(wedge.faces))
    spine = behind(surface, nearest(surface, np.array([0.05, 0.0, 0.0])))
    assert spine is not None
    assert spine.point == pytest.approx([0.05, 0.0, 0.04], abs=1e-6)


def test_parts_that_overlap_count_as_one_body():
    surface = joined(box((0, 0, 0), (1, 1, 1)), box((0.2, 0.2, -2), (0.8, 0.8, 0.5)))
    top = pick(surface, np.array([0.5, 0.45, 3.0]), np.array([0, 0, -1.0]))
    assert top is not None
    found = behind(surface, top)
    assert found is not None
    assert found.point == pytest.approx([0.5, 0.45, -2.0])


def test_across_a_gap_is_the_other_side():
    surface = joined(box((0, 0, 0), (1, 1, 1)), box((0, 3, 0), (1, 4, 1)))
    one = nearest(surface, np.array([0.4, 1.0, 0.3]))
    other = across(surface, one)
    assert other is not None
    assert other.point == pytest.approx([0.4, 3.0, 0.3])
    back = across(surface, other)
    assert back is not None
    assert back.point == pytest.approx(one.point)
    assert across(surface, nearest(surface, np.array([0.4, 0.0, 0.3]))) is None


def test_the_noise_of_a_scan_does_not_turn_a_face():
    rng = np.random.default_rng(0)
    mesh = trimesh.creation.box((0.03, 0.03, 0.1)).subdivide().subdivide().subdivide()
    noisy = mesh.vertices + rng.normal(scale=2e-5, size=mesh.vertices.shape)
    surface = Solid(noisy, np.array(mesh.faces))
    triangle = nearest(surface, np.array([0.002, 0.003, 0.05])).triangle
    own = normals(surface)[triangle]
    mean = outward(
        surface, Hit(surface.vertices[surface.triangles[triangle]].mean(axis=0), triangle)
    )
    assert np.arccos(mean[2]) < 0.3 * np.arccos(own[2])
