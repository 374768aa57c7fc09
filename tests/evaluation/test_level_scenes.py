"""Scenes of levels: a second object beside the first one."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.shares import few

from fleet_tools.config.distributions import bounds
from fleet_tools.config.tasks import load_task
from fleet_tools.config.values import parse
from fleet_tools.errors import ConfigError
from fleet_tools.evaluation.level_scenes import SceneRules, SecondObject
from fleet_tools.evaluation.protocol_file import load_protocol
from fleet_tools.evaluation.trial import judge, run_again, run_trial
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.robot.arm import load_robot
from fleet_tools.sim.scene import Scene, sample_scene
from fleet_tools.sim.splits import model_pairs

NOMINAL, LONG = load_protocol("v1"), load_protocol("v1", "long")
TASKS = {name: load_robot().fill(load_task(name)) for name in LONG.tasks if name != "spatula"}


def beside(**changes: Any) -> SecondObject:
    data = {"least_distance_m": 0.24, "y_m": {"uniform": [-0.3, 0.3]}, **changes}
    return parse(SecondObject, data, "it")


@few(10)
@given(st.integers(0, 2**53), st.sampled_from(sorted(TASKS)))
def test_a_second_object_stands_apart_and_leaves_the_first_as_it_was(seed, name):
    task, rule = TASKS[name], beside()
    plain = sample_scene(task, seed, split="unseen_tools")
    scene = rule.add_to(plain, task, "unseen_tools", "on")
    again = parse(SecondObject, rule.model_dump(mode="json"), "it")
    assert again.add_to(plain, task, "unseen_tools", "on") == scene
    assert parse(Scene, scene.model_dump(mode="json"), "it") == scene
    assert scene.model_copy(update={"next_objects": ()}) == plain
    assert len(scene.next_objects) == 1
    places = [np.array(each.object_pose.translation_m[:2]) for each in scene.objects]
    for one, other in itertools.combinations(places, 2):
        assert np.linalg.norm(one - other) >= 0.24
    x, _, z = task.randomization.object_pose.translation_m
    for each in scene.next_objects:
        assert (scene.tool, each.object) in model_pairs(task, "unseen_tools")
        assert each.joint_resistance.keys() == scene.joint_resistance.keys()
        for value, (low, high) in zip(
            each.object_pose.translation_m, (bounds(x), (-0.3, 0.3), bounds(z)), strict=True
        ):
            assert low <= value <= high


def test_objects_without_a_place_are_refused():
    plain = sample_scene(TASKS["hammer"], 1)
    with pytest.raises(ConfigError, match="the second object was always closer"):
        beside(least_distance_m=2).add_to(plain, TASKS["hammer"], "train", "on")
    with pytest.raises(ConfigError, match="always closer"):  # both in the middle
        SceneRules(randomization="off", second_object=beside()).draw(TASKS["hammer"], 1, "train")


def test_scenes_of_the_level_long_have_two_objects_at_least_24_cm_apart():
    for trial in (trial for task in TASKS for trial in LONG.trials(task, scenes=8)):
        task = TASKS[trial.task]
        scene = LONG.scene(task, trial)
        assert len(scene.objects) == 2
        (x_1, y_1, _), (x_2, y_2, _) = (of.object_pose.translation_m for of in scene.objects)
        assert np.hypot(x_1 - x_2, y_1 - y_2) >= 0.24
        assert LONG.max_steps(task) == 2 * task.max_episode_steps
        assert NOMINAL.max_steps(task) == task.max_episode_steps


def test_an_episode_of_two_objects_is_verified_by_its_actions():
    (trial,) = LONG.trials("hammer", "train", scenes=1)
    env = LONG.make_env("hammer")
    episode = run_trial(env, ExpertPolicy(env), LONG, trial)
    assert (episode.outcome, env.objects_done()) == ("success", 1)
    assert judge(episode, run_again(env, LONG, episode)).agreement.identical
    nominal = LONG.model_copy(update={"second_object": None})
    assert any(
        "scene_digest" in each
        for each in judge(episode, run_again(env, nominal, episode)).differences
    )
    env.close()
