"""The explanation of episodes without success: from recorded facts, and of real episodes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_tools.config.predicates import AxisUpright, Contact, JointDisplacement, KeypointsNear
from fleet_tools.envs.success import Verdict
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.experts.assessment import Failure
from fleet_tools.experts.explanation import explanation
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.experts.predicate_words import describe
from fleet_tools.policies.policy import EXPLANATION
from fleet_tools.rollouts.rollout import rollout
from fleet_tools.sim.scene import Push, Scene

MISSED = Failure("after[1]", ("joint_displacement slide 0.0003 of 0.001",))
names = st.sampled_from(["before[0]", "actuation", "after[0]", "after[1]"])
failures = st.lists(st.builds(Failure, names, st.just(("contact tool and object",))))


@given(failures, st.lists(st.sampled_from(["far", "near"])), names)
def test_every_failed_attempt_is_counted(failed, errors, stage):
    words = explanation(failed, errors, stage, ("contact tool and object",))
    assert words is not None
    attempts = len(failed) + 1
    assert words.startswith(f"{attempts} attempt{'' if attempts == 1 else 's'}; ")
    for name in {failure.keyframe for failure in failed}:
        count = sum(failure.keyframe == name for failure in failed)
        assert f"{count} failed at keyframe {name}: (contact tool and object)" in words
    assert all(f"no plan: {error}" in words for error in errors)
    assert words.endswith(f"ended in {stage} without (contact tool and object)")


def test_an_episode_without_trouble_needs_no_explanation():
    assert explanation((), (), "after[1]", ()) is None


def test_an_explanation_reads_as_a_sentence():
    assert explanation([MISSED, MISSED], (), "retreat", MISSED.unmet) == (
        "2 attempts; 2 failed at keyframe after[1]: (joint_displacement slide 0.0003 of 0.001); "
        "ended in retreat without (joint_displacement slide 0.0003 of 0.001)"
    )


@pytest.mark.parametrize(
    ("predicate", "verdict", "words"),
    [
        (
            JointDisplacement(type="joint_displacement", joint="slide", at_least=0.001),
            Verdict(False, 0.3),
            "joint_displacement slide 0.0003 of 0.001",
        ),
        (
            KeypointsNear(type="keypoints_near", tool="face", object="base", within_m=0.05),
            Verdict(False, 0.5),
            "keypoints_near face base 0.1, at most 0.05",
        ),
        (
            Contact(type="contact", between=("object", "table"), present=False),
            Verdict(False, 0.0),
            "contact object and table not present",
        ),
        (
            AxisUpright(type="axis_upright", object=("base", "top"), within_deg=20),
            Verdict(False, 0.25),
            "axis_upright base and top 80, at most 20",
        ),
    ],
)
def test_a_predicate_is_described_by_its_value_and_threshold(predicate, verdict, words):
    assert describe(predicate, verdict) == words


def far_away(env: ToolUseEnv) -> Scene:
    """Returns a scene whose object is pushed out of reach at the second step."""
    env.reset(seed=0)
    return env.scene.model_copy(update={"push": Push(time_s=0.2, translation_m=(0.8, 0.0, 0.0))})


def test_an_expert_that_finds_no_new_plan_says_so(hammer):
    episode = rollout(hammer, ExpertPolicy(hammer), scene=far_away(hammer))
    assert episode.outcome == "time_limit"
    info = json.loads(json.dumps(dict(episode.info), allow_nan=False))
    assert info == episode.info  # plain JSON data
    (error,) = info["planning_errors"]
    assert "point_to_point(head, head)" in error
    assert info["unmet"][0].startswith("joint_displacement slide ")
    assert info["stage"] == "after[4]"
    assert info["failed_attempts"] == []
    assert info[EXPLANATION].startswith(f"1 attempt; no plan: {error}; ended in after[4] without")


def test_an_attempt_that_missed_is_recorded_even_if_the_next_one_succeeds(hammer):
    hammer.reset(seed=0)
    expert = ExpertPolicy(hammer)
    expert.reset()
    assert expert.plan is not None
    push = Push(time_s=(expert.plan.actuation - 1) / 6, translation_m=(0.0, 0.05, 0.0))
    episode = rollout(hammer, expert, scene=hammer.scene.model_copy(update={"push": push}))
    assert episode.outcome == "success"
    assert [each["keyframe"] for each in episode.info["failed_attempts"]] == ["after[1]"]
    assert episode.info["unmet"] == []
    assert "1 failed at keyframe after[1]: (joint_displacement slide" in episode.info[EXPLANATION]


def test_an_episode_without_trouble_has_none(hammer):
    episode = rollout(hammer, ExpertPolicy(hammer), seed=0)
    assert episode.outcome == "success" and EXPLANATION not in episode.info


def test_an_expert_without_any_plan_was_planning(hammer):
    scene = far_away(hammer)
    pose = scene.object_pose.model_copy(update={"translation_m": (-1.4, 0.0, 0.0)})
    scene = scene.model_copy(update={"object_pose": pose, "push": None})
    episode = rollout(hammer, ExpertPolicy(hammer), scene=scene)
    assert episode.outcome == "policy_error"
    assert (episode.info["stage"], episode.info["plans"]) == ("planning", 0)
    assert len(episode.info["planning_errors"]) == 1
