"""The package's arms beside each other: one end effector, one action, one policy for all."""

import gymnasium
import numpy as np
import pytest

import fleet_tools
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.checkpoint import Checkpoint
from fleet_tools.baselines.policies.config import PolicyConfig
from fleet_tools.baselines.policies.layout import LayoutError
from fleet_tools.baselines.policies.part_configs import MLPConfig
from fleet_tools.baselines.policies.policy import NetworkPolicy
from fleet_tools.config.tasks import load_task, task_names
from fleet_tools.envs.array_spec import describe_action, describe_observation
from fleet_tools.registration import env_id
from fleet_tools.robot.arm import DEFAULT_ROBOT, load_robot, robot_names
from fleet_tools.robot.arm_model import ArmModel
from fleet_tools.rollouts.rollout import rollout
from fleet_tools.sim.scene import sample_scene

SHARED = ("end_effector_pose", "end_effector_wrench", "object_keypoints", "tool_keypoints")
"""Entries of an observation that do not depend on the arm."""
OTHERS = [name for name in robot_names() if name != DEFAULT_ROBOT]


def env_of(robot: str, task: str = "hammer"):
    """Returns an environment with an arm."""
    return gymnasium.make(env_id(task), robot=robot)


def begin_pose(robot: str, task: str) -> np.ndarray:
    """Returns X_WE, (3, 4), in the middle of the posture in which a task begins."""
    arm = load_robot(robot)
    scene = sample_scene(load_task(task), 0, randomization="off", robot=arm)
    q = np.array(scene.initial_joints_rad)
    return ArmModel(arm).dynamics(q, np.zeros(q.size))[1]


@pytest.mark.parametrize("robot", OTHERS)
@pytest.mark.parametrize("task", task_names())
def test_the_hand_begins_where_that_of_the_panda_begins(task, robot):
    panda, other = begin_pose("panda", task), begin_pose(robot, task)
    assert np.linalg.norm(panda[:, 3] - other[:, 3]) < 0.01
    angle = np.arccos((np.trace(panda[:, :3].T @ other[:, :3]) - 1) / 2)
    assert angle < np.radians(1)


@pytest.mark.parametrize("robot", OTHERS)
@pytest.mark.parametrize(
    "task", ["hammer", *(pytest.param(t, marks=pytest.mark.slow) for t in task_names()[1:])]
)
def test_the_expert_solves_a_scene_with_another_arm(task, robot):
    with env_of(robot, task) as env:
        assert rollout(env, fleet_tools.ExpertPolicy(env), seed=1001).outcome == "success"


def blueprint_on(env, observations) -> Blueprint:
    """Returns the blueprint of a small policy that reads some entries of an environment."""
    body = MLPConfig(layers=1, width=8)
    config = PolicyConfig(body=body, reads=observations)
    return Blueprint.of(config, describe_observation(env), describe_action(env))


def test_a_policy_that_reads_no_joints_acts_on_all_arms_and_one_that_does_is_refused():
    with env_of("panda") as panda, env_of("ur5e") as ur5e, env_of("iiwa14") as iiwa14:
        blind = blueprint_on(panda, SHARED)
        policy = NetworkPolicy(Checkpoint(blind, blind.create().state_dict()))
        for env in (panda, ur5e, iiwa14):
            blind.require_environment(env)
            observation, _ = env.reset(seed=0)
            observation, *_ = env.step(policy.act(observation))
            assert observation in env.observation_space
        with pytest.raises(LayoutError, match="joint_position"):
            blueprint_on(panda, ()).require_environment(ur5e)


def test_the_ur5e_pulled_straight_keeps_its_speeds_and_comes_back():
    with env_of("ur5e", "wrench") as env:
        observation, _ = env.reset(seed=5)
        limits = ArmModel(load_robot("ur5e")).limits
        reach = {}
        for step in range(40):
            outwards = 1.0 if step < 28 else -1.0
            action = np.array([outwards, 0, 0, 0, 0, 0], np.float32)
            observation, _, terminated, truncated, _ = env.step(action)
            assert not terminated and not truncated
            assert (np.abs(observation["joint_velocity"]) < limits.speed).all()
            reach[step] = float(observation["end_effector_pose"][0, 3])
        assert reach[27] - reach[26] < 0.005  # the arm is straight: it goes no further
        assert reach[27] - reach[39] > 0.2
