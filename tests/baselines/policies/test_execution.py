"""What is executed of chunks of actions."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from fleet_tools.baselines.policies.part_configs import (
    EnsembleConfig,
    ExecutionConfig,
    HorizonConfig,
)
from fleet_tools.baselines.policies.policy import Chunks, ensemble, ensemble_weights, execute

DECAYS = st.floats(0, 5)


def episode(config: ExecutionConfig, chunks: np.ndarray) -> np.ndarray:
    """Returns the actions of an episode in which chunks (T, n, 6) are predicted, (T, 6)."""
    actions, memory = [], ()
    for chunk in chunks:
        action, memory = execute(config, memory, chunk)
        actions.append(action)
    return np.array(actions)


def predicted(steps: int, size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(steps, size, 6)).astype(np.float32)


@given(count=st.integers(1, 50), decay=DECAYS)
def test_weights_are_a_mean_in_which_the_oldest_counts_most(count, decay):
    weights = ensemble_weights(count, decay)
    assert weights.sum() == pytest.approx(1)
    assert (weights > 0).all() and (np.diff(weights) <= 0).all()


@given(
    action=npst.arrays(np.float32, 6, elements=st.floats(-1, 1, width=32)),
    size=st.integers(1, 9),
    decay=DECAYS,
)
def test_the_mean_of_equal_predictions_is_that_prediction(action, size, decay):
    chunks = np.tile(action, (12, size, 1))
    actions = episode(EnsembleConfig(decay=decay), chunks)
    np.testing.assert_allclose(actions, np.tile(action, (12, 1)), rtol=1e-6, atol=1e-7)


@given(size=st.integers(1, 6), decay=DECAYS, seed=st.integers(0, 99))
def test_predictions_for_a_step_are_those_of_the_last_chunks(size, decay, seed):
    chunks = predicted(10, size, seed)
    for t, action in enumerate(episode(EnsembleConfig(decay=decay), chunks)):
        sums, total = np.zeros(6), 0.0
        for i, then in enumerate(range(max(0, t - size + 1), t + 1)):
            weight = np.exp(-decay * i)
            sums, total = sums + weight * chunks[then, t - then], total + weight
        np.testing.assert_allclose(action, sums / total, rtol=1e-4, atol=1e-6)


@given(seed=st.integers(0, 99), decay=DECAYS)
def test_a_chunk_of_one_action_is_executed_bit_for_bit(seed, decay):
    chunks = predicted(7, 1, seed)
    for config in (EnsembleConfig(decay=decay), HorizonConfig(steps=1)):
        actions = episode(config, chunks)
        assert actions.dtype == np.float32
        np.testing.assert_array_equal(actions, chunks[:, 0])


@given(size=st.integers(1, 6), steps=st.integers(1, 6), seed=st.integers(0, 99))
def test_with_a_horizon_the_first_actions_of_every_so_many_chunks_are_executed(size, steps, seed):
    steps = min(steps, size)
    chunks = predicted(13, size, seed)
    expected = [chunks[t - t % steps, t % steps] for t in range(13)]
    np.testing.assert_array_equal(episode(HorizonConfig(steps=steps), chunks), expected)


def test_no_chunk_is_changed():
    chunks: Chunks = tuple(predicted(3, 3))
    before = [chunk.copy() for chunk in chunks]
    ensemble(chunks, 0.5)
    np.testing.assert_array_equal(before, chunks)
