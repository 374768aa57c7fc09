"""A control loop has a command in every step, in time, and never one of another step."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

pytest.importorskip("websockets")

from support.served_policies import Scripted, constant, held, observation, serving

from fleet_tools.errors import ConfigError, PolicyError
from fleet_tools.policies.remote_policy import RealTimePolicy, RobotCommand

DEADLINE_S = 0.5
"""Long enough for an answer on a machine with other work, and short enough to be missed often."""


@contextmanager
def robot(act: Callable[[int], Any], max_misses: int = 3) -> Iterator[RealTimePolicy]:
    with serving(lambda: Scripted(act)) as server:
        policy = RealTimePolicy(server.url, DEADLINE_S, max_misses, timeout_s=30.0)
        policy.reset()
        yield policy
        policy.close()


def act(policy: RealTimePolicy) -> RobotCommand:
    command = policy.act(observation())
    assert np.isfinite(command.action).all() and command.action.dtype == np.float32
    assert command.status == "answered" or not command.action.any()
    assert (command.status == "answered") == (command.reason == "")
    assert command.seconds < DEADLINE_S + 10.0
    return command


def step_of(command: RobotCommand) -> int | None:
    """Returns the step of the policy whose action it is."""
    return round(100 * float(command.action[0])) - 1 if command.status == "answered" else None


def test_answers_in_time_are_commands():
    with robot(constant) as policy:
        assert [step_of(act(policy)) for _ in range(5)] == [0, 1, 2, 3, 4]


def test_while_a_late_answer_is_awaited_nothing_is_asked_and_it_is_not_taken_for_another():
    release = threading.Event()
    with robot(held({1}, release), max_misses=9) as policy:
        assert [step_of(act(policy)) for _ in range(4)] == [0, None, None, None]
        release.set()
        assert [step_of(act(policy)) for _ in range(3)] == [2, 3, 4]


def test_misses_count_in_a_row():
    release = threading.Event()
    with robot(held({0, 2}, release), max_misses=2) as policy:
        for _ in range(2):
            release.clear()
            assert act(policy).status == "missed"
            release.set()
            assert act(policy).status == "answered"


def test_after_some_misses_it_stops_until_it_is_reset():
    release = threading.Event()
    with robot(held({1}, release)) as policy:
        statuses = [act(policy).status for _ in range(4)]
        assert statuses == ["answered", "missed", "missed", "stopped"]
        release.set()
        time.sleep(0.3)  # the late answer has come, and changes nothing
        assert act(policy).status == "stopped"
        assert "3 misses in a row" in act(policy).reason
        policy.reset()
        assert [act(policy).status for _ in range(2)] == ["answered"] * 2


@pytest.mark.parametrize(
    "wrong", [np.full(6, np.nan, np.float32), np.zeros(5, np.float32), RuntimeError("broken")]
)
def test_what_is_no_action_stops_at_once(wrong):
    def script(step: int) -> Any:
        if step == 1 and isinstance(wrong, Exception):
            raise wrong
        return wrong if step == 1 else constant(step)

    with robot(script) as policy:
        assert [act(policy).status for _ in range(3)] == ["answered", "stopped", "stopped"]
        policy.reset()
        assert act(policy).status == "answered"


def test_actions_are_clipped():
    with robot(lambda step: np.array([-2, -1, -0.5, 0.5, 1, 1e30], np.float32)) as policy:
        assert act(policy).action.tolist() == [-1, -1, -0.5, 0.5, 1, 1]


@pytest.mark.parametrize("given", [{}, {"state": np.full(3, np.nan, np.float32)}, None])
def test_an_observation_that_is_none_stops(given):
    with robot(constant) as policy:
        assert policy.act(given).status == "stopped"
        policy.reset()
        assert act(policy).status == "answered"


def test_a_lost_server_stops():
    with serving(lambda: Scripted(constant)) as server:
        policy = RealTimePolicy(server.url, DEADLINE_S)
        assert act(policy).status == "stopped"  # reset comes first
        policy.reset()
        assert act(policy).status == "answered"
    command = act(policy)
    assert command.status == "stopped" and "server" in command.reason
    with pytest.raises(PolicyError):
        policy.reset()
    assert act(policy).status == "stopped"
    policy.close()


def test_the_deadline_is_shorter_than_the_control_period():
    with serving(lambda: Scripted(constant)) as server:
        for deadline_s in (0.0, -1.0, 5.0, 9.0, float("nan")):
            with pytest.raises(ConfigError, match="deadline between"):
                RealTimePolicy(server.url, deadline_s)
        with pytest.raises(ConfigError, match="at least 1 missed deadline"):
            RealTimePolicy(server.url, 0.1, max_misses=0)
