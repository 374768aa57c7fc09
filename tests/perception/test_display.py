"""Pictures for people: shadows, and what policies observe beside them."""

from collections.abc import Callable

import numpy as np
from support.rendering import needs_gl

from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.perception.display import third_person_view
from fleet_tools.perception.render_scene import RenderScene
from fleet_tools.perception.rendering import _KEY_LIGHT, render_depth, render_rgb

VIEW = third_person_view()


def shadow_of(p_W: np.ndarray) -> np.ndarray:
    """Returns the point of the table, z = 0, that a point keeps from the key light, (3,), m."""
    direction = np.array(_KEY_LIGHT[0])
    return p_W - direction * p_W[2] / direction[2]


@needs_gl
def test_the_table_is_darker_where_a_body_keeps_the_light_away(
    make: Callable[..., ToolUseEnv],
) -> None:
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


@needs_gl
def test_cameras_observe_the_same_with_and_without_pictures(
    make: Callable[..., ToolUseEnv],
) -> None:
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
