"""The link of `examples/delayed_robot`: what arrives when, and in which order."""

import importlib.util
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.processes import ROOT


def _loaded() -> Any:
    path = ROOT / "examples" / "delayed_robot" / "link.py"
    spec = importlib.util.spec_from_file_location("delayed_robot_link", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LINK = _loaded()
Link = LINK.Link
STEPS = 30


class Naming:
    """Returns the number that it observes; notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def reset(self) -> None:
        self.asked.clear()

    def act(self, observation: Mapping[str, np.ndarray]) -> np.ndarray:
        self.asked.append(int(observation["step"]))
        return np.full(6, 1 + self.asked[-1], np.float32)


def executed(link: Any, seed: int = 0) -> list[int | None]:
    """Returns for each step the step of the observation that it acts on; None for zero actions."""
    policy = LINK.DelayedPolicy(Naming(), link, np.random.default_rng(seed))
    policy.reset()
    actions = [policy.act({"step": np.array(step)}) for step in range(STEPS)]
    return [int(action[0]) - 1 if action.any() else None for action in actions]


LINKS = st.builds(
    Link, st.integers(0, 5), st.integers(0, 4), st.sampled_from([0.0, 0.3, 0.9]), st.booleans()
)


@given(LINKS, st.integers(0, 1000))
def test_actions_are_late_enough_and_never_out_of_order(link: Any, seed: int) -> None:
    found = executed(link, seed)
    acted = [(step, sent) for step, sent in enumerate(found) if sent is not None]
    assert [sent for _, sent in acted] == sorted({sent for _, sent in acted})
    late = [step - sent for step, sent in acted]
    assert all(link.delay_steps <= each <= link.delay_steps + link.jitter_steps for each in late)
    assert executed(link, seed) == found


@pytest.mark.parametrize("delay", range(4))
def test_a_steady_link_shifts_every_action(delay: int) -> None:
    assert executed(Link(delay)) == [None] * delay + list(range(STEPS - delay))


def test_a_robot_that_waits_sees_the_outcome_before_it_asks_again() -> None:
    assert executed(Link(2, waits=True))[:9] == [None, None, 0, None, None, 3, None, None, 6]


def test_lost_messages_are_zero_actions() -> None:
    assert executed(Link(loss=1.0)) == [None] * STEPS
    lost = executed(Link(loss=0.5)).count(None)
    assert 0 < lost < STEPS
