"""The expert, through the same `step` as everyone."""

import gymnasium
import numpy as np
import pytest

import fleet_tools  # noqa: F401
from fleet_tools.episode import rollout
from fleet_tools.errors import InfeasibleError
from fleet_tools.experts.policy import ExpertPolicy

IDS = sorted(name for name in gymnasium.registry if name.startswith("FleetTools/"))


@pytest.mark.parametrize("actuation", ["joint_space", "pose_space"])
@pytest.mark.parametrize("environment_id", IDS)
def test_the_expert_solves_every_environment(make, environment_id, actuation):
    env = make(environment_id)
    episodes = [rollout(env, ExpertPolicy(env, actuation), seed=seed) for seed in range(5)]
    assert [episode.outcome for episode in episodes] == ["success"] * 5


def test_its_actions_lie_in_the_action_space_and_are_what_is_executed(make):
    env = make(IDS[0])
    expert = ExpertPolicy(env)
    observation, info = env.reset(seed=1)
    expert.reset()
    while info["outcome"] == "running":
        action = expert.act(observation)
        observation, *_, info = env.step(action)
        assert env.action_space.contains(action)
        np.testing.assert_array_equal(info["action"], action)
        assert not info["action_clipped"]


def test_it_is_the_same_expert_whatever_it_did_before(make):
    env = make(IDS[0])
    expert = ExpertPolicy(env)
    first = rollout(env, expert, seed=3)
    rollout(env, expert, seed=4)
    again = rollout(env, expert, seed=3)
    np.testing.assert_array_equal(first.actions, again.actions)


def test_what_it_cannot_reach_it_says(make):
    env = make(IDS[0])
    env.reset(seed=0)
    pose = env.scene.object_pose.model_copy(update={"translation_m": (2.5, 0.0, 0.0)})
    far = env.scene.model_copy(update={"object_pose": pose})
    env.reset(options={"scene": far})
    with pytest.raises(InfeasibleError, match=r"point_to_point\(head, head\): 1\.\d+ m, at most"):
        ExpertPolicy(env).reset()
    episode = rollout(env, ExpertPolicy(env), scene=far)
    assert (episode.outcome, len(episode)) == ("policy_error", 0)
    assert "InfeasibleError" in episode.error
