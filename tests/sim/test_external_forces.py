"""Forces on hand and object in mid-episode: momentum, replay, and nobody's credit."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.environments import IDS, bits, press, press_until_sliding
from support.shares import few
from support.task_files import own_task

from fleet_tools.config.control import TIME_STEP
from fleet_tools.config.tasks import load_task
from fleet_tools.config.values import parse
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.errors import ConfigError
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.rollouts.rollout import rollout
from fleet_tools.sim.external_forces import control_steps, forces_in
from fleet_tools.sim.scene import (
    MOST_FORCES,
    HandForce,
    ObjectForce,
    Push,
    Scene,
    sample_scene,
)

REST = np.zeros(6, np.float32)
GRAVITY = 9.81
NUMBERS = st.floats(-1000, 1000)
VECTORS = st.tuples(NUMBERS, NUMBERS, NUMBERS)
TIMES = {"start_s": st.floats(0, 20), "duration_s": st.floats(0, 5)}
HAND = st.lists(st.builds(HandForce, force_N=VECTORS, **TIMES), max_size=4).map(tuple)
OBJECT = st.lists(st.builds(ObjectForce, force_N_per_kg=VECTORS, **TIMES), max_size=4).map(tuple)
SCENE = sample_scene(load_task("hammer"), 5)


def with_forces(scene: Scene, hand: Any = (), object: Any = ()) -> Scene:
    return scene.model_copy(update={"hand_forces": tuple(hand), "object_forces": tuple(object)})


def hand(start_s: float, duration_s: float, *force: float) -> HandForce:
    return HandForce(start_s=start_s, duration_s=duration_s, force_N=force)  # pyright: ignore


def on_object(start_s: float, duration_s: float, *force: float) -> ObjectForce:
    return ObjectForce(start_s=start_s, duration_s=duration_s, force_N_per_kg=force)  # pyright: ignore


# --- Values ---------------------------------------------------------------------------------


@given(HAND, OBJECT)
def test_a_scene_goes_to_json_and_back_and_one_without_forces_says_nothing_of_them(one, other):
    scene = with_forces(SCENE, one, other)
    again = parse(Scene, json.loads(scene.to_json()), "it")
    assert again == scene and again.digest() == scene.digest()
    written = json.loads(scene.to_json())
    assert ("hand_forces" in written, "object_forces" in written) == (bool(one), bool(other))
    assert (scene.digest() == SCENE.digest()) == (not one and not other)


@given(HAND, OBJECT, st.sampled_from([6.0, 10.0, 7.5]))
def test_forces_act_for_whole_steps_at_least_one_and_add_up(one, other, rate):
    for force in (*one, *other):
        steps = control_steps(force, rate)
        assert abs((steps[0] - 1) / rate - force.start_s) <= 0.5 / rate + 1e-9
        assert len(steps) >= 1 and abs(len(steps) / rate - force.duration_s) <= 1 / rate
    scene = with_forces(SCENE, one, other)
    total = sum(np.array(forces_in(scene, step, rate).hand_N) for step in range(400))
    expected = sum(len(control_steps(force, rate)) * np.array(force.force_N) for force in one)
    np.testing.assert_allclose(total, expected, atol=1e-6)
    assert not any(forces_in(scene, 0, rate).hand_N)


def test_too_many_forces_and_impossible_ones_are_refused():
    data = json.loads(SCENE.to_json())
    force = {"start_s": 1, "duration_s": 1, "force_N": [0, 0, 1]}
    for bad, message in (
        ([force] * (MOST_FORCES + 1), "at most 16"),
        ([force | {"force_N": [0, 0, 1001]}], r"hand_forces\.0\.force_N\.2: expected a number"),
        ([force | {"duration_s": -1}], r"hand_forces\.0\.duration_s"),
        ([force | {"body": "tool"}], "body"),
    ):
        with pytest.raises(ConfigError, match=message):
            parse(Scene, data | {"hand_forces": bad}, "it")


# --- Mechanics ------------------------------------------------------------------------------


@pytest.fixture(scope="module", name="spatula")
def _spatula(tmp_path_factory) -> ToolUseEnv:
    """High above the table is a part of the workspace."""
    workspace = {"upper_m": [1.0, 0.8, 10.0]}
    file = own_task(tmp_path_factory.mktemp("task"), "spatula", workspace=workspace)
    return EnvSpec.of(task=file).make_tool_use()


@few(10)
@given(st.tuples(*[st.floats(-20, 20)] * 3), st.integers(1, 3), st.sampled_from([0.3, 1.0, 3.0]))
def test_a_free_body_gains_the_impulse_of_force_and_weight(spatula, force, steps, scale):
    """M dv = (F + m g) t, in the air, whatever the mass; and the body does not begin to turn."""
    scene = sample_scene(spatula.task, 3)
    pose = scene.object_pose.model_copy(update={"translation_m": (0.9, 0.7, 9.0)})
    scene = scene.model_copy(update={"object_pose": pose, "object_mass_scale": scale})
    scene = with_forces(scene, object=[on_object(1 / 6, steps / 6, *force)])
    spatula.reset(options={"scene": scene})
    velocities, updates = [], []
    for _ in range(2 + steps):
        before = spatula.simulation._simulator.get_num_discrete_updates()
        spatula.simulation.step(np.zeros(6))
        updates.append(spatula.simulation._simulator.get_num_discrete_updates() - before)
        ((_, v),) = spatula.simulation.world_state().links.values()
        velocities.append(v)
    dv, seconds = np.diff([np.zeros(3), *velocities], axis=0), np.array(updates) * TIME_STEP
    for k, (gained, t) in enumerate(zip(dv, seconds, strict=True)):
        acceleration = np.array(force if 1 <= k <= steps else (0, 0, 0)) - [0, 0, GRAVITY]
        np.testing.assert_allclose(gained, acceleration * t, atol=1e-9)


def test_the_hand_yields_along_the_force_and_its_sensors_do_not_feel_it(hammer):
    for force in ([60.0, 0.0, 0.0], [0.0, -60.0, 0.0], [0.0, 0.0, 60.0]):
        scene = with_forces(sample_scene(hammer.task, 0), hand=[hand(1 / 6, 1 / 3, *force)])
        hammer.reset(options={"scene": scene})
        start = hammer.world_state().X_WE.translation()
        for _ in range(4):
            hammer.step(REST)
            assert not hammer.world_state().tau_external.any()
        moved = hammer.world_state().X_WE.translation() - start
        along = moved @ force / 60
        assert along > 0.005 and np.linalg.norm(moved) < 1.5 * along


@pytest.mark.parametrize("environment_id", IDS)
def test_no_force_leaves_every_bit_as_it_was(make, environment_id):
    """Neither one of 0 N nor one after the end; and the observation does not announce one."""
    env: ToolUseEnv = make(environment_id)
    env.reset(seed=3)
    scene, traces = env.scene, []
    late = [hand(90, 1, 50, 0, 0)], [on_object(90, 1, 50, 0, 0)]
    for forces in (((), ()), ([hand(0, 9, 0, 0, 0)], [on_object(0, 9, 0, 0, 0)]), late):
        first, _ = env.reset(options={"scene": with_forces(scene, *forces)})
        trace = [bits([[first]])]
        for k in range(4):
            action = np.full(6, 0.3 * (-1) ** k, np.float32)
            trace.append(bits([(*env.step(action), env.state_digest())]))
        traces.append(trace)
    assert traces[0] == traces[1] == traces[2]


# --- Replay ---------------------------------------------------------------------------------

HAMMER_SCENE = sample_scene(load_task("hammer"), 5, tool="claw", object="round_nail")
PUSHED = with_forces(
    sample_scene(load_task("hammer"), 5),
    hand=[hand(0.5, 0.4, 30, -20, 10), hand(0.7, 0.2, 0, 0, -25)],
    object=[on_object(0.6, 0.5, 2, 3, -4)],
)
MOVED = HAMMER_SCENE.model_copy(
    update={"push": Push(time_s=0.5, translation_m=(0.015, -0.01, 0.0))}
)


@pytest.mark.parametrize("scene", [PUSHED, MOVED], ids=["forces", "push"])
def test_every_step_of_a_disturbed_episode_continues_as_it_did(hammer, scene):
    """Through every phase between control steps and time steps."""
    hammer.reset(options={"scene": scene})
    states, steps, actions = [], [], []
    for _ in range(9):
        states.append(hammer.get_state())
        actions.append(press(hammer))
        steps.append(bits([(*hammer.step(actions[-1]), hammer.state_digest())]))
    for k in range(9):
        hammer.reset(seed=1)
        hammer.set_state(states[k])
        assert bits([(*hammer.step(actions[k]), hammer.state_digest())]) == steps[k]
    plain = with_forces(scene).model_copy(update={"push": None})
    digests = []
    for each in (plain, scene):
        hammer.reset(options={"scene": each})
        digests.append([hammer.step(action) and hammer.state_digest() for action in actions])
    same = [one == other for one, other in zip(*digests, strict=True)]
    assert same == [True] * 3 + [False] * 6


# --- Nobody's credit ------------------------------------------------------------------------


def test_who_does_nothing_does_not_succeed_by_a_push_that_does_the_deed(hammer):
    """A force drives the nail home; the deed is done, and its cause is nobody of the tool."""
    scene = with_forces(sample_scene(hammer.task, 2), object=[on_object(0.2, 3, 0, 0, -1000)] * 8)
    hammer.reset(options={"scene": scene})
    infos = [hammer.step(REST)[4] for _ in range(12)]
    state = hammer.world_state()
    assert state.object_joints["slide"] > 0.02
    assert state.part_motion["face"].object_joints["slide"] == 0.0
    assert not infos[-1]["success_once"]


def test_a_push_after_a_blow_is_not_credited_to_the_face(hammer):
    """Whoever worked last keeps its share of what slides on; a force that works takes it."""
    press_until_sliding(hammer, seed=2)
    for _ in range(3):  # away from the nail
        hammer.step(np.array([0, 0, -1, 0, 0, 0], np.float32))
    state, before = hammer.get_state(), hammer.world_state()
    credited = before.part_motion["face"].object_joints["slide"]
    assert credited > 0.0005
    start = state.snapshot.step / 6
    scene = with_forces(state.scene, object=[on_object(start, 0.4, 0, 0, -1000)] * 8)
    hammer.set_state(replace(state, scene=scene))
    for _ in range(3):
        hammer.step(np.array([0, 0, -1, 0, 0, 0], np.float32))
    now = hammer.world_state()
    assert now.object_joints["slide"] - before.object_joints["slide"] > 0.01
    assert now.part_motion["face"].object_joints["slide"] == pytest.approx(credited, abs=1e-5)


def test_a_slab_that_a_force_lifts_off_the_blade_is_not_lifted_by_it(spatula):
    assert rollout(spatula, ExpertPolicy(spatula), seed=3).outcome == "success"
    state, before = spatula.get_state(), spatula.world_state()
    start = state.snapshot.step / 6
    scene = with_forces(state.scene, object=[on_object(start, 0.3, 0, 0, 40)])
    spatula.set_state(replace(state, scene=scene, outcome="running", steps_held=0))
    spatula.step(REST)
    now = spatula.world_state()
    assert now.p_W_object["base"][2] - before.p_W_object["base"][2] > 0.2
    credited = [s.part_motion["blade"].p_W_object["base"][2] for s in (before, now)]
    assert credited[1] - credited[0] < 0.01
