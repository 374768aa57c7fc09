"""Pictures for people: the third-person view, shadows, Meshcat, and what is observed beside."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rendering import needs_gl

from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.errors import ConfigError, UnknownNameError
from fleet_tools.perception.display import (
    HEIGHT,
    MESHCAT_HOST,
    TARGET,
    WIDTH,
    look_at,
    open_meshcat,
    third_person_view,
)
from fleet_tools.perception.render_scene import RenderScene
from fleet_tools.perception.rendering import _KEY_LIGHT, render_depth, render_rgb

VIEW = third_person_view()


def shadow_of(p_W: np.ndarray) -> np.ndarray:
    """Returns the point of the table, z = 0, that a point keeps from the key light, (3,), m."""
    direction = np.array(_KEY_LIGHT[0])
    return p_W - direction * p_W[2] / direction[2]


@needs_gl
def test_the_table_is_darker_where_a_body_keeps_the_light_away(make):
    env = make(render_mode="rgb_array", randomization="off")
    env.reset(seed=0)
    picture = env.render()
    assert picture is not None
    without = RenderScene(env.simulation.world)
    without.enter(env.simulation.world)
    without.paint(env.scene)
    query = without.query(env.simulation.query())
    depth = render_depth(query, VIEW.pinhole, VIEW.X_WC, (0.05, 10.0))
    observed = render_rgb(query, VIEW.pinhole, VIEW.X_WC)
    bare = np.array([0.3, -0.45, 0.0])  # in front of the arm, to whose back the shadows fall
    shadows = [shadow_of(p_W) for p_W in env.world_state().p_W_tool.values() if p_W[2] > 0.05]

    def brightness(p_W: np.ndarray) -> float | None:
        """Returns the picture's brightness relative to the observed one; None if p is hidden."""
        u, v = VIEW.project(p_W).round().astype(int)
        if abs(depth[v, u] - (VIEW.X_WC.inverse() @ p_W)[2]) > 0.01:
            return None
        return float(picture[v, u].sum() / observed[v, u].sum())

    lit = brightness(bare)
    shaded = [value for value in map(brightness, shadows) if value is not None]
    assert lit is not None and shaded
    assert max(shaded) < 0.75 * lit


@pytest.mark.slow
@needs_gl
def test_cameras_observe_the_same_with_and_without_pictures(make):
    mode = {"obs_mode": "rgbd", "camera_size": (64, 48)}
    shown, other = make(render_mode="rgb_array", **mode), make(**mode)
    for seed in (0, 1):
        one, _ = shown.reset(seed=seed)
        shown.render()
        two, _ = other.reset(seed=seed)
        for action in (np.zeros(6, np.float32), np.full(6, 0.3, np.float32)):
            assert one.keys() == two.keys()
            for name in one:
                np.testing.assert_array_equal(one[name], two[name])
            one, *_ = shown.step(action)
            shown.render()
            two, *_ = other.step(action)


# --- The third-person view ------------------------------------------------------------------

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


def test_the_camera_looks_at_the_middle_of_the_image() -> None:
    center = [(WIDTH - 1) / 2, (HEIGHT - 1) / 2]
    np.testing.assert_allclose(VIEW.project(np.array(TARGET)), center, atol=1e-9)


@needs_gl
def test_the_argument_of_make_sizes_the_picture() -> None:
    def picture(**kwargs: Any) -> Any:
        env = gymnasium.make("FleetTools/Hammer-v0", render_mode="rgb_array", **kwargs)
        env.reset(seed=0)
        return env.render()

    small = picture(render_size=(WIDTH // 2, HEIGHT // 2))
    assert small.shape == (HEIGHT // 2, WIDTH // 2, 3)
    pooled = picture().reshape(HEIGHT // 2, 2, WIDTH // 2, 2, 3).mean((1, 3))
    assert np.abs(pooled - small).mean() < 3  # the same view


def test_whoever_looks_for_the_size_of_the_picture_is_told_where_it_is() -> None:
    for guess in ("width", "height", "size", "image_size", "camera_width", "resolution"):
        with pytest.raises(UnknownNameError, match=r"render_size=\(width, height\) sizes"):
            EnvSpec.of("hammer", **{guess: 320}).make()
    env = gymnasium.make("FleetTools/Hammer-v0")
    env.reset(seed=0)
    calls: list[Any] = [{"width": 320}, {"mode": "rgb_array"}]
    for call in calls:
        with pytest.raises(ConfigError, match=r"render\(\) takes no arguments.* render_size="):
            env.render(**call)
    with pytest.warns(UserWarning, match=r'render\(\) draws nothing without .*"rgb_array"'):
        assert env.render() is None


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


@pytest.mark.parametrize("mode", [pytest.param("rgb_array", marks=needs_gl), "human"])
def test_pictures_and_meshcat_do_not_change_the_simulation(make, mode):
    shown, other = make(render_mode=mode), make()
    for env in (shown, other):
        env.reset(seed=3)
    for _ in range(3):
        shown.step(ACTION)
        assert (shown.render() is None) == (mode == "human")
        other.step(ACTION)
        assert shown.state_digest() == other.state_digest()


def test_meshcat_serves_this_machine_alone_unless_it_is_told_otherwise(monkeypatch):
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
