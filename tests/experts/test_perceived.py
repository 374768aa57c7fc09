"""The perceived expert: what it finds in point clouds, what it reads, and what it does with it."""

import numpy as np
import pytest
from support.environments import IDS

from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.errors import ConfigError, PolicyError
from fleet_tools.experts.perception.finding import Candidates
from fleet_tools.experts.perception.perceived import (
    PerceivedState,
    perceived_expert,
    perceived_expert_category,
)
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.policies.sources import find_policy, natural_track
from fleet_tools.rollouts.rollout import rollout
from fleet_tools.sim.scene import Push

HAMMER = "FleetTools/Hammer-v0"
SOURCE = find_policy("perceived_expert")
CATEGORY = find_policy("perceived_expert_category")


def refuse(self):
    raise AssertionError("it is privileged")


@pytest.mark.parametrize(
    ("source", "expert_of", "hidden"),
    [
        (SOURCE, perceived_expert, {"world_state": refuse}),
        pytest.param(
            CATEGORY,
            perceived_expert_category,
            {"world_state": refuse, "scene": property(refuse)},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_it_solves_a_scene_without_the_privileged_state(
    make, monkeypatch, source, expert_of, hidden
):
    split = {"split": "unseen_tools"} if source is CATEGORY else {}
    env = make(HAMMER, **split, **source.env_kwargs)
    observation, info = env.reset(seed=0)
    for name, refusal in hidden.items():
        monkeypatch.setattr(ToolUseEnv, name, refusal)
    expert = expert_of(env)
    expert.reset()
    while info["outcome"] == "running":
        observation, *_, info = env.step(expert.act(observation))
    assert info["outcome"] == "success"
    assert source is CATEGORY or expert.info["plans"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("environment_id", IDS)
def test_it_solves_every_environment(make, environment_id):
    env = make(environment_id, **SOURCE.env_kwargs)
    assert rollout(env, SOURCE.make(env), seed=1).outcome == "success"


@pytest.mark.slow
@pytest.mark.parametrize("environment_id", IDS)
def test_keypoints_are_found_within_a_third_of_a_millimetre(make, environment_id):
    env = make(environment_id, **SOURCE.env_kwargs)
    for seed in range(3):
        observation, _ = env.reset(seed=seed)
        known = Candidates((env.scene.tool,), (env.scene.object,), known=True)
        source = PerceivedState(env.task, lambda known=known: known)
        source.begin()
        found, truth = source.look(observation), env.world_state()
        for points, true in (
            (found.p_W_tool, truth.p_W_tool),
            (found.p_W_object, truth.p_W_object),
        ):
            assert points.keys() == true.keys()
            for name, p_W in true.items():
                np.testing.assert_allclose(points[name], p_W, atol=3e-4)


@pytest.mark.slow
def test_it_replans_when_the_object_is_moved(make):
    env = make(HAMMER, **SOURCE.env_kwargs)
    env.reset(seed=0)
    push = Push(time_s=0.33, translation_m=(0.012, 0.008, 0.0))
    episode = rollout(env, SOURCE.make(env), scene=env.scene.model_copy(update={"push": push}))
    assert episode.outcome == "success"
    assert episode.info["plans"] > 1


@pytest.mark.slow
def test_it_retreats_and_looks_again_after_an_attempt_that_failed(make):
    env = make("FleetTools/Wrench-v0", **SOURCE.env_kwargs)
    env.reset(seed=1)
    late = Push(time_s=2.7, translation_m=(0.0, 0.02, 0.0))  # the jaw is about to turn the nut
    episode = rollout(env, SOURCE.make(env), scene=env.scene.model_copy(update={"push": late}))
    assert episode.outcome == "success"
    assert episode.info["retreats"] == 1


def test_what_is_out_of_view_is_an_error(make):
    env = make(HAMMER, **SOURCE.env_kwargs)
    observation, _ = env.reset(seed=0)
    cloud = observation["point_cloud"]
    expert = perceived_expert(env)
    expert.reset()
    with pytest.raises(PolicyError, match="the object is out of view: the cameras see 0 points"):
        expert.act({**observation, "point_cloud": np.where(cloud[:, 3:] > 0, cloud, 0.0)})


def test_it_needs_point_clouds(hammer):
    with pytest.raises(ConfigError, match='obs_mode="point_cloud"'):
        perceived_expert(hammer)


def test_its_track_is_that_of_observations():
    assert natural_track("built_in", "perceived_expert") == "observations"
    assert natural_track("built_in", "perceived_expert_category") == "observations"
    assert natural_track("built_in", "expert") == "privileged"
    assert SOURCE.env_kwargs["obs_mode"] == "point_cloud"


def test_reset_comes_first(make):
    env = make(HAMMER, **SOURCE.env_kwargs)
    observation, _ = env.reset(seed=0)
    expert = perceived_expert(env)
    assert isinstance(expert, ExpertPolicy)
    with pytest.raises(RuntimeError, match="reset"):
        expert.act(observation)
