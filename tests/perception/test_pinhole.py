import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fleet_tools.perception.pinhole import Pinhole, Window

sizes = st.integers(8, 640)
pinholes = st.builds(Pinhole.from_field_of_view, sizes, sizes, st.floats(10, 120))
coordinates = st.floats(-1, 1)
depths = st.floats(0.05, 3)


def points(count=None):
    row = st.tuples(coordinates, coordinates, depths)
    return st.lists(row, min_size=count or 1, max_size=count or 8).map(np.array)


@given(pinholes, points())
def test_what_is_projected_comes_back(pinhole, p_C):
    back = pinhole.back_project(pinhole.project(p_C), p_C[:, 2])
    np.testing.assert_allclose(back, p_C, atol=1e-9)


@given(pinholes, points())
def test_k_projects_as_the_field_has_it(pinhole, p_C):
    homogeneous = p_C @ pinhole.matrix().T
    np.testing.assert_allclose(homogeneous[:, :2] / p_C[:, 2:], pinhole.project(p_C), atol=1e-8)


@given(sizes, sizes, st.floats(10, 120))
def test_the_field_of_view_spans_the_pictures_height(width, height, degrees):
    pinhole = Pinhole.from_field_of_view(width, height, degrees)
    top, bottom = pinhole.back_project(np.array([[0, -0.5], [0, height - 0.5]]), np.ones(2))
    angle = np.rad2deg(np.arctan(bottom[1]) - np.arctan(top[1]))
    np.testing.assert_allclose(angle, degrees)


@given(pinholes, points(), st.integers(0, 50), st.integers(0, 50))
def test_a_part_of_the_picture_sees_the_same_pixels(pinhole, p_C, left, top):
    part = pinhole.cropped(Window(left, top, 5, 4))
    assert (part.width, part.height) == (5, 4)
    np.testing.assert_allclose(
        part.project(p_C) + np.array([left, top]), pinhole.project(p_C), atol=1e-6
    )


@given(pinholes, points(4), st.tuples(*[st.floats(0, 1)] * 4))
def test_no_point_of_the_hull_is_seen_outside_its_window(pinhole, corners, weights):
    inside = (np.array([weights]) @ corners) / max(sum(weights), 1e-9)
    if inside[0, 2] < 1e-3:
        return  # all weights are zero
    u, v = np.rint(pinhole.project(inside))[0]
    if not (0 <= u < pinhole.width and 0 <= v < pinhole.height):
        return
    window = pinhole.window_around(corners)
    assert window.left <= u < window.left + window.width
    assert window.top <= v < window.top + window.height


@given(pinholes, points())
def test_a_window_lies_in_the_picture_and_holds_the_principal_point(pinhole, corners):
    window = pinhole.window_around(corners)
    if window is None:
        return
    assert 0 <= window.left < window.left + window.width <= pinhole.width
    assert 0 <= window.top < window.top + window.height <= pinhole.height
    u, v = pinhole.cropped(window).center_px
    assert 0 < u < window.width
    assert 0 < v < window.height


@given(pinholes, points())
def test_what_is_behind_the_camera_has_no_window(pinhole, corners):
    assert pinhole.window_around(corners * [1, 1, -1]) is None


@given(pinholes, points(2))
def test_what_reaches_behind_the_camera_may_be_anywhere(pinhole, corners):
    corners[0, 2] *= -1
    whole = Window(0, 0, pinhole.width, pinhole.height)
    assert pinhole.window_around(corners) == whole
