"""Spatula: what counts as lifted, in states that are made for real, and what does not."""

from dataclasses import replace

import numpy as np
import pytest
from pydrake.math import RigidTransform, RotationMatrix
from pydrake.multibody.math import SpatialVelocity

from fleet_tools.envs.success import judge
from fleet_tools.experts.policy import ExpertPolicy

STAY = np.zeros(6, np.float32)
SECOND = 6


@pytest.fixture(scope="module", name="env")
def _env(make):
    return make("FleetTools/Spatula-v0", tool="turner", object="brownie")


@pytest.fixture(scope="module", name="held")
def _held(env):
    """The state in which the expert's blade has just lifted the slab high enough."""
    observation, info = env.reset(seed=1)
    expert = ExpertPolicy(env)
    expert.reset()
    while not info["success"]:
        assert info["outcome"] == "running"
        observation, *_, info = env.step(expert.act(observation))
    return replace(env.get_state(), holding=0)


def placed(env, state, X_WO, v_WO=(0.0, 0.0, 0.0)):
    """The state with the slab somewhere else, and moving."""
    plant = env._simulation.world.plant
    slab = plant.GetBodyByName("slab")
    context = plant.CreateDefaultContext()
    plant.SetPositionsAndVelocities(context, state.snapshot.x)
    plant.SetFreeBodyPose(context, slab, X_WO)
    V_WO = SpatialVelocity(np.zeros(3), np.array(v_WO))
    plant.SetFreeBodySpatialVelocity(context, slab, V_WO)
    x = plant.GetPositionsAndVelocities(context)
    return replace(state, snapshot=replace(state.snapshot, x=x))


def above(X_WO, by_m):
    return RigidTransform([0.0, 0.0, by_m]) @ X_WO


def follow(env, state, steps=2 * SECOND, action=STAY):
    """Goes on from a state for some steps; returns what was so after each, and how it ended."""
    env.set_state(state)
    states = []
    for _ in range(steps):
        *_, info = env.step(action)
        states.append(env.world_state())
        if info["outcome"] != "running":
            break
    return states, info["outcome"]


def broken(env, state):
    """The predicates that do not hold."""
    verdicts = {one: judge(one, env._initial, state) for one in env.task.success}
    return {one.type for one, verdict in verdicts.items() if not verdict.holds}


# --- What counts ----------------------------------------------------------------------------


def test_a_slab_that_rests_on_the_blade_for_a_second_is_lifted(env, held):
    states, outcome = follow(env, held)
    assert (outcome, len(states)) == ("success", SECOND)
    assert all(not broken(env, state) for state in states)


def test_it_may_be_carried_about_while_it_is_held(env, held):
    sideways = np.array([0.0, 0.3, 0.0, 0.0, 0.0, 0.0], np.float32)
    assert follow(env, held, action=sideways)[1] == "success"


def test_less_than_a_second_is_not_enough(env, held):
    states, outcome = follow(env, held, steps=SECOND - 1)
    assert not any(broken(env, state) for state in states)
    assert outcome == "running"


def test_nothing_is_lifted_at_the_start(make):
    env = make("FleetTools/Spatula-v0")
    for seed in range(4):
        env.reset(seed=seed)
        assert {"keypoint_raised", "keypoints_near"} <= broken(env, env.world_state())


@pytest.mark.parametrize("seed", range(3))
def test_a_slab_rests_where_it_lies_and_so_nobody_succeeds_by_waiting(make, seed):
    env = make("FleetTools/Spatula-v0")
    env.reset(seed=seed)
    start = env.world_state().p_W_object["base"]
    for _ in range(SECOND):
        *_, info = env.step(STAY)
    assert np.linalg.norm(env.world_state().p_W_object["base"] - start) < 2e-4
    assert info["success"] is False


# --- What does not --------------------------------------------------------------------------


def test_thrown_up(env, held):
    env.reset(options={"scene": held.scene})
    start, X_WO = env.get_state(), env.world_state().X_WO
    states, outcome = follow(env, placed(env, start, above(X_WO, 0.001), v_WO=(0, 0, 2.5)))
    heights = [state.p_W_object["base"][2] for state in states]
    assert max(heights) > 0.15 and states[-1].touch("object", "table")
    assert outcome == "running" and all(broken(env, state) for state in states)


def test_thrown_up_from_the_blade(env, held):
    env.set_state(held)
    X_WO = env.world_state().X_WO
    states, outcome = follow(env, placed(env, held, X_WO, v_WO=(0, 0, 2.0)), steps=SECOND)
    assert outcome == "running" and not states[0].touch("object", "tool")
    assert "contact" in broken(env, states[0])


def test_fallen_through_the_table(env, held):
    env.set_state(held)
    below = above(env.world_state().X_WO, -0.4)
    states, outcome = follow(env, placed(env, held, below), steps=3)
    assert outcome == "running"
    assert all("keypoint_raised" in broken(env, state) for state in states)


def test_through_the_blade(env, held):
    env.set_state(held)
    below = above(env.world_state().X_WO, -0.03)  # all of it, just below
    states, outcome = follow(env, placed(env, held, below))
    assert outcome == "running" and states[-1].touch("object", "table")
    assert all(broken(env, state) for state in states)


def test_dropped_after_it_was_lifted(env, held):
    roll = np.array([0.0, 0.0, 0.0, 1.0, 0.0, 0.0], np.float32)
    states, outcome = follow(env, held, action=roll)
    assert outcome == "running" and "keypoint_raised" in broken(env, states[-1])
    assert not states[-1].touch("object", "tool")


def test_sliding_off(env, held):
    icy = held.scene.model_copy(update={"tool_friction_scale": 0.01})
    states, outcome = follow(env, replace(held, scene=icy))
    assert outcome == "running" and not states[-1].touch("object", "tool")
    assert any(broken(env, state) == {"still"} for state in states)


def test_lying_on_the_hand(env, held):
    env.set_state(held)
    over = RigidTransform(env.world_state().X_WE @ [0.0, 0.06, -0.125])
    states, outcome = follow(env, placed(env, held, over))
    assert outcome == "running"
    for state in states:
        assert state.touch("object", "robot")
        assert broken(env, state) == {"contact", "keypoints_near"}  # though raised, and at rest


def test_lying_on_the_handle(env, held):
    env.set_state(held)
    state = env.world_state()
    along = state.p_W_tool["edge"] - state.p_W_tool["heel"]
    tail = RigidTransform(state.p_W_tool["tail"] + 0.033 * along / np.linalg.norm(along))
    states, outcome = follow(env, placed(env, held, above(tail, 0.0101)))
    assert states[-1].touch("object", "tool")
    assert broken(env, states[-1]) == {"keypoints_near"}  # raised and held, but not by the blade
    assert outcome == "running"


def test_upside_down(env, held):
    env.set_state(held)
    state = env.world_state()
    place = state.p_W_object["top"] + [0.0, 0.0, 0.001]
    turned = RigidTransform(RotationMatrix.MakeXRotation(np.pi), place)
    states, outcome = follow(env, placed(env, held, turned))
    assert broken(env, states[-1]) == {"axis_upright"}  # all else is as it should be
    assert outcome == "running"
