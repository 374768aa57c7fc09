"""The motion of objects that parts of the tool caused, in simulations."""

from dataclasses import replace

import numpy as np
import pytest
import yaml
from support.environments import IDS, drive, with_bodies

from fleet_tools.config.tasks import task_path
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.rollouts.rollout import rollout
from fleet_tools.sim.attribution import FIXED, ObjectMotion
from fleet_tools.sim.scene import Push

REST = np.zeros(6, np.float32)


@pytest.mark.parametrize("environment_id", IDS)
def test_the_expert_moves_the_object_with_the_working_part(make, environment_id):
    env: ToolUseEnv = make(environment_id)
    env.reset(seed=1)
    initial = env.world_state()
    assert rollout(env, ExpertPolicy(env), seed=1).outcome == "success"
    now = env.world_state()
    (motion,) = now.part_motion.values()
    for name, moved in motion.object_joints.items():
        by_anything = now.object_joints[name] - initial.object_joints[name]
        assert moved == pytest.approx(by_anything, rel=0.02, abs=2e-4)
    # Links that the tool has hardly touched may move a little by themselves.
    for name, moved in motion.p_W_object.items():
        by_anything = now.p_W_object[name] - initial.p_W_object[name]
        np.testing.assert_allclose(moved, by_anything, atol=0.005)
    for name, moved in motion.links.items():
        by_anything = now.links[name][0] - initial.links[name][0]
        np.testing.assert_allclose(moved, by_anything, atol=0.005)


@pytest.mark.parametrize("environment_id", IDS)
def test_a_robot_without_motion_causes_none_and_the_object_stays(make, environment_id):
    env: ToolUseEnv = make(environment_id)
    for seed in (0, 2):
        env.reset(seed=seed)
        start = env.world_state()
        infos = [env.step(REST)[4] for _ in range(6)]
        now = env.world_state()
        (motion,) = now.part_motion.values()
        for value in (*motion.object_joints.values(), *motion.p_W_object.values()):
            assert not np.any(value)
        verdicts = infos[-1]["verdicts"].items()
        assert [v["holds"] for name, v in verdicts if "caused_by_part" in name] == [False]
        assert not infos[-1]["success_once"]
        creep = 0.0 if env.task.object_family == "nut" else 1e-4  # of what its weight moves
        for moved in now.object_joints.values():
            assert abs(moved) <= creep
        for name, p_W in now.p_W_object.items():
            assert np.linalg.norm(p_W - start.p_W_object[name]) < 2e-4


def test_a_push_of_the_scene_is_nobodys_motion(make):
    env = make("FleetTools/Spatula-v0")
    env.reset(seed=3)
    pushed = env.scene.model_copy(
        update={"push": Push(time_s=0.2, translation_m=(0.05, 0.02, 0.0))}
    )
    env.reset(options={"scene": pushed})
    start = env.world_state().p_W_object["base"]
    for _ in range(4):
        env.step(REST)
    now = env.world_state()
    assert np.linalg.norm(now.p_W_object["base"] - start) > 0.05
    assert not now.part_motion["blade"].p_W_object["base"].any()


def test_a_push_after_the_tool_has_touched_is_nobodys_motion(make):
    env = make("FleetTools/Spatula-v0")
    assert rollout(env, ExpertPolicy(env), seed=3).outcome == "success"
    state, before = env.get_state(), env.world_state()
    step = state.snapshot.step + 1
    pushed = state.scene.model_copy(
        update={"push": Push(time_s=(step - 1) / 6, translation_m=(0.3, 0, 0.2))}
    )
    env.set_state(replace(state, scene=pushed, outcome="running", steps_held=0))
    env.step(REST)
    now = env.world_state()
    assert now.p_W_object["base"][0] - before.p_W_object["base"][0] > 0.25
    moved = [np.linalg.norm(s.part_motion["blade"].p_W_object["base"]) for s in (before, now)]
    assert 0.03 < moved[1] < moved[0] + 0.01  # what leads back to the start takes some


def test_a_block_that_flies_by_itself_is_nobodys_motion(make):
    env = make("FleetTools/Knife-v0")
    env.reset(seed=3)
    X_WB = env.simulation.world.plant.GetBodyByName("left").EvalPoseInWorld(env.simulation._context)
    env.set_state(with_bodies(env, env.get_state(), left=(X_WB, [0.0, 0.8, 0.5])))
    for _ in range(4):
        env.step(REST)
    now = env.world_state()
    assert now.p_W_object["left"][1] != pytest.approx(now.p_W_object["right"][1], abs=0.05)
    assert not now.part_motion["blade"].p_W_object["left"].any()


def test_a_nail_driven_by_another_part_is_not_driven_by_the_face(tmp_path):
    data = yaml.safe_load(task_path("hammer").read_text())
    motions = []
    for parts in (
        {"face": {"keypoints": ["head"], "within_m": 0.025}},
        {"face": {"keypoints": ["tail"], "within_m": 0.025}},
        {  # the first part that holds the point of contact counts
            "whole": {"keypoints": ["side", "head"], "within_m": 0.03},
            "face": {"keypoints": ["head"], "within_m": 0.025},
        },
    ):
        file = tmp_path / f"{len(motions)}.yaml"
        file.write_text(yaml.safe_dump(data | {"tool_parts": parts}, sort_keys=False))
        env = EnvSpec.of(task=str(file), tool="claw", object="round_nail").make_tool_use()
        env.reset(seed=5)
        drive(env)
        now = env.world_state()
        depth = now.object_joints["slide"]
        assert depth > 0.02
        motions.append({p: m.object_joints["slide"] / depth for p, m in now.part_motion.items()})
    everything = pytest.approx(1.0, rel=0.02)
    assert motions == [{"face": everything}, {"face": 0.0}, {"whole": everything, "face": 0.0}]


def test_the_attribution_is_part_of_the_state(hammer):
    hammer.reset(seed=5)
    drive(hammer)
    state = hammer.get_state()
    attribution = state.snapshot.attribution
    assert attribution.any()
    other = replace(state.snapshot, attribution=np.zeros_like(attribution))
    assert other.digest() != state.snapshot.digest()
    hammer.set_state(replace(state, outcome="running", snapshot=other))
    assert hammer.world_state().part_motion["face"].object_joints["slide"] == 0.0
    assert not hammer.verdicts()["success[1] caused_by_part"].holds
    assert hammer.verdicts()["success[0] joint_displacement"].holds


def test_coordinates_are_those_of_the_world_state(make):
    env = make("FleetTools/Knife-v0")
    env.reset(seed=0)
    simulation = env.simulation
    world, context = simulation.world, simulation._context
    plant = world.plant
    motion = ObjectMotion(plant, world.object, simulation.object)
    assert motion.link_mechanism == (0, 1) and motion.num_mechanisms == 2
    plant.SetVelocities(context, np.random.default_rng(0).normal(size=plant.num_velocities()))
    env.step(REST)
    X_WB = plant.get_body_poses_output_port().Eval(context)
    named = motion.named(
        motion.coordinates(
            np.array([X_WB[body].GetAsMatrix34() for body in motion.bodies]),
            plant.get_state_output_port(world.object).Eval(context),
        ),
        np.tile(np.eye(3, 4), (len(motion.bodies), 1, 1)),
    )
    state = env.world_state()
    for name, p_W in named.p_W_object.items():
        np.testing.assert_allclose(p_W, state.p_W_object[name], atol=1e-12)
    for name, p_W in named.links.items():
        np.testing.assert_allclose(p_W, state.links[name][0], atol=1e-12)


def test_a_block_that_is_fixed_belongs_to_no_mechanism(hammer):
    hammer.reset(seed=0)
    simulation = hammer.simulation
    motion = ObjectMotion(simulation.world.plant, simulation.world.object, simulation.object)
    of_link = dict(zip(motion._link_names, motion.link_mechanism, strict=True))
    assert of_link["block"] == FIXED and of_link["nail"] == 0
