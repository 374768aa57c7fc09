"""The person as a policy: what was asked before an episode began."""

import numpy as np
import pytest

from fleet_tools.errors import PolicyError
from fleet_tools.studio.teleoperation.devices import DeviceCommand, Inputs
from fleet_tools.studio.teleoperation.operator_policy import OperatorPolicy, RealTime

UP = DeviceCommand("keyboard", np.array([0.0, 0.0, 1.0, 0.0, 0.0, 0.0]), "world")
AT_REST = {"end_effector_pose": np.eye(3, 4, dtype=np.float32)}
PAGE = "page"


class Unwatched:
    """Shows nothing."""

    def step(self) -> None:
        """Does nothing."""

    def between(self, fraction: float) -> None:
        """Does nothing."""


@pytest.fixture
def inputs() -> Inputs:
    inputs = Inputs()
    inputs.open_page(PAGE)
    return inputs


@pytest.fixture
def operator(inputs: Inputs) -> OperatorPolicy:
    operator = OperatorPolicy(inputs, np.full(6, 0.05), RealTime(inputs, 0.001), Unwatched())
    operator.reset()
    return operator


def test_enter_before_the_first_motion_ends_nothing_although_both_are_read_at_once(
    inputs: Inputs, operator: OperatorPolicy
):
    inputs.set_commands(PAGE, [], {"save"})
    inputs.set_commands(PAGE, [UP])
    np.testing.assert_array_equal(operator.act(AT_REST), UP.twist)
    inputs.set_commands(PAGE, [UP], {"save"})
    with pytest.raises(PolicyError, match="the person ended"):
        operator.act(AT_REST)
    assert operator.request is None  # what is to become of it is asked at the end


@pytest.mark.parametrize("request_", ["discard", "retry"])
def test_an_episode_that_did_not_begin_is_discarded_or_drawn_again(
    inputs: Inputs, operator: OperatorPolicy, request_
):
    inputs.set_commands(PAGE, [], {request_})
    with pytest.raises(PolicyError):
        operator.act(AT_REST)
    assert operator.request == request_
