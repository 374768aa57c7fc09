"""Keyboard, gamepad and gizmo: actions in their bounds, in the asked direction."""

from typing import get_args

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from support.planning_problems import poses, turns, vectors

from fleet_tools.envs.array_spec import check_action
from fleet_tools.robot.pose_delta import displace, displacement
from fleet_tools.studio.teleoperation import devices
from fleet_tools.studio.teleoperation.devices import (
    DeviceCommand,
    Frame,
    Request,
    action_of,
    within_bounds,
)
from fleet_tools.studio.teleoperation.operator_policy import action_toward
from fleet_tools.studio.viser_links import pose_of

entries = st.floats(-1.0, 1.0)
twists = st.lists(entries, min_size=6, max_size=6).map(np.array)
frames = st.sampled_from(get_args(Frame))
commands = st.builds(DeviceCommand, st.just("test"), twists, frames)
scales = st.tuples(st.floats(0.01, 0.1), st.floats(0.05, 0.5)).map(lambda s: np.repeat(s, 3))
numbers = st.floats(allow_nan=False, allow_infinity=False)


def is_action(action: np.ndarray) -> bool:
    """Returns whether the environment executes an action as it is, but for rounding."""
    executed, clipped = check_action(action)
    space = spaces.Box(-1.0, 1.0, (6,), np.float32)
    return action in space and not clipped and np.abs(executed - action).max() <= 1 / 8192


# --- Commands -------------------------------------------------------------------------------


@given(st.lists(commands, max_size=4), commands, turns)
def test_devices_in_any_order_act_within_the_bounds_and_opposites_cancel(several, one, R_WE):
    action = action_of(several, R_WE.matrix())
    assert is_action(action)
    np.testing.assert_allclose(action_of(several[::-1], R_WE.matrix()), action, atol=1e-6)
    opposite = DeviceCommand("other", -one.twist, one.frame)
    assert not action_of([one, opposite], R_WE.matrix()).any()


@given(twists, turns)
def test_commands_in_the_hand_s_axes_are_the_action_itself(twist, R_WE):
    action = action_of([DeviceCommand("test", twist, "end_effector")], R_WE.matrix())
    np.testing.assert_array_equal(action, twist.astype(np.float32))


@given(vectors, vectors, turns)
def test_motions_in_the_world_s_axes_are_the_same_for_every_orientation(v, w, R_WE):
    twist = np.clip(np.concatenate([v, w]), -1, 1)
    action = action_of([DeviceCommand("test", twist, "world")], R_WE.matrix()).astype(float)
    for asked, done in zip(twist.reshape(2, 3), action.reshape(2, 3), strict=True):
        done_W = R_WE.matrix() @ done
        np.testing.assert_allclose(np.cross(asked, done_W), 0, atol=1e-5)  # parallel
        assert asked @ done_W >= 0
        assert np.linalg.norm(done_W) <= np.linalg.norm(asked) + 1e-5


@given(st.lists(st.floats(-1e6, 1e6), min_size=6, max_size=6).map(np.array))
def test_bounds_shorten_and_keep_the_direction(motion):
    action = within_bounds(motion)
    assert is_action(action)
    for whole, part in zip(motion.reshape(2, 3), action.reshape(2, 3), strict=True):
        largest = np.abs(whole).max()
        np.testing.assert_allclose(part, whole / max(largest, 1.0), rtol=1e-6, atol=1e-30)


# --- Keyboard -------------------------------------------------------------------------------

pressed = st.sets(
    st.sampled_from([*devices.MOTIONS, *devices.SLOW, *devices.KEY_REQUESTS, "KeyZ", "F5"])
)


@given(pressed, frames, turns)
def test_keys_act_within_the_bounds_slower_with_shift_and_not_at_all_released(names, frame, R_WE):
    assert is_action(action_of([devices.command_of_keys(names, frame)], R_WE.matrix()))
    fast = devices.command_of_keys(names - devices.SLOW, frame).twist
    slow = devices.command_of_keys(names | devices.SLOW, frame).twist
    np.testing.assert_array_equal(slow, devices.SLOW_FACTOR * fast)
    released = devices.command_of_keys(names - devices.MOTIONS.keys(), frame)
    assert not released.moves and not action_of([released], np.eye(3)).any()


@pytest.mark.parametrize("entry", range(6))
def test_two_keys_move_each_entry_and_cancel(entry):
    forth, back = (
        next(key for key, motion in devices.MOTIONS.items() if motion == (entry, sign))
        for sign in (1.0, -1.0)
    )
    unit = np.eye(6)[entry]
    np.testing.assert_array_equal(devices.command_of_keys({forth}, "world").twist, unit)
    np.testing.assert_array_equal(devices.command_of_keys({back}, "world").twist, -unit)
    assert not devices.command_of_keys({forth, back}, "world").moves


def test_every_request_has_a_key_and_a_button():
    every = set(get_args(Request))
    assert devices.requests_of_keys(devices.KEY_REQUESTS) == every
    assert devices.requests_of_gamepad([1.0] * 17) == every


# --- Gamepad --------------------------------------------------------------------------------


@given(st.lists(numbers, max_size=8), st.lists(numbers, max_size=20), frames)
def test_any_gamepad_gives_a_command_within_the_bounds(axes, buttons, frame):
    twist = devices.command_of_gamepad(axes, buttons, frame).twist
    assert np.isfinite(twist).all()
    assert np.abs(twist).max() <= 1


@given(
    st.lists(st.floats(-devices.DEAD_ZONE, devices.DEAD_ZONE), max_size=4),
    st.lists(st.floats(0, devices.DEAD_ZONE), max_size=17),
    st.lists(entries, min_size=4, max_size=4),
)
def test_a_gamepad_at_rest_does_not_move_the_arm_and_opposites_cancel(axes, buttons, sticks):
    def command(axes, buttons) -> DeviceCommand:
        return devices.command_of_gamepad(axes, buttons, "world")

    assert not command(axes, buttons).moves
    opposite = command([-stick for stick in sticks], [])
    np.testing.assert_array_equal(command(sticks, []).twist, -opposite.twist)
    assert not command([], [0, 0, 0, 0, 1, 1, 1, 1]).moves  # both triggers and both bumpers


@given(entries, entries)
def test_deflections_are_odd_and_increase(one, other):
    assert devices.deflection(-one) == -devices.deflection(one)
    low, high = sorted([one, other])
    assert devices.deflection(low) <= devices.deflection(high)
    assert devices.deflection(1.0) == 1.0
    # Continuous: no step at the edge of the dead zone.
    assert devices.deflection(high) - devices.deflection(low) <= (high - low) * 1.2 + 1e-12


# --- Gizmo ----------------------------------------------------------------------------------


@given(poses, poses, scales)
def test_the_action_leads_towards_the_target(X_WE, X_WT, scale):
    np.testing.assert_allclose(action_toward(X_WE, X_WE, scale), 0, atol=1e-6)
    action = action_toward(X_WE, X_WT, scale)
    assert is_action(action)
    X_WF = displace(X_WE, action.astype(float) * scale)
    before, after = (displacement(X, X_WT).reshape(2, 3) for X in (X_WE, X_WF))
    lengths_before, lengths_after = (np.linalg.norm(d, axis=1) for d in (before, after))
    moves = np.abs(action).reshape(2, 3).max(axis=1) * scale[[0, 3]]
    # By what it moves, it comes nearer: in a straight line, and about one axis.
    assert (lengths_after <= lengths_before - moves + 1e-6).all()


@given(poses, st.lists(st.floats(-0.99, 0.99), min_size=6, max_size=6), scales)
def test_a_target_within_one_step_is_reached(X_WE, delta, scale):
    X_WT = displace(X_WE, np.array(delta) * scale)
    reached = displace(X_WE, action_toward(X_WE, X_WT, scale).astype(float) * scale)
    assert reached.IsNearlyEqualTo(X_WT, 1e-6)


@given(poses, st.floats(0.1, 10.0), st.sampled_from([-1, 1]))
def test_quaternions_of_any_length_and_sign_are_poses(X_W, length, sign):
    wxyz = sign * length * X_W.rotation().ToQuaternion().wxyz()
    assert pose_of(X_W.translation(), wxyz).IsNearlyEqualTo(X_W, 1e-9)


@pytest.mark.parametrize(
    ("position", "wxyz"),
    [
        *(([0, 0, odd], [1, 0, 0, 0]) for odd in (np.nan, np.inf)),
        *(([0, 0, 0], [odd, 0, 0, 0]) for odd in (0, np.nan, np.inf)),
    ],
)
def test_what_is_no_pose_is_refused(position, wxyz):
    with pytest.raises(ValueError, match="no pose"):
        pose_of(np.array(position, float), np.array(wxyz, float))
