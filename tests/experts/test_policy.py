"""The expert, through the same `step` as everyone."""

import numpy as np
import pytest
from conftest import IDS

import fleet_tools  # noqa: F401
from fleet_tools.errors import InfeasibleError
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.rollouts.episode import rollout
from fleet_tools.sim.scene import Push

SLOWLY = pytest.param("pose_space", marks=pytest.mark.slow)


@pytest.mark.parametrize("actuation", ["joint_space", SLOWLY])
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


def with_push(env, seed, step, translation_m):
    """A scene of a seed in which somebody moves the object."""
    env.reset(seed=seed)
    return env.scene.model_copy(update={"push": Push(step=step, translation_m=translation_m)})


@pytest.mark.parametrize("seed", range(3))
def test_it_sees_that_the_object_was_moved_and_plans_again(hammer, seed):
    scene = with_push(hammer, seed, 2, (0.03, -0.03, 0.0))
    blind = rollout(hammer, ExpertPolicy(hammer, feedback=False), scene=scene)
    seeing = rollout(hammer, ExpertPolicy(hammer), scene=scene)
    assert (blind.outcome, seeing.outcome) == ("time_limit", "success")
    assert (blind.info["plans"], seeing.info["plans"], seeing.info["retreats"]) == (1, 2, 0)


@pytest.mark.parametrize("seed", range(3))
def test_it_sees_that_it_missed_and_tries_again(hammer, seed):
    hammer.reset(seed=seed)
    expert = ExpertPolicy(hammer)
    expert.reset()
    # As the hammer comes down, the nail is no longer there.
    scene = with_push(hammer, seed, expert.plan.actuation, (0.0, 0.05, 0.0))
    episode = rollout(hammer, expert, scene=scene)
    assert episode.outcome == "success"
    assert (episode.info["plans"], episode.info["retreats"]) == (2, 1)


@pytest.mark.parametrize(
    "environment_id, at, translation_m",
    [
        ("FleetTools/Wrench-v0", 0, (0.0, 0.04, 0.0)),  # the nut leaps out of the jaw
        ("FleetTools/Knife-v0", 0, (0.04, 0.04, 0.0)),  # the blade is beside the blocks
    ],
)
def test_it_tries_again_with_other_tools_too(make, environment_id, at, translation_m):
    env = make(environment_id)
    env.reset(seed=0)
    expert = ExpertPolicy(env)
    expert.reset()
    scene = with_push(env, 0, expert.plan.actuation + at, translation_m)
    episode = rollout(env, expert, scene=scene)
    assert episode.outcome == "success"
    assert (episode.info["plans"], episode.info["retreats"]) == (2, 1)


def test_without_disturbance_looking_changes_nothing(hammer):
    scene = rollout(hammer, ExpertPolicy(hammer), seed=2).scene
    episodes = [
        rollout(hammer, ExpertPolicy(hammer, feedback=feedback), scene=scene)
        for feedback in (True, False)
    ]
    np.testing.assert_array_equal(episodes[0].actions, episodes[1].actions)


def test_where_it_can_plan_no_more_it_goes_on(hammer):
    scene = with_push(hammer, 0, 2, (2.0, 0.0, 0.0))
    episode = rollout(hammer, ExpertPolicy(hammer), scene=scene)
    assert (episode.outcome, episode.info["plans"]) == ("time_limit", 1)
