"""Attacks on the rules of success, and honest work beside them; the long runs are marked slow."""

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import red_team
from cheats import CHEATS, OTHERS
from cheats.motion import ScriptPolicy
from cheats.trial import Attacked, attacked_scene, run_trial
from cheats.witness import who_did_what_remains
from hypothesis import given
from hypothesis import strategies as st
from support.shares import quick_first

from fleet_tools.config.tasks import task_names
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.evaluation.protocol_file import load_protocol
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.registration import env_id
from fleet_tools.rollouts.rollout import rollout

Make = Callable[..., ToolUseEnv]

REST = np.zeros(6, np.float32)


class Honest(ExpertPolicy):
    """The expert as an attack that never gives up."""

    ended = False


def cheat(env: ToolUseEnv, name: str, seed: int = 0) -> Attacked:
    """Runs a scripted cheat in one scene."""
    script = CHEATS[env.task.name][name]
    scene = attacked_scene(env, seed, OTHERS.get(script))
    return run_trial(env, ScriptPolicy(env, script), scene)


def test_every_task_is_attacked_in_several_ways():
    assert CHEATS.keys() == set(task_names())
    assert all(len(cheats) >= 6 for cheats in CHEATS.values())


@pytest.mark.parametrize(
    ("name", "seed", "tool", "object"),
    [
        ("knuckle", 0, "claw", "round_nail"),
        ("grip", 0, "claw", "round_nail"),
        ("cheek_at_the_face", 2, "club", "square_spike"),  # 8 mm behind the face
    ],
)
def test_a_nail_that_the_face_did_not_push_in(make, name, seed, tool, object):
    trial = cheat(make(tool=tool, object=object), name, seed)
    assert trial.deed and trial.old_success
    assert not trial.success and trial.by_part < 0.15


UNDONE = {
    "hammer": "pulled_out",
    "knife": "closed_again",
    "pry_bar": "pressed_shut",
    "screwdriver": "turned_back",
    "spatula": "handed_again",
    "wrench": "turned_back",
}
"""Cheats that undo what the tool's part did, and do it again otherwise."""


@pytest.mark.parametrize(
    "task", [t if t == "pry_bar" else pytest.param(t, marks=pytest.mark.slow) for t in UNDONE]
)
def test_what_was_undone_and_done_again_otherwise_is_no_longer_the_parts(make: Make, task: str):
    env = make(env_id(task), split="all")
    limit = red_team.PATIENCE * env.task.time_limit_s
    env.task = env.task.model_copy(update={"time_limit_s": limit})
    # In scene 0 the bar levers so far that it is an honest success.
    trial = cheat(env, UNDONE[task], seed=1 if task == "pry_bar" else 0)
    assert trial.deed and not trial.success
    assert trial.by_part > 0.6  # before it was undone
    assert env.verdicts()["success[1] caused_by_part"].progress < 0.9


@pytest.mark.parametrize("seed", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_block_that_the_blade_shoved_along_the_seam_from_its_end(make: Make, seed: int):
    trial = cheat(make(env_id("knife"), split="all"), "from_the_end", seed)
    assert trial.deed and trial.old_success and not trial.success and trial.by_part < 0.1


PUSHED = load_protocol("v1", "pushes").scene_rules()


@pytest.mark.parametrize("task", quick_first(["hammer", "spatula", *task_names()], 2))
def test_who_does_nothing_in_a_scene_with_pushes_is_credited_with_nothing(make: Make, task: str):
    env = make(env_id(task), split="all")
    for seed in (0, 1):
        env.reset(options={"scene": attacked_scene(env, seed, rules=PUSHED)})
        infos = [env.step(REST)[4] for _ in range(10)]  # the pushes on the object are over
        assert not infos[-1]["success_once"]
        (motion,) = env.world_state().part_motion.values()
        for moved in (*motion.object_joints.values(), *motion.p_W_object.values()):
            assert not np.any(moved)


def test_a_cheat_is_none_the_better_for_pushes(make: Make):
    env = make(tool="claw", object="round_nail")
    policy = ScriptPolicy(env, CHEATS["hammer"]["knuckle"])
    trial = run_trial(env, policy, attacked_scene(env, 0, rules=PUSHED))
    assert trial.deed and not trial.success and trial.by_part < 0.1


@pytest.mark.parametrize("task", ["wrench", pytest.param("knife", marks=pytest.mark.slow)], ids=str)
def test_an_object_that_the_hand_moved(make: Make, task: str):
    trial = cheat(make(env_id(task), split="all"), "knuckle")
    assert trial.deed and trial.old_success and not trial.success


whos = st.sampled_from([frozenset("a"), frozenset("b"), frozenset("ab")])
paths = st.lists(st.tuples(whos, st.integers(-20, 20)), min_size=1, max_size=12)


@given(paths, st.integers(-20, 20))
def test_the_witness_counts_who_last_passed_each_place(path, end):
    """Found by walking along the path place by place."""
    places = [*(value for _, value in path), end]
    passed = {}
    for (who, start), stop in zip(path, places[1:], strict=True):
        for place in range(start, stop):
            passed[place] = who
        for place in range(stop, start):
            passed.pop(place, None)
    found = who_did_what_remains(path, end)
    for who in (frozenset("a"), frozenset("b"), frozenset("ab")):
        expected = sum(passed[place] == who for place in range(places[0], end))
        assert found.get(who, 0) == expected


def test_the_witness_confirms_honest_work(hammer: ToolUseEnv):
    trial = run_trial(hammer, Honest(hammer), attacked_scene(hammer, 0))
    assert trial.success and not trial.false_success
    assert trial.change["part"] > 0.018


def test_a_slab_that_something_else_laid_upon_the_raised_blade(make: Make):
    env = make("FleetTools/Spatula-v0")
    assert rollout(env, ExpertPolicy(env), seed=0).outcome == "success"
    held = replace(env.get_state(), outcome="running", steps_held=0, success_once=False)
    nobody = np.zeros_like(held.snapshot.attribution)
    snapshot = replace(held.snapshot, step=0)
    env.set_state(replace(held, snapshot=snapshot))
    assert env.step(REST)[4]["success"]
    env.set_state(replace(held, snapshot=replace(snapshot, attribution=nobody)))
    infos = [env.step(REST)[4] for _ in range(env.task.success_steps + 2)]
    info = infos[-1]
    unmet = [name for name, verdict in info["verdicts"].items() if not verdict["holds"]]
    assert unmet == ["success[1] caused_by_part"] and info["outcome"] == "running"


@pytest.mark.slow
@pytest.mark.parametrize("task", task_names())
def test_no_attack_has_a_false_success(task: str, capsys: pytest.CaptureFixture[str]):
    options = ["--scenes", "2", "--cem-scenes", "1", "--cem-iterations", "1", "--workers", "0"]
    kinds = ["--kinds", "cheat", "search"]
    assert red_team.main(["--tool", task, *options, *kinds, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {row["script"] for row in report["rows"]} == {*CHEATS[task], red_team.SEARCH}
    assert report["wrong"] == {"cheat": 0, "search": 0} and report["lost"] == []
    assert sum(row["denied"] for row in report["rows"]) > 0


def test_an_unknown_cheat_is_refused(capsys: pytest.CaptureFixture[str]):
    assert red_team.main(["--tool", "hammer", "--only", "gripp"]) == 2
    assert "grip" in capsys.readouterr().err
