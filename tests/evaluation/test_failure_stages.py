"""The stage at which an episode fails: laws of the stages, and episodes whose course is known."""

import json
from dataclasses import replace

import numpy as np
import pytest
from failure_stages import (
    BEGUN,
    NO_TRIAL,
    STAGES,
    Situation,
    _paired,
    main,
    stage_of,
    watch,
)
from hypothesis import given
from hypothesis import strategies as st
from pose_errors import pose_errors
from pydrake.math import RotationMatrix

from fleet_tools.policies.sources import find_policy
from fleet_tools.sim.splits import VALIDATION

moments = st.builds(Situation, st.booleans(), st.booleans(), st.floats(0, 1))
histories = st.lists(moments, min_size=1, max_size=8)
RANKS = {name: rank for rank, name in enumerate(STAGES[1:])} | {"slipped": 3, "moved in part": 3}


@given(histories, histories)
def test_an_episode_that_goes_on_never_falls_back(history, later):
    assert RANKS[stage_of(history + later, False)] >= RANKS[stage_of(history, False)]


@given(histories)
def test_the_object_alone_tells_whether_it_was_moved_and_the_tool_alone_whether_it_came(history):
    stage = stage_of(history, False)
    start, furthest = history[0].change, max(each.change for each in history)
    assert (stage == "moved enough") == (furthest == 1)
    moved = stage in ("moved enough", "moved in part", "slipped")
    assert moved == (furthest == 1 or furthest - start >= BEGUN * (1 - start))
    unmoved = [replace(each, change=0.0) for each in history]
    assert (stage_of(unmoved, False) == "in place") == any(each.placed for each in history)
    away = [replace(each, placed=False) for each in unmoved]
    assert (stage_of(away, False) == "no contact") != any(each.touching for each in history)
    assert stage_of(history, True) == "solved"


@pytest.fixture(scope="module", name="wrench")
def _wrench(make):
    return make("FleetTools/Wrench-v0")


@pytest.fixture(scope="module", name="solved")
def _solved(wrench):
    facts = watch(wrench, find_policy("expert"), VALIDATION[0], 360.0)
    return facts, wrench.world_state()


def test_the_expert_comes_to_the_pose_of_its_task_file(solved):
    facts, _ = solved
    assert facts["stage"] == "solved" and facts["change"] == 1
    assert facts["nearest"]["distance_mm"] < 2
    assert max(facts["nearest"][name] for name in ("right-left_deg", "lower-upper_deg")) < 3


def test_who_stays_touches_nothing(wrench):
    facts = watch(wrench, find_policy("zero"), VALIDATION[0], 360.0)
    assert facts["stage"] == "no contact" and facts["nearest"]["distance_mm"] > 50


@pytest.mark.parametrize("turns", [1, 2, -1])
def test_a_flat_further_round_is_as_near(wrench, solved, turns):
    """The wrench about the nut's axis, by 60 degrees: as well seated, and another angle."""
    _, state = solved
    axis = state.p_W_object["top"] - state.p_W_object["base"]
    angle = np.radians(60 * turns)
    half = np.append(np.cos(angle / 2), np.sin(angle / 2) * axis / np.linalg.norm(axis))
    w, x, y, z = half  # a rotation by its quaternion, beside the angles that are compared
    R = np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
    assert RotationMatrix(R).IsValid()
    nut = state.p_W_object["nut"]
    turned = replace(state, p_W_tool={k: nut + R @ (p - nut) for k, p in state.p_W_tool.items()})
    before, after = (pose_errors(wrench, each, 60.0) for each in (state, turned))
    assert before.keys() == after.keys() >= {"distance_mm", "across_mm", "above_mm"}
    np.testing.assert_allclose(list(after.values()), list(before.values()), atol=1.0)
    assert pose_errors(wrench, turned, 360.0)["right-left_deg"] > 55


def test_the_parts_of_a_distance_make_the_whole(solved):
    nearest = solved[0]["nearest"]
    whole = np.hypot(nearest["across_mm"], nearest["above_mm"])
    assert np.isclose(whole, nearest["distance_mm"])


def test_stored_episodes_are_not_run_again_and_others_are_refused(tmp_path, capsys):
    path = tmp_path / "facts.jsonl"
    options = ["--tool", "hammer", "--policies", "zero", "--scenes", "1", "--workers", "0"]
    options += ["--output", str(path)]
    assert main(options) == 0
    once = path.read_bytes()
    assert "| zero | 0 of 1 | 0% to 79% | 1 |" in capsys.readouterr().out
    assert main([*options, "--json"]) == 0
    assert path.read_bytes() == once
    (facts,) = json.loads(capsys.readouterr().out)["episodes"]["zero"]
    assert facts == json.loads(once)
    assert main([*options, "--repeats-deg", "60"]) == 0  # not the same facts
    assert path.read_bytes()[: len(once)] == once and path.read_bytes().count(b"\n") == 2
    path.write_bytes(once + once[:20])
    assert main(options) == 2
    assert "Line 2" in capsys.readouterr().err


def test_policies_of_one_name_are_refused(capsys):
    assert main(["--tool", "hammer", "--policies", "zero", "zero"]) == 2
    assert "the same name in tables: zero, zero" in capsys.readouterr().err


def test_an_episode_without_a_trial_counts_for_nobody():
    solved, failed, none = ({"stage": stage} for stage in ("solved", "beside", NO_TRIAL))
    with_it = _paired([solved, failed, none], [failed, failed, solved])
    assert with_it == _paired([solved, failed], [failed, failed])
    assert with_it[0].startswith("-50%")
