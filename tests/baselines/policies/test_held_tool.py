"""Tools that delayed cameras show where the hand was: they are put where the hand holds them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydrake.math import RigidTransform
from scipy.spatial.transform import Rotation

from fleet_tools.baselines.policies.held_tool import HeldTool, in_other_frame

ROWS = 4
SEEDS = st.integers(0, 2**32 - 1)


def poses(rng: np.random.Generator, count: int, step_m: float = 0.02) -> np.ndarray:
    """Poses of a hand that moves at random, (count, 3, 4)."""
    positions = np.cumsum(rng.normal(scale=step_m, size=(count, 3)), 0)
    turns = Rotation.from_rotvec(np.cumsum(rng.normal(scale=0.05, size=(count, 3)), 0))
    return np.concatenate([turns.as_matrix(), positions[:, :, None]], -1)


def as_shown(tool: np.ndarray, X_WE: np.ndarray, delay: int) -> np.ndarray:
    """Keypoints as clouds show them: by Drake, and from the hand that held them to the present."""
    shown = []
    for t, now in enumerate(X_WE):
        then = X_WE[max(t - delay, 0)]
        X = RigidTransform(now).inverse() @ RigidTransform(then)
        shown.append(X.multiply(tool.T).T)
    return np.stack(shown)


def followed(shown: np.ndarray, X_WE: np.ndarray) -> np.ndarray:
    memory, found = HeldTool.begin(shown[:1], X_WE[:1]), []
    for points, X in zip(shown, X_WE, strict=True):
        held, memory = memory.follow(points[None], X[None])
        found.append(held[0])
    return np.stack(found)


@given(SEEDS)
def test_frames_are_exchanged_as_drake_does(seed):
    rng = np.random.default_rng(seed)
    A, B = poses(rng, 3), poses(rng, 3)
    points = rng.normal(size=(3, ROWS, 3))
    expected = [
        (RigidTransform(b).inverse() @ RigidTransform(a)).multiply(p.T).T
        for a, b, p in zip(A, B, points, strict=True)
    ]
    np.testing.assert_allclose(in_other_frame(points, A, B), expected, atol=1e-12)


@given(SEEDS)
@settings(max_examples=50)
def test_a_tool_that_is_shown_late_is_put_into_the_hand(seed):
    rng = np.random.default_rng(seed)
    tool, X_WE = rng.normal(scale=0.1, size=(ROWS, 3)), poses(rng, 12)
    held = followed(as_shown(tool, X_WE, 1), X_WE)
    np.testing.assert_allclose(held, np.broadcast_to(tool, held.shape), atol=1e-9)


@given(SEEDS)
@settings(max_examples=50)
def test_a_tool_that_is_shown_without_delay_stays_to_the_bit(seed):
    rng = np.random.default_rng(seed)
    tool, X_WE = rng.normal(scale=0.1, size=(ROWS, 3)), poses(rng, 12)
    shown = np.broadcast_to(tool, (12, ROWS, 3))
    np.testing.assert_array_equal(followed(shown, X_WE), shown)


@pytest.mark.parametrize("delay", [0, 1])
def test_errors_of_reading_hardly_hide_the_delay(delay):
    """Each keypoint is off by 4 mm in each step, and by 4 mm in all of them."""
    rng = np.random.default_rng(delay)
    right = []
    for _ in range(50):
        tool, X_WE = rng.normal(scale=0.1, size=(ROWS, 3)), poses(rng, 20)
        errors = rng.normal(scale=0.004, size=(20, ROWS, 3)) + rng.normal(
            scale=0.004, size=(ROWS, 3)
        )
        held = followed(as_shown(tool, X_WE, delay) + errors, X_WE)
        right.append(np.linalg.norm(held[5:] - tool, axis=-1).mean(-1) < 0.02)
    assert np.mean(right) > 0.98


def test_a_hand_that_rests_moves_nothing_and_episodes_are_told_apart():
    rng = np.random.default_rng(0)
    tool, moving = rng.normal(scale=0.1, size=(ROWS, 3)), poses(rng, 8)
    resting = np.repeat(moving[:1], 8, 0)
    late = as_shown(tool, moving, 1)
    both = np.stack([late, np.broadcast_to(tool, late.shape), late], 1)
    X_WE = np.stack([moving, resting, moving], 1)
    memory = HeldTool.begin(both[0], X_WE[0])
    for points, X in zip(both, X_WE, strict=True):
        held, memory = memory.follow(points, X)
        np.testing.assert_allclose(held, np.broadcast_to(tool, held.shape), atol=1e-9)
