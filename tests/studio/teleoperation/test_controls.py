"""What pages say: read strictly, with requests once for each press."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_tools.errors import ConfigError
from fleet_tools.studio.teleoperation.page_server import Controls, GamepadState, read_controls

A_SAVES = GamepadState(axes=(), buttons=(1.0,))

names = st.sampled_from(["KeyW", "KeyT", "Enter", "Backspace", "ShiftLeft"])
states = st.builds(
    Controls,
    keys=st.frozensets(names),
    gamepad=st.sampled_from([None, A_SAVES, GamepadState(axes=(0.5,), buttons=(0.0,))]),
    frame=st.sampled_from(["world", "end_effector"]),
)


@given(states)
def test_controls_are_read_as_they_were_written(controls):
    assert read_controls(controls.to_json()) == controls


@given(states)
def test_what_is_held_is_no_new_request(controls):
    assert controls.requests(before=controls) == set()


@given(st.lists(states, min_size=1))
def test_a_key_asks_once_for_each_press(history):
    before, presses, asked = Controls(), 0, 0
    for state in history:
        held, was = ("Enter" in each.keys or each.gamepad == A_SAVES for each in (state, before))
        presses += held and not was
        asked += "save" in state.requests(before)
        before = state
    assert asked == presses


def test_a_click_asks_each_time():
    click = Controls(clicked="retry")
    assert click.requests(before=click) == {"retry"}


@pytest.mark.parametrize(
    "message",
    [
        "",
        "none",
        b"\xff",
        "[" * 2000,
        "[]",
        "null",
        "{}}",
        '{"keys": "KeyW"}',
        '{"keys": [1]}',
        '{"frame": "camera"}',
        '{"clicked": "delete"}',
        '{"other": 1}',
        '{"type": "status"}',
        '{"gamepad": {"axes": [NaN], "buttons": []}}',
        '{"gamepad": {"axes": [1e999], "buttons": []}}',
        '{"gamepad": {"axes": [true], "buttons": []}}',
        '{"gamepad": {"axes": []}}',
        json.dumps({"keys": [f"Key{k}" for k in range(100)]}),
        json.dumps({"gamepad": {"axes": [0] * 100, "buttons": []}}),
    ],
)
def test_other_messages_are_refused(message):
    with pytest.raises(ConfigError, match="message of a page"):
        read_controls(message)
