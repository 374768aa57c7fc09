from dataclasses import fields

import numpy as np
import pytest
from conftest import press_until_sliding

from fleet_tools.observation import Moment, observation_space, observe


@pytest.fixture(scope="module", name="contact")
def _contact(hammer):
    """In the middle of contact, every sense has something to say."""
    press_until_sliding(hammer, seed=1)
    return hammer.get_state()


@pytest.fixture(name="env")
def _env(hammer, contact):
    hammer.set_state(contact)
    return hammer


@pytest.fixture(name="observation")
def _observation(env):
    return observe(env.senses, Moment(env.world_state()))


def test_the_observation_is_in_its_space(env, observation):
    space = observation_space(env.senses)
    assert space.contains(observation)
    assert all(value.dtype == np.float32 for value in observation.values())


def test_the_observation_says_what_is_so(env, observation):
    state = env.world_state()
    said = {
        "joint_position": state.q,
        "joint_velocity": state.v,
        "joint_external_torque": state.tau_external,
        "end_effector_pose": state.X_WE.GetAsMatrix34(),
        "end_effector_wrench": state.F_E,
    }
    for name, value in said.items():
        np.testing.assert_array_equal(observation[name], np.float32(value))


@pytest.mark.parametrize("kind", ["tool", "object"])
def test_keypoints_are_in_the_end_effector_in_the_order_of_the_task(env, observation, kind):
    state = env.world_state()
    p_W = getattr(state, f"p_W_{kind}")
    names = getattr(env.task.keypoints, kind)
    R_WE, p_WE = state.X_WE.rotation().matrix(), state.X_WE.translation()
    for row, name in zip(observation[f"{kind}_keypoints"], names, strict=True):
        np.testing.assert_allclose(p_WE + R_WE @ row, p_W[name], atol=1e-6)


def test_the_tools_keypoints_do_not_move_in_the_hand(env, observation):
    env.step(np.zeros(6, np.float32))
    later = observe(env.senses, Moment(env.world_state()))
    np.testing.assert_allclose(later["tool_keypoints"], observation["tool_keypoints"], atol=1e-6)


def test_contact_is_felt_in_every_sense_of_force(observation):
    assert np.linalg.norm(observation["joint_external_torque"]) > 1.0
    assert np.linalg.norm(observation["end_effector_wrench"][3:]) > 5.0


def test_wrench_and_joint_torques_are_one_force(env):
    state = env.world_state()
    model = env._simulation.world.arm_model
    model.set_state(np.r_[state.q, state.v])
    R_WE = state.X_WE.rotation()
    F_W = np.concatenate([R_WE @ state.F_E[:3], R_WE @ state.F_E[3:]])
    np.testing.assert_allclose(model.jacobian().T @ F_W, state.tau_external, atol=1e-6)


def test_an_observation_shares_no_memory_with_the_state(env, observation):
    state = env.world_state()
    arrays = [getattr(state, field.name) for field in fields(state)]
    for array in (array for array in arrays if isinstance(array, np.ndarray)):
        assert not any(np.shares_memory(array, value) for value in observation.values())
