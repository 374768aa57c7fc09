"""Honest ways that are no way of the expert: what they do counts; the long runs are slow."""

import json
from collections.abc import Callable

import pytest
import red_team
from cheats import CHEATS
from cheats.motion import DrivenArm, ScriptPolicy
from cheats.trial import attacked_scene, run_trial
from honest_ways import HONEST
from honest_ways.edits import edited, slowed, translate

from fleet_tools.config.tasks import load_task
from fleet_tools.envs.tool_use_env import ToolUseEnv

Make = Callable[..., ToolUseEnv]

QUICK = ["soft_blows", "press", "from_the_left", "tilted", "leaves_at_once"]
"""Ways on the hammer task of half a second."""


REFUSED = {"knife": {"both_blocks", "farther"}}
"""Ways that the task's rules refuse in every scene, as docs/results/red_team.md explains."""


@pytest.mark.parametrize("way", QUICK)
def test_a_nail_that_the_face_drove_otherwise_than_the_expert(make: Make, way: str):
    env = make(tool="claw", object="round_nail")
    scene = attacked_scene(env, 1, loosened=False)
    trial = run_trial(env, ScriptPolicy(env, HONEST["hammer"][way]), scene)
    assert trial.success and trial.done and not trial.false_success


def test_a_nut_that_two_strokes_turned_with_a_new_seat_between_them(make: Make):
    env = make("FleetTools/Wrench-v0", split="all")
    scene, seats, touched = attacked_scene(env, 3, loosened=False), 0, False

    def watch() -> None:
        nonlocal seats, touched
        before, touched = touched, env.world_state().in_contact("tool", "object/nut")
        seats += touched and not before

    trial = run_trial(env, ScriptPolicy(env, HONEST["wrench"]["two_strokes"]), scene, watch)
    assert trial.success and trial.done and seats >= 2


def test_the_other_block_may_be_the_one_that_moves(make: Make):
    env = make("FleetTools/Knife-v0", split="all")
    scene = attacked_scene(env, 3, loosened=False)
    trial = run_trial(env, ScriptPolicy(env, HONEST["knife"]["other_block"]), scene)
    assert trial.success and trial.done


def test_ways_and_cheats_are_different_scripts():
    assert HONEST.keys() <= CHEATS.keys()
    assert all(len(ways) >= 8 for ways in HONEST.values())
    honest = {script for ways in HONEST.values() for script in ways.values()}
    assert not honest & {script for cheats in CHEATS.values() for script in cheats.values()}


def test_another_plan_leaves_the_tasks_own_as_it_is(hammer: ToolUseEnv):
    expert = load_task("hammer").expert
    other = edited(expert, terms={0: {"offset_m": (0.0, 0.0, 0.05)}}, after=[], speed=0.2)
    assert other.after == () and other.before == expert.before
    assert other.actuation.constraints[1:] == expert.actuation.constraints[1:]
    assert slowed(slowed(expert, 0.5), 0.5) == slowed(expert, 0.25) != expert == edited(expert)
    hammer.reset(seed=0)
    raised = edited(expert, after=[translate(0.0, 0.0, 0.05)])
    for action in DrivenArm(hammer).follow_expert(raised):
        hammer.step(action)
    state = hammer.world_state()
    assert 0.03 < state.p_W_tool["head"][2] - state.p_W_object["head"][2] < 0.07
    assert hammer.task.expert == expert


@pytest.mark.slow
@pytest.mark.parametrize("task", sorted(HONEST))
def test_what_is_refused_is_named_with_its_cause(task: str, capsys: pytest.CaptureFixture[str]):
    options = ["--scenes", "1", "--first-seed", "101", "--workers", "0", "--json"]
    code = red_team.main(["--tool", task, "--kinds", "honest", *options])
    assert code == (1 if task in REFUSED else 0)
    report = json.loads(capsys.readouterr().out)
    assert [row["script"] for row in report["rows"]] == list(HONEST[task]) and report["lost"] == []
    assert sum(row["successes"] for row in report["rows"]) >= 0.7 * len(report["rows"])
    assert {row["script"] for row in report["rows"] if row["wrong"]} == REFUSED.get(task, set())
    for row in report["rows"]:
        assert row["episodes"] == row["not_done"] + row["denied"] + row["successes"]
        assert row["wrong"] == row["denied"] and bool(row["why"]) == bool(row["denied"])


def test_an_honest_way_is_no_cheat(capsys: pytest.CaptureFixture[str]):
    assert red_team.main(["--tool", "hammer", "--kinds", "honest", "--only", "grip"]) == 2
    assert "grip" in capsys.readouterr().err
