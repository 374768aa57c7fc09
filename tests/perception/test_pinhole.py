"""The mathematics of pinhole cameras and of their windows."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from fleet_tools.perception.camera_view import BOX_CORNERS, Pinhole, Window

sizes = st.integers(8, 640)
pinholes = st.builds(Pinhole.from_field_of_view, sizes, sizes, st.floats(10, 120))
coordinates = st.floats(-1, 1)
depths = st.floats(0.05, 3)


def points(count: int | None = None) -> st.SearchStrategy[np.ndarray]:
    row = st.tuples(coordinates, coordinates, depths)
    return st.lists(row, min_size=count or 1, max_size=count or 8).map(np.array)


@given(pinholes, points())
def test_back_projection_inverts_projection(pinhole, p_C):
    back = pinhole.back_project(pinhole.project(p_C), p_C[:, 2])
    np.testing.assert_allclose(back, p_C, atol=1e-9)


@given(pinholes, points())
def test_k_projects_homogeneous_coordinates(pinhole, p_C):
    homogeneous = p_C @ pinhole.matrix().T
    np.testing.assert_allclose(homogeneous[:, :2] / p_C[:, 2:], pinhole.project(p_C), atol=1e-8)


@given(sizes, sizes, st.floats(10, 120))
def test_the_field_of_view_spans_the_height_of_the_image(width, height, degrees):
    pinhole = Pinhole.from_field_of_view(width, height, degrees)
    top, bottom = pinhole.back_project(np.array([[0, -0.5], [0, height - 0.5]]), np.ones(2))
    angle = np.rad2deg(np.arctan(bottom[1]) - np.arctan(top[1]))
    np.testing.assert_allclose(angle, degrees)


@given(pinholes, points(), st.integers(0, 50), st.integers(0, 50))
def test_a_cropped_image_has_the_same_pixels(pinhole, p_C, left, top):
    part = pinhole.cropped(Window(left, top, 5, 4))
    assert (part.width, part.height) == (5, 4)
    np.testing.assert_allclose(
        part.project(p_C) + np.array([left, top]), pinhole.project(p_C), atol=1e-6
    )


# --- Windows ---------------------------------------------------------------------------------

NEAR_M = 0.05
poses = st.tuples(*[coordinates] * 3, *[st.floats(-3, 3)] * 3)
half_widths = st.tuples(*[st.floats(0.005, 0.3)] * 3)


def box(pose: tuple[float, ...], half_width: tuple[float, ...], depth: float = 0.0) -> np.ndarray:
    """Returns the corners of a box in front of the camera or behind it, (1, 8, 3)."""
    corners = BOX_CORNERS * np.array(half_width)
    turned = Rotation.from_rotvec(pose[3:]).apply(corners)
    return (turned + pose[:3] + [0, 0, depth])[None]


@given(pinholes, poses, half_widths, st.lists(st.tuples(*[st.floats(0, 1)] * 8), max_size=5))
def test_no_point_of_a_box_is_visible_outside_its_window(pinhole, pose, half_width, weights):
    boxes = box(pose, half_width)
    window = pinhole.window_around(boxes, NEAR_M)
    mixed = [np.array(w) / sum(w) @ boxes[0] for w in weights if sum(w) > 1e-3]
    for p_C in [*mixed, *boxes[0], boxes[0].mean(axis=0)]:
        if p_C[2] < NEAR_M:
            continue
        u, v = np.rint(pinhole.project(p_C[None]))[0]
        if 0 <= u < pinhole.width and 0 <= v < pinhole.height:
            assert window is not None
            assert window.left <= u < window.left + window.width
            assert window.top <= v < window.top + window.height


@given(pinholes, poses, half_widths)
def test_a_window_lies_in_the_image_and_contains_the_principal_point(pinhole, pose, half_width):
    window = pinhole.window_around(box(pose, half_width), NEAR_M)
    if window is None:
        return
    assert 0 <= window.left < window.left + window.width <= pinhole.width
    assert 0 <= window.top < window.top + window.height <= pinhole.height
    u, v = pinhole.cropped(window).center_px
    assert 0 < u < window.width
    assert 0 < v < window.height


@given(pinholes, poses, half_widths)
def test_a_box_behind_the_camera_has_no_window(pinhole, pose, half_width):
    assert pinhole.window_around(box(pose, half_width, depth=-2.0), NEAR_M) is None


def test_the_window_of_a_small_box_is_small():
    pinhole = Pinhole.from_field_of_view(320, 240, 60)
    window = pinhole.window_around(box((0, 0, 1, 0, 0, 0), (0.01, 0.01, 0.01)), NEAR_M)
    assert window is not None
    assert window.width * window.height <= 48 * 48
