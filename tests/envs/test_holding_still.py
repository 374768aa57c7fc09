"""A hand that gets no motion stays, whatever it carries, and does not press harder and harder."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydrake.math import RigidTransform

from fleet_tools.envs.array_spec import ACTION_STEPS
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.robot.controller import NEAR_M, NEAR_RAD, Reference
from fleet_tools.robot.pose_delta import displace, displacement

STILL = np.zeros(6, np.float32)
TEN_SECONDS = 60


@pytest.fixture(scope="module", name="env")
def _env(make) -> ToolUseEnv:
    return make(
        "FleetTools/Spatula-v0",
        tool="turner",
        object="puck",
        randomization={"tool_in_hand": False},  # a level blade
    )


def gap(env: ToolUseEnv) -> np.ndarray:
    """Returns the displacement from the hand to the end of its reference, (6,), m and rad."""
    simulation = env.simulation
    return displacement(simulation.end_effector_pose(), simulation.snapshot().reference.end)


def test_a_hand_that_carries_the_heaviest_slab_stays(env: ToolUseEnv):
    env.reset(seed=1)
    expert = ExpertPolicy(env)
    expert.reset()
    observation = {}
    while env.get_state().outcome == "running":
        observation, *_ = env.step(expert.act(observation))
    assert env.get_state().outcome == "success"
    simulation = env.simulation
    before = simulation.end_effector_pose()
    for _ in range(TEN_SECONDS):
        simulation.step(STILL.astype(float))
    moved = displacement(before, simulation.end_effector_pose())
    assert np.linalg.norm(moved[:3]) < 2e-5 and np.linalg.norm(moved[3:]) < 2e-5
    assert np.linalg.norm(gap(env)[:3]) > 1e-4  # it is deflected


def test_small_motions_add_up_without_error(env: ToolUseEnv):
    """The hand is where the product of its actions is, to within its deflection."""
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    X_WE = env.simulation.end_effector_pose()
    for _ in range(15):
        action = (rng.integers(-400, 401, 6) / ACTION_STEPS).astype(np.float32)
        X_WE = displace(X_WE, action.astype(float) * env.action_scale)
        env.step(action)
    reached = displacement(X_WE, env.simulation.snapshot().reference.end)
    assert np.abs(reached).max() < 1e-9
    env.step(STILL)
    assert np.abs(displacement(X_WE, env.simulation.end_effector_pose())[:3]).max() < 3e-4


def down(env: ToolUseEnv, part: float) -> np.ndarray:
    """Returns the action that lowers the hand by a part of the largest motion."""
    R_EW = env.world_state().X_WE.rotation().inverse()
    return np.r_[R_EW @ [0.0, 0.0, -part], np.zeros(3)].astype(np.float32)


@pytest.mark.parametrize("part", [0.002, 0.01, 0.3])
def test_pressing_again_and_again_does_not_add_up(env: ToolUseEnv, part: float):
    env.reset(seed=0)
    while not env.world_state().in_contact("tool", "table"):
        env.step(down(env, 0.3))
    forces = []
    for _ in range(25):
        env.step(down(env, part))
        forces.append(np.linalg.norm(env.world_state().F_E[3:]))
        # What is left of the last motion, if near, and this one's are between hand and reference.
        assert np.linalg.norm(gap(env)[:3]) < NEAR_M + part * env.action_scale[0] + 5e-4
    assert max(forces[12:]) < 1.2 * max(forces[:12]) + 1.0


POSES = st.tuples(*[st.floats(-1, 1)] * 6)


@given(POSES, POSES, st.floats(0, 3))
def test_the_next_motion_starts_at_the_end_only_if_the_hand_is_near(at, way, far):
    X_WE = displace(RigidTransform(), np.array(at))
    reference = Reference(X_WE, np.array(way) * 0.05, 0.0, 1.0, np.zeros(7))
    direction = np.array([0.6, 0.0, 0.8])
    for offset, tolerance in (
        (np.r_[direction, np.zeros(3)], NEAR_M),
        (np.r_[np.zeros(3), direction], NEAR_RAD),
    ):
        hand = displace(reference.end, far * tolerance * offset)
        start = reference.continued_from(hand)
        if far < 0.999:
            assert start.IsExactlyEqualTo(reference.end)
        elif far > 1.001:
            assert start is hand
