"""Registration: known poses come back from synthetic clouds, in every frame, with noise too."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation
from support.shares import few

from fleet_tools.experts.perception.registration import Fit, Schedule, StartedFit, best
from fleet_tools.experts.perception.shapes import TriangleSurface, sample

CORNERS = np.array([[0, 0, 0], [0.2, 0, 0], [0, 0.1, 0], [0.03, 0.02, 0.05]])
FACES = [[0, 1, 2], [0, 1, 3], [1, 2, 3], [0, 2, 3]]
TETRAHEDRON = TriangleSurface(CORNERS[FACES])
"""A shape without symmetry."""
SMALL_BOX = np.array([0.01, 0.01, 0.01, 0.1, 0.1, 0.1])
SCHEDULE = (0.01, *[0.005] * 9)

within_the_box = st.lists(st.floats(-1, 1), min_size=6, max_size=6).map(
    lambda entries: SMALL_BOX * entries
)


def pose(x: np.ndarray) -> np.ndarray:
    X = np.eye(4)
    X[:3, :3], X[:3, 3] = Rotation.from_rotvec(x[3:]).as_matrix(), x[:3]
    return X


def fit(
    place: Callable[[np.ndarray], np.ndarray], *surfaces: TriangleSurface, size: int = 6
) -> Fit:
    limits = np.full(size, np.inf)
    return Fit(surfaces or (TETRAHEDRON,), place, -limits, limits)


def cloud(X: np.ndarray, count: int = 300) -> np.ndarray:
    points, _ = sample(TETRAHEDRON.triangles, count)
    return points @ X[:3, :3].T + X[:3, 3]


@given(st.lists(st.floats(-0.3, 0.3), min_size=3, max_size=3).map(np.array))
def test_no_point_of_a_surface_is_closer_than_the_closest(point):
    ((closest,), (normal,)) = TETRAHEDRON.closest(point[None])
    points, _ = sample(TETRAHEDRON.triangles, 2000)
    assert np.linalg.norm(closest - point) <= np.linalg.norm(points - point, axis=1).min() + 1e-3
    assert np.linalg.norm(normal) == pytest.approx(1)
    np.testing.assert_allclose(TETRAHEDRON.closest(closest[None])[0][0], closest, atol=1e-9)


@few(10)
@given(within_the_box)
def test_a_known_pose_comes_back(x):
    found = fit(lambda x: pose(x)[None]).register(cloud(pose(x)), np.zeros(6), SCHEDULE)
    np.testing.assert_allclose(found.parameters, x, atol=1e-5)
    assert found.residual_m < 1e-5


@few(5)
@given(within_the_box, st.integers(0, 10))
def test_noise_of_the_cloud_is_averaged(x, seed):
    noisy = cloud(pose(x), 1000) + np.random.default_rng(seed).normal(0, 0.001, (1000, 3))
    found = fit(lambda x: pose(x)[None]).register(noisy, np.zeros(6), SCHEDULE)
    np.testing.assert_allclose(found.parameters[:3], x[:3], atol=1e-3)
    np.testing.assert_allclose(found.parameters[3:], x[3:], atol=1e-2)


@few(5)
@given(within_the_box, st.lists(st.floats(-2, 2), min_size=6, max_size=6).map(np.array))
def test_the_frame_does_not_matter(x, moved):
    X_FC = pose(moved)
    points = cloud(pose(x)) @ X_FC[:3, :3].T + X_FC[:3, 3]
    found = fit(lambda x: (X_FC @ pose(x))[None]).register(points, np.zeros(6), SCHEDULE)
    np.testing.assert_allclose(found.parameters, x, atol=1e-5)


def test_what_the_cloud_leaves_free_stays():
    square = TriangleSurface(
        np.array([[[0, 0, 0], [1, 0, 0], [0, 1, 0]], [[1, 1, 0], [1, 0, 0], [0, 1, 0]]])
    )
    inside = np.array([[0.4, 0.4, 0], [0.6, 0.4, 0], [0.4, 0.6, 0], [0.5, 0.5, 0]])
    sliding = fit(lambda x: pose(np.array([*x, 0, 0, 0, 0]))[None], square, size=2)
    found = sliding.register(inside, np.zeros(2), SCHEDULE)
    np.testing.assert_array_equal(found.parameters, 0)


def test_links_of_a_joint_are_found_together():
    def place(x: np.ndarray) -> np.ndarray:
        return np.stack([pose(x[:6]), pose(x[:6]) @ pose(np.array([0.3, 0, 0, x[6], 0, 0]))])

    truth = np.array([0.004, -0.003, 0.002, 0.05, 0.02, -0.03, 0.2])
    points = np.concatenate([cloud(X) for X in place(truth)])
    both = fit(place, TETRAHEDRON, TETRAHEDRON, size=7)
    found = both.register(points, np.zeros(7), SCHEDULE)
    np.testing.assert_allclose(found.parameters, truth, atol=1e-5)


def test_bounds_hold():
    X = pose(np.array([0.02, 0, 0, 0, 0, 0]))
    limited = Fit((TETRAHEDRON,), lambda x: pose(x)[None], -SMALL_BOX, SMALL_BOX)
    found = limited.register(cloud(X), np.zeros(6), SCHEDULE)
    assert found.parameters[0] == pytest.approx(0.01)


def test_the_start_that_fits_is_found_among_others():
    def place(x: np.ndarray) -> np.ndarray:
        return pose(np.array([*x[:2], 0, 0, 0, x[2]]))[None]

    truth = np.array([0.1, 0.2, 2.5])
    planar = fit(place, size=3)
    points = cloud(place(truth)[0])
    starts = [np.array([0.1, 0.2, angle]) for angle in np.linspace(-3, 3, 7)]
    coarse, fine = Schedule(50, SCHEDULE[:5], 1e-3), Schedule(300, SCHEDULE, 1e-5, starts=2)
    _, found = best(points, [StartedFit(planar, starts, np.zeros((0, 3)))], coarse, fine)
    np.testing.assert_allclose(found.parameters, truth, atol=1e-5)
