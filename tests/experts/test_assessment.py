"""The expert's assessment, on states that are changed one quantity at a time, and its words."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.planning_problems import planning_problem

from fleet_tools.config.predicates import AxisUpright, Contact, JointDisplacement, KeypointsNear
from fleet_tools.config.tasks import load_task
from fleet_tools.envs.success import Verdict
from fleet_tools.experts.assessment import (
    MOVED_M,
    Assessment,
    FailedAttempt,
    assess,
    describe,
    explanation,
)
from fleet_tools.experts.planner import plan
from fleet_tools.experts.problem import PlanningProblem
from fleet_tools.sim.world_state import WorldState

PROBLEM = planning_problem(0)
PLAN = plan(PROBLEM)
SUCCESS = load_task("hammer").success
steps = st.integers(0, len(PLAN.X_WE) - 1)


@pytest.fixture(name="start", scope="module")
def _start(hammer):
    hammer.reset(seed=0)
    return replace(hammer.world_state(), p_W_object=dict(PROBLEM.p_W_object))


def assess_changed(
    start: WorldState, step: int, problem: PlanningProblem = PROBLEM, **changes: Any
) -> Assessment | FailedAttempt:
    return assess(PLAN, problem, SUCCESS, step, start, replace(start, **changes))


def displaced(start: WorldState, p_W: np.ndarray) -> dict[str, np.ndarray]:
    return {name: p + p_W for name, p in start.p_W_object.items()}


@given(step=steps, distance=st.floats(0, 4 * MOVED_M), angle=st.floats(0, 6.28))
def test_a_moved_object_is_noticed_until_the_tool_acts_on_it(start, step, distance, angle):
    p_W = distance * np.array([np.cos(angle), np.sin(angle), 0])
    verdict = assess_changed(start, step, p_W_object=displaced(start, p_W), contacts=frozenset())
    moved = distance > MOVED_M * (1 + 1e-9)
    if abs(distance - MOVED_M) > 1e-9:
        assert (verdict is Assessment.OBJECT_MOVED) == (moved and step < PLAN.actuation)


@given(step=st.integers(0, PLAN.actuation - 1))
def test_an_object_moved_by_the_tool_is_on_track(start, step):
    contacts = frozenset({("object/nail", "tool")})
    p_W_object = displaced(start, np.array([0.0, 0.02, 0.0]))
    assert (
        assess_changed(start, step, p_W_object=p_W_object, contacts=contacts) is Assessment.ON_TRACK
    )


def test_a_plan_that_ends_without_success_has_failed(start):
    last = len(PLAN.X_WE) - 1
    failure = assess_changed(start, last)
    assert isinstance(failure, FailedAttempt)
    assert failure.keyframe == PLAN.names[-1] == f"after[{len(PROBLEM.expert.after) - 1}]"
    assert failure.unmet[0] == "the object's joint `slide` has moved by at least 0.02; now 0"
    assert assess_changed(start, last - 1) is Assessment.ON_TRACK
    joints = {"slide": start.object_joints["slide"] + 0.03}
    head = {**start.p_W_tool, "head": start.p_W_object["head"]}
    by_hand = assess_changed(start, last, object_joints=joints, p_W_tool=head)
    assert isinstance(by_hand, FailedAttempt)
    assert by_hand.unmet == (
        "by the tool's `face` itself: the object's joint `slide` has moved by at least 0.018; "
        "now 0",
    )
    motion = {"face": replace(start.part_motion["face"], object_joints={"slide": 0.03})}
    changes = {"object_joints": joints, "p_W_tool": head, "part_motion": motion}
    assert assess_changed(start, last, **changes) is Assessment.ON_TRACK


@pytest.mark.parametrize("keyframe", range(len(PLAN.keyframes) - 1))
def test_an_expectation_is_checked_at_its_keyframe(start, keyframe):
    expected = (JointDisplacement(type="joint_displacement", joint="slide", at_least=0.01),)
    expert = PROBLEM.expert
    before, after = list(expert.before), list(expert.after)
    actuation = expert.actuation.model_copy(update={"expect": ()})
    plain = [k.model_copy(update={"expect": ()}) for k in (*before, *after)]
    before, after = plain[: len(before)], plain[len(before) :]
    if keyframe < len(before):
        before[keyframe] = before[keyframe].model_copy(update={"expect": expected})
    elif keyframe == len(before):
        actuation = actuation.model_copy(update={"expect": expected})
    else:
        index = keyframe - len(before) - 1
        after[index] = after[index].model_copy(update={"expect": expected})
    expert = expert.model_copy(
        update={"before": tuple(before), "actuation": actuation, "after": tuple(after)}
    )
    problem = replace(PROBLEM, expert=expert)
    moved = {"slide": start.object_joints["slide"] + 0.02}
    for step in range(len(PLAN.X_WE) - 1):
        at_it = step == PLAN.keyframes[keyframe]
        verdict = assess_changed(start, step, problem)
        assert (verdict is not Assessment.ON_TRACK) == at_it
        if at_it:
            unmet = ("the object's joint `slide` has moved by at least 0.01; now 0",)
            assert verdict == FailedAttempt(PLAN.names[keyframe], unmet)
        assert assess_changed(start, step, problem, object_joints=moved) is Assessment.ON_TRACK


# --- In words -----------------------------------------------------------------------------

names = st.sampled_from(["before[0]", "actuation", "after[0]", "after[1]"])
failures = st.lists(st.builds(FailedAttempt, names, st.just(("contact tool and object",))))


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


@pytest.mark.parametrize(
    ("predicate", "verdict", "words"),
    [
        (
            JointDisplacement(type="joint_displacement", joint="slide", at_least=0.001),
            Verdict(False, 0.3),
            "the object's joint `slide` has moved by at least 0.001; now 0.0003",
        ),
        (
            KeypointsNear(type="keypoints_near", tool="face", object="base", within_m=0.05),
            Verdict(False, 0.5),
            "the tool's `face` is within 50 mm of the object's `base`; now 100 mm",
        ),
        (
            Contact(type="contact", between=("object", "table"), present=False),
            Verdict(False, 0.0),
            "the object and the table are not in contact",
        ),
        (
            AxisUpright(type="axis_upright", object=("base", "top"), within_deg=20),
            Verdict(False, 0.25),
            "the object's axis from `base` to `top` points upwards within 20 degrees; "
            "now 80 degrees",
        ),
    ],
)
def test_a_predicate_is_described_by_its_value_and_threshold(predicate, verdict, words):
    assert describe(predicate, verdict) == words
