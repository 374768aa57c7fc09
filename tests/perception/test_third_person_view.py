"""The third-person view: its geometry, its images, and Meshcat."""

from collections.abc import Callable

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rendering import needs_gl

from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.perception.display import (
    EYE,
    HEIGHT,
    MESHCAT_HOST,
    TARGET,
    WIDTH,
    look_at,
    open_meshcat,
    project,
)

Point = tuple[float, float, float]

coordinates = st.floats(-2, 2)
points = st.tuples(coordinates, coordinates, coordinates)
ACTION = np.array([0, 0, -1, 0, 0, 1], np.float32)


@given(points, points)
def test_a_camera_looks_at_its_target_upright(eye: Point, target: Point) -> None:
    towards = np.subtract(target, eye)
    if np.linalg.norm(np.cross(towards, [0, 0, 1])) < 1e-2:
        return  # straight up or down, "upright" means nothing
    X_WC = look_at(eye, target)
    p_CTarget = X_WC.inverse() @ np.array(target)
    np.testing.assert_allclose(p_CTarget[:2], 0.0, atol=1e-9)
    assert p_CTarget[2] > 0.0
    x_W, y_W, _ = X_WC.rotation().matrix().T
    assert abs(x_W[2]) < 1e-9
    assert y_W[2] < 0.0


@given(st.floats(0.1, 0.9), points)
def test_points_on_a_ray_from_the_eye_are_one_pixel(ratio: float, point: Point) -> None:
    p_EyePoint = np.subtract(point, EYE)
    if p_EyePoint @ np.subtract(TARGET, EYE) < 0.1:
        return  # behind the eye
    np.testing.assert_allclose(project(EYE + ratio * p_EyePoint), project(np.array(point)))


def test_the_camera_looks_at_the_middle_of_the_image() -> None:
    center = [(WIDTH - 1) / 2, (HEIGHT - 1) / 2]
    np.testing.assert_allclose(project(np.array(TARGET)), center, atol=1e-9)


@needs_gl
def test_images_show_the_present_state(make: Callable[..., ToolUseEnv]) -> None:
    env = make(render_mode="rgb_array")
    env.reset(seed=0)
    first = env.render()
    assert first is not None
    assert (first.shape, first.dtype) == ((HEIGHT, WIDTH, 3), np.uint8)
    assert len(np.unique(first.reshape(-1, 3), axis=0)) > 100
    again = env.render()
    assert again is not None
    np.testing.assert_array_equal(again, first)
    env.step(ACTION)
    assert (env.render() != first).any()


@needs_gl
def test_rendering_does_not_change_the_simulation(make: Callable[..., ToolUseEnv]) -> None:
    rendered, other = make(render_mode="rgb_array"), make()
    for env in (rendered, other):
        env.reset(seed=3)
    for _ in range(3):
        action = rendered.action_space.sample()
        rendered.step(action)
        rendered.render()
        other.step(action)
        assert rendered.state_digest() == other.state_digest()


def test_meshcat_does_not_change_the_simulation(make: Callable[..., ToolUseEnv]) -> None:
    shown, other = make(render_mode="human"), make()
    for env in (shown, other):
        env.reset(seed=3)
        env.step(ACTION)
    assert shown.render() is None
    assert shown.state_digest() == other.state_digest()


def test_meshcat_serves_this_machine_alone_unless_it_is_told_otherwise(
    monkeypatch: pytest.MonkeyPatch,
):
    process = psutil.Process()

    def listeners() -> set[tuple[str, int]]:
        return {
            (connection.laddr.ip, connection.laddr.port)
            for connection in process.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        }

    for host, expected in (("", {"127.0.0.1"}), ("0.0.0.0", {"0.0.0.0"})):
        if host:
            monkeypatch.setenv(MESHCAT_HOST, host)
        before = listeners()
        meshcat = open_meshcat()
        assert {ip for ip, _ in listeners() - before} == expected
        del meshcat
