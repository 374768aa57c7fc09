"""Devices and pages: the last word counts, closed pages say nothing, steps come in time."""

import time
from unittest.mock import Mock

import numpy as np
import pytest
from pydrake.math import RigidTransform

from fleet_tools.errors import PolicyError
from fleet_tools.studio.teleoperation import devices as inputs_module
from fleet_tools.studio.teleoperation.devices import DeviceCommand, Inputs
from fleet_tools.studio.teleoperation.operator_policy import OperatorPolicy, RealTime

FORWARD = DeviceCommand("keyboard", np.eye(6)[0], "world")
REST = DeviceCommand("keyboard", np.zeros(6), "world")
PERIOD_S = 0.02


@pytest.fixture(name="inputs")
def _inputs() -> Inputs:
    return Inputs()


def test_a_silent_device_is_not_believed_for_long(inputs, monkeypatch):
    inputs.set_commands("page", [FORWARD])
    monkeypatch.setattr(inputs_module, "FRESH_S", 0.05)
    assert inputs.given().moves
    time.sleep(0.06)
    assert not inputs.given().moves


def test_other_devices_take_over_from_the_gizmo(inputs):
    inputs.drag(RigidTransform([1, 2, 3]))
    inputs.set_commands("page", [REST])
    assert inputs.given().target is not None
    inputs.set_commands("page", [FORWARD])
    inputs.set_commands("page", [REST])
    assert inputs.given().target is None


def test_a_key_that_is_tapped_between_two_steps_moves_for_one_or_is_forgotten(inputs):
    def tap() -> None:
        inputs.set_commands("page", [FORWARD])
        inputs.set_commands("page", [REST])

    tap()
    assert inputs.given().commands == (FORWARD,)
    assert [inputs.take().commands for _ in range(2)] == [(FORWARD,), ()]
    for forget in (inputs.clear, lambda: inputs.close_page("page")):  # of the last episode
        tap()
        forget()
        assert not inputs.given().moves


def test_a_key_that_is_held_moves_until_it_is_released(inputs):
    for _ in range(3):  # pages repeat themselves
        inputs.set_commands("page", [FORWARD])
        assert inputs.take().commands == (FORWARD,)
        inputs.set_commands("page", [FORWARD])
    inputs.set_commands("page", [REST])
    assert not inputs.take().moves


def test_requests_are_answered_once_and_in_order(inputs):
    inputs.set_commands("one", [], ["retry"])
    inputs.set_commands("other", [], ["save"])
    assert [inputs.take_request() for _ in range(3)] == ["retry", "save", None]
    inputs.set_commands("one", [], ["save"])
    inputs.clear()
    assert inputs.take_request() is None


def take(pace: RealTime, steps: int) -> float:
    """Takes steps as soon as they are due; returns the seconds that it took."""
    started = time.monotonic()
    while steps:
        if pace.due():
            steps -= 1
        else:
            time.sleep(min(pace.remaining_s, 0.001))
    return time.monotonic() - started


def test_steps_come_in_real_time(inputs):
    inputs.open_page("page")
    pace = RealTime(inputs, PERIOD_S)
    assert not pace.due()  # nobody moves
    assert pace.phase == "ready"
    inputs.drag(RigidTransform())
    assert take(pace, 21) >= 20 * PERIOD_S - 1e-3  # the first one at once
    assert pace.phase == "running"
    assert pace.real_time_factor is not None
    assert pace.real_time_factor <= 1.01


def test_lost_time_is_not_made_up_for(inputs):
    inputs.open_page("page")
    inputs.drag(RigidTransform())
    pace = RealTime(inputs, PERIOD_S)
    take(pace, 2)
    time.sleep(5 * PERIOD_S)  # a simulation that is slower than the clock
    assert pace.fraction == 1.0
    assert take(pace, 4) >= 2 * PERIOD_S
    assert pace.real_time_factor is not None
    assert pace.real_time_factor < 0.9


def test_no_step_comes_while_nobody_looks_on(inputs):
    inputs.open_page("page")
    inputs.drag(RigidTransform())
    pace = RealTime(inputs, PERIOD_S)
    take(pace, 2)
    inputs.close_page("page")
    time.sleep(2 * PERIOD_S)
    assert not pace.due()
    assert pace.phase == "paused"
    inputs.open_page("another")
    assert pace.due()
    assert pace.phase == "running"


def test_the_clock_begins_with_the_first_motion(inputs):
    pace = RealTime(inputs, PERIOD_S)
    inputs.drag(RigidTransform())
    assert not pace.due()  # no page
    inputs.open_page("page")
    assert pace.due()
    pace.begin()
    inputs.clear()
    assert not pace.due()
    assert pace.real_time_factor is None


UP = DeviceCommand("keyboard", np.array([0.0, 0.0, 1.0, 0.0, 0.0, 0.0]), "world")
AT_REST = {"end_effector_pose": np.eye(3, 4, dtype=np.float32)}
PAGE = "page"


@pytest.fixture
def operator(inputs: Inputs) -> OperatorPolicy:
    inputs.open_page(PAGE)
    operator = OperatorPolicy(inputs, np.full(6, 0.05), RealTime(inputs, 0.001), Mock(), Mock())
    operator.reset()
    return operator


def test_enter_before_the_first_motion_ends_nothing_although_both_are_read_at_once(
    inputs, operator
):
    inputs.set_commands(PAGE, [], {"save"})
    inputs.set_commands(PAGE, [UP])
    np.testing.assert_array_equal(operator.act(AT_REST), UP.twist)
    inputs.set_commands(PAGE, [UP], {"save"})
    with pytest.raises(PolicyError, match="the person ended"):
        operator.act(AT_REST)
    assert operator.request is None  # what is to become of it is asked at the end


@pytest.mark.parametrize("request_", ["discard", "retry"])
def test_an_episode_that_did_not_begin_is_discarded_or_drawn_again(inputs, operator, request_):
    inputs.set_commands(PAGE, [], {request_})
    with pytest.raises(PolicyError):
        operator.act(AT_REST)
    assert operator.request == request_
