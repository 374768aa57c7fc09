import numpy as np
from conftest import needs_gl
from hypothesis import given
from hypothesis import strategies as st

from fleet_tools.perception.third_person_view import EYE, HEIGHT, TARGET, WIDTH, look_at, project

coordinates = st.floats(-2, 2)
points = st.tuples(coordinates, coordinates, coordinates)


@given(points, points)
def test_a_camera_looks_at_its_target_upright(eye, target):
    toward = np.subtract(target, eye)
    if np.linalg.norm(np.cross(toward, [0, 0, 1])) < 1e-2:
        return  # straight up or down, "upright" means nothing
    X_WC = look_at(eye, target)
    p_CTarget = X_WC.inverse() @ np.array(target)
    np.testing.assert_allclose(p_CTarget[:2], 0.0, atol=1e-9)
    assert p_CTarget[2] > 0.0
    x_W, y_W, _ = X_WC.rotation().matrix().T
    assert abs(x_W[2]) < 1e-9
    assert y_W[2] < 0.0


@given(st.floats(0.1, 0.9), points)
def test_points_on_a_ray_from_the_eye_are_one_pixel(share, point):
    p_EyePoint = np.subtract(point, EYE)
    if p_EyePoint @ np.subtract(TARGET, EYE) < 0.1:
        return  # behind the eye
    np.testing.assert_allclose(project(EYE + share * p_EyePoint), project(np.array(point)))


def test_eye_looks_at_the_middle_of_the_picture():
    center = [(WIDTH - 1) / 2, (HEIGHT - 1) / 2]
    np.testing.assert_allclose(project(np.array(TARGET)), center, atol=1e-9)


@needs_gl
def test_pictures_show_what_happens(make):
    env = make(render_mode="rgb_array")
    env.reset(seed=0)
    first = env.render()
    assert (first.shape, first.dtype) == ((HEIGHT, WIDTH, 3), np.uint8)
    assert len(np.unique(first.reshape(-1, 3), axis=0)) > 100
    np.testing.assert_array_equal(env.render(), first)
    env.step(np.float32([0, 0, -1, 0, 0, 1]))
    assert (env.render() != first).any()


@needs_gl
def test_looking_changes_nothing(make):
    seen, unseen = make(render_mode="rgb_array"), make()
    for env in (seen, unseen):
        env.reset(seed=3)
    for _ in range(3):
        action = seen.action_space.sample()
        seen.step(action)
        seen.render()
        unseen.step(action)
        assert seen.state_digest() == unseen.state_digest()


def test_the_browser_view_changes_nothing_either(make):
    seen, unseen = make(render_mode="human"), make()
    for env in (seen, unseen):
        env.reset(seed=3)
        env.step(np.float32([0, 0, -1, 0, 0, 1]))
    assert seen.render() is None
    assert seen.state_digest() == unseen.state_digest()
