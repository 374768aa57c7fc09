"""Scenes with a push: the object moves at its step, and nothing else changes."""

import numpy as np
import pytest
from support.environments import same

from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.sim.scene import Push, Scene
from fleet_tools.sim.world_state import WorldState

PUSH = Push(time_s=0.33, translation_m=(0.015, -0.01, 0.0))
ACTIONS = np.random.default_rng(0).uniform(-1, 1, (6, 6)).astype(np.float32)


def states(env: ToolUseEnv, scene: Scene) -> list[WorldState]:
    """Returns the state at the start of the scene and after each of the `ACTIONS`."""
    env.reset(options={"scene": scene})
    result = [env.world_state()]
    for action in ACTIONS:
        env.step(action)
        result.append(env.world_state())
    return result


@pytest.fixture(name="scene")
def _scene(hammer):
    hammer.reset(seed=0)
    return hammer.scene


def test_a_push_moves_the_object_at_its_step_and_nothing_else(hammer, scene):
    still = states(hammer, scene)
    pushed = states(hammer, scene.model_copy(update={"push": PUSH}))
    for step, (one, other) in enumerate(zip(still, pushed, strict=True)):
        moved = np.array(PUSH.translation_m) * (step >= 3)
        for name, p_W in one.p_W_object.items():
            np.testing.assert_allclose(other.p_W_object[name], p_W + moved, atol=1e-12)
        np.testing.assert_array_equal(other.q, one.q)
    for one, again in zip(still, states(hammer, scene), strict=True):  # the next scene is as it was
        np.testing.assert_array_equal(again.p_W_object["head"], one.p_W_object["head"])


def test_states_before_and_after_a_push_continue_bit_for_bit(hammer, scene):
    pushed = scene.model_copy(update={"push": PUSH})
    hammer.reset(options={"scene": pushed})
    saved, expected = [], []
    for action in ACTIONS:
        saved.append(hammer.get_state())
        expected.append((hammer.step(action)[0], hammer.state_digest()))
    for start, state in enumerate(saved):
        hammer.reset(seed=1)
        hammer.set_state(state)
        for action, (observation, digest) in zip(ACTIONS[start:], expected[start:], strict=True):
            assert same(hammer.step(action)[0], observation)
            assert hammer.state_digest() == digest
