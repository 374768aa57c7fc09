"""The expert as a policy: success in every task, replanning and retreats."""

import json

import numpy as np
import pytest
from support.environments import IDS

from fleet_tools.envs.array_spec import ACTION_STEPS
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.errors import InfeasibleError
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.policies.policy import EXPLANATION
from fleet_tools.rollouts.rollout import rollout
from fleet_tools.sim.scene import Push, Scene


@pytest.mark.slow  # one scene of each task: tests/envs/test_rewards.py
@pytest.mark.parametrize("actuation", ["joint_space", "pose_space"])
@pytest.mark.parametrize("environment_id", IDS)
def test_the_expert_solves_every_environment(make, environment_id, actuation):
    env = make(environment_id)
    outcomes = [rollout(env, ExpertPolicy(env, actuation), seed=seed).outcome for seed in range(5)]
    assert outcomes == ["success"] * 5


def test_its_actions_lie_in_the_action_space_and_are_executed(make):
    env = make(IDS[0])
    expert = ExpertPolicy(env)
    observation, info = env.reset(seed=1)
    expert.reset()
    while info["outcome"] == "running":
        action = expert.act(observation)
        observation, *_, info = env.step(action)
        assert env.action_space.contains(action)
        np.testing.assert_allclose(info["action"], action, rtol=0, atol=0.5 / ACTION_STEPS)
        assert not info["action_clipped"]


def test_an_object_out_of_reach_is_an_error_with_the_distance(make):
    env = make(IDS[0])
    env.reset(seed=0)
    pose = env.scene.object_pose.model_copy(update={"translation_m": (0.95, 0.75, 0.0)})
    far = env.scene.model_copy(update={"object_pose": pose})
    env.reset(options={"scene": far})
    with pytest.raises(InfeasibleError, match=r"point_to_point\(head, head\): 0\.\d+ m, at most"):
        ExpertPolicy(env).reset()
    episode = rollout(env, ExpertPolicy(env), scene=far)
    assert (episode.outcome, len(episode)) == ("policy_error", 0)
    assert episode.error is not None and "InfeasibleError" in episode.error
    assert (episode.info["stage"], episode.info["plans"]) == ("planning", 0)
    assert len(episode.info["planning_errors"]) == 1


def with_push(
    env: ToolUseEnv, seed: int, step: int, translation_m: tuple[float, float, float]
) -> Scene:
    """Returns the scene of a seed with a push."""
    env.reset(seed=seed)
    return env.scene.model_copy(
        update={"push": Push(time_s=(step - 1) / 6, translation_m=translation_m)}
    )


def actuation_step(env: ToolUseEnv, seed: int) -> tuple[ExpertPolicy, int]:
    """Returns an expert, and the step at which its plan reaches the actuation pose."""
    env.reset(seed=seed)
    expert = ExpertPolicy(env)
    expert.reset()
    assert expert.plan is not None
    return expert, expert.plan.actuation


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_it_replans_when_the_object_has_moved(hammer, seed):
    scene = with_push(hammer, seed, 2, (0.03, -0.03, 0.0))
    without = rollout(hammer, ExpertPolicy(hammer, feedback=False), scene=scene)
    feedback = rollout(hammer, ExpertPolicy(hammer), scene=scene)
    assert (without.outcome, feedback.outcome) == ("time_limit", "success")
    assert (without.info["plans"], feedback.info["plans"]) == (1, 2)
    assert feedback.info["retreats"] == 0 and EXPLANATION not in feedback.info


@pytest.mark.parametrize("seed", range(2))
def test_it_retreats_and_replans_after_a_miss(hammer, seed):
    expert, step = actuation_step(hammer, seed)
    # As the hammer comes down, the nail has moved.
    scene = with_push(hammer, seed, step, (0.0, 0.05, 0.0))
    episode = rollout(hammer, expert, scene=scene)
    assert episode.outcome == "success"
    assert (episode.info["plans"], episode.info["retreats"]) == (2, 1)
    assert [each["keyframe"] for each in episode.info["failed_attempts"]] == ["after[1]"]
    assert episode.info["unmet"] == []
    assert (
        "1 failed at keyframe after[1]: (the object's joint `slide` has moved"
        in episode.info[EXPLANATION]
    )


@pytest.mark.parametrize(
    "environment_id, translation_m",
    [
        ("FleetTools/Wrench-v0", (0.0, 0.04, 0.0)),  # the nut leaves the jaw
        ("FleetTools/Knife-v0", (0.04, 0.04, 0.0)),  # the blade is beside the blocks
    ],
)
def test_it_retreats_and_replans_with_other_tools(make, environment_id, translation_m):
    env = make(environment_id)
    expert, step = actuation_step(env, 0)
    scene = with_push(env, 0, step, translation_m)
    episode = rollout(env, expert, scene=scene)
    assert episode.outcome == "success"
    assert (episode.info["plans"], episode.info["retreats"]) == (2, 1)


def test_without_a_push_feedback_changes_nothing(hammer):
    scene = rollout(hammer, ExpertPolicy(hammer), seed=2).scene
    episodes = [
        rollout(hammer, ExpertPolicy(hammer, feedback=feedback), scene=scene)
        for feedback in (True, False)
    ]
    np.testing.assert_array_equal(episodes[0].actions, episodes[1].actions)


def test_without_a_new_plan_it_continues_with_the_old_one(hammer):
    scene = with_push(hammer, 0, 2, (0.3, 0.55, 0.0))
    episode = rollout(hammer, ExpertPolicy(hammer), scene=scene)
    assert (episode.outcome, episode.info["plans"]) == ("time_limit", 1)
    info = json.loads(json.dumps(dict(episode.info), allow_nan=False))
    assert info == episode.info  # plain JSON data
    (error,) = info["planning_errors"]
    assert "point_to_point(head, head)" in error
    assert info["unmet"][0].startswith("the object's joint `slide` has moved by at least")
    assert (info["stage"], info["failed_attempts"]) == ("after[4]", [])
    assert info[EXPLANATION].startswith(f"1 attempt; no plan: {error}; ended in after[4] without")
