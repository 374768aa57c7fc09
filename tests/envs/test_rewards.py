"""Dense rewards."""

import numpy as np
import pytest
from support.environments import drive, press


@pytest.fixture(scope="module", name="dense")
def _dense(make):
    return make(tool="claw", object="round_nail", reward="dense")


def test_dense_rewards_lie_in_0_1_and_rise_with_progress(dense):
    dense.reset(seed=0)
    results = drive(dense)
    rewards = np.array([result[1] for result in results])
    assert (rewards >= 0.0).all() and (rewards <= 1.0).all()
    assert (rewards[:-1] < 1.0).all() and rewards[-1] == 1.0
    progress = np.array([result[4]["progress"] for result in results])
    assert rewards[np.argmax(progress > 0.2)] > rewards[0]
    for result in results[:-1]:  # two thirds for progress, the rest for proximity
        assert 2 / 3 * result[4]["progress"] <= result[1] <= (1 + 2 * result[4]["progress"]) / 3


def test_dense_rewards_rise_as_the_tool_approaches_the_object(dense):
    dense.reset(seed=0)
    rewards, distances = [], []
    for _ in range(6):
        rewards.append(dense.step(press(dense, (0.0, 0.0, 0.03)))[1])
        state = dense.world_state()
        distances.append(np.linalg.norm(state.p_W_tool["head"] - state.p_W_object["head"]))
    assert np.array_equal(np.argsort(rewards), np.argsort(distances)[::-1])
