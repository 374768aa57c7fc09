"""Pages of other sites reach Meshcat: they change no episode, and its end is no outcome of one."""

from collections.abc import Callable

import gymnasium
import numpy as np
import pytest
from support.clicking import wait_until
from support.strangers import open_socket, viser_message
from websockets.sync.connection import Connection

from fleet_tools.envs.tool_use_env import ToolUseEnv, unwrap
from fleet_tools.errors import RenderServerError

ACTION = np.array([0, 0, -1, 0, 0, 1], np.float32)

UNDERSTOOD = [
    {"type": "button", "name": "Stop Simulation"},
    {"type": "slider", "name": "time", "value": 1.0},
    {"type": "camera_pose", "camera_pose": np.eye(4).ravel().tolist(), "is_perspective": True},
    {"type": "gamepad", "gamepad": {"index": 0, "button_values": [1.0], "axes": [1.0]}},
    {"type": "set_property", "path": "/drake", "property": "visible", "value": False},
    {"type": "delete", "path": "/drake"},
]
"""Messages of Meshcat's own page, and of Drake to it."""

NO_ROTATION = {"type": "camera_pose", "camera_pose": [1.0] * 16, "is_perspective": True}
"""A message that ends Meshcat, up to Drake 1.58."""


def stranger(env: ToolUseEnv) -> Connection:
    assert env.meshcat is not None
    return open_socket(env.meshcat.web_url(), "/", origin="http://example.org", max_size=None)


def say(page: Connection, message: dict) -> None:
    content = dict(message)
    page.send(viser_message(content.pop("type"), **content))


@pytest.mark.slow
def test_they_change_no_bit_of_an_episode(make: Callable[..., ToolUseEnv]):
    shown, other = make(render_mode="human"), make()
    for env in (shown, other):
        env.reset(seed=0)
    with stranger(shown) as page:
        for message in UNDERSTOOD:
            say(page, message)
            one, another = (env.step(ACTION) for env in (shown, other))
            for name, value in one[0].items():
                np.testing.assert_array_equal(value, another[0][name])
            assert one[4]["outcome"] == another[4]["outcome"]


def test_the_end_of_meshcat_is_told_and_ends_no_episode():
    env = unwrap(gymnasium.make("FleetTools/Hammer-v0", render_mode="human"))
    env.reset(seed=0)
    meshcat = env.meshcat
    assert meshcat is not None
    say(stranger(env), NO_ROTATION)

    def ended() -> bool:
        try:
            meshcat.web_url()
        except RuntimeError:
            return True
        return False

    try:
        wait_until(ended, "the end of Meshcat", 10)
    except AssertionError:
        pytest.skip("this Drake reads the message")
    for act in (lambda: env.step(ACTION), lambda: env.reset(seed=0)):
        with pytest.raises(RenderServerError, match="Close pages of other programs"):
            act()
