"""Ranks and success rates: their laws, the same numbers computed in another way, and attacks."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.shares import few
from support.submitted import (
    SMALL,
    evaluation_with,
    host_ran,
    random_evaluation,
    renamed,
    write,
    write_entry,
)

from fleet_tools.envs.outcomes import (
    OBJECT_LOST,
    POLICY_ERROR,
    SUCCESS,
    TIME_LIMIT,
    WORKER_ERROR,
)
from fleet_tools.evaluation.protocol import Protocol, Scenes
from fleet_tools.evaluation.result import Evaluation, decode_actions, encode_actions
from fleet_tools.evaluation.result_folder import RESULT, load_evaluation
from fleet_tools.leaderboard.board import Board, Method, SuccessRate
from fleet_tools.leaderboard.checks import host_digest
from fleet_tools.leaderboard.entries import read_entry
from fleet_tools.leaderboard.host import (
    HOST,
    VERIFICATION,
    evaluation_digest,
    open_round,
    publish,
)
from fleet_tools.leaderboard.standings import make_board, ranks
from fleet_tools.leaderboard.verification import same_share
from fleet_tools.utils.statistics import paired_interval, wilson_interval

PUSH = {"start_s": 1.0, "duration_s": 0.2, "horizontal_N": 20.0}
HARD = Protocol(**{**SMALL.model_dump(), "level": "hard", "hand_pushes": [PUSH]})
LEVELS = [SMALL, HARD]

LIMIT = st.integers(0, 20).map(lambda k: k / 20)
INTERVALS = st.lists(
    st.tuples(LIMIT, LIMIT).map(lambda limits: (min(limits), max(limits))), max_size=12
)
OUTCOMES = st.sampled_from([SUCCESS, TIME_LIMIT, OBJECT_LOST, POLICY_ERROR, WORKER_ERROR])


@pytest.fixture(name="root")
def _root(tmp_path: Path) -> Path:
    """A leaderboard with a round, and a method that solves everything."""
    open_round(tmp_path, SMALL, [], "1")
    add(tmp_path, "best", 1.0)
    return tmp_path


def fresh(root: Path) -> Protocol:
    return open_round(root, SMALL, []).protocol


def add(root: Path, name: str, rate: float, **others: Any) -> None:
    """Adds an entry that the host has run, with this success rate."""
    made = random_evaluation(rate, seed=len(name), name=name, protocol=fresh(root), **others)
    host_ran(root, write_entry(root, name), [made])


def board_of(root: Path, least: int = 16) -> Board:
    return make_board(root, LEVELS, least)[0]


def methods(root: Path, least: int = 16) -> dict[str, Method]:
    return {method.name: method for method in board_of(root, least).methods}


@given(INTERVALS)
def test_a_rank_counts_the_intervals_wholly_above(intervals):
    for (_, high), rank in zip(intervals, ranks(intervals), strict=True):
        assert rank == 1 + sum(low > high for low, _ in intervals)


@few(10)
@given(st.lists(OUTCOMES, min_size=32, max_size=32))
def test_success_rates_agree_with_counts_by_hand(tmp_path_factory, outcomes):
    root = tmp_path_factory.mktemp("board")
    open_round(root, SMALL, [], "1")
    protocol = fresh(root)
    pairs = [*zip(protocol.trials(), outcomes, strict=True)]
    by_key = {trial.key: outcome for trial, outcome in pairs}
    made = evaluation_with(lambda trial: by_key[trial.key], name="it", protocol=protocol)
    host_ran(root, write_entry(root, "it"), [made])
    method = methods(root)["it"]
    rates = []
    for task in SMALL.tasks:
        counted = [o for t, o in pairs if t.task == task]
        if counted:
            low, high = wilson_interval(counted.count(SUCCESS), len(counted))
            assert method.tasks[task].rate == pytest.approx(counted.count(SUCCESS) / len(counted))
            assert (method.tasks[task].low, method.tasks[task].high) == (low, high)
        for split in SMALL.splits:
            of_pair = [o for t, o in pairs if (t.task, t.split) == (task, split)]
            rates += [of_pair.count(SUCCESS) / len(of_pair)] if of_pair else []
    assert method.score is not None
    if rates:
        assert method.score.rate == pytest.approx(np.mean(rates))
    assert sum(method.failures.values()) == sum(o != SUCCESS for o in outcomes)


def test_policies_for_single_tasks_and_several_training_runs_are_one_method(root):
    protocol = fresh(root)
    policies = [
        {"policy": "checkpoints/it.safetensors", "tasks": [task], "training_seed": seed}
        for seed in (0, 1)
        for task in SMALL.tasks
    ]
    made = [
        random_evaluation(
            0.5, k, name="runs", protocol=protocol, tasks=each["tasks"],
            training_seed=each["training_seed"],
        )
        for k, each in enumerate(policies)
    ]  # fmt: skip
    host_ran(root, write_entry(root, "runs", *policies), made)
    method = methods(root)["runs"]
    strata = [
        np.mean([e.success for each in made for e in each.episodes if (e.task, e.split) == pair])
        for pair in [(task, split) for task in SMALL.tasks for split in SMALL.splits]
    ]
    assert method.score is not None and method.score.rate == pytest.approx(np.mean(strata))
    assert method.rank is not None


def test_a_method_without_every_task_or_with_few_scenes_has_no_rank(root):
    part = evaluation_with(lambda t: SUCCESS, "part", fresh(root), ["knife"])
    host_ran(root, write_entry(root, "part", {"policy": "zero", "tasks": ["knife"]}), [part])
    found = methods(root)
    assert (found["part"].rank, found["part"].score, found["best"].rank) == (None, None, 1)
    assert found["part"].tasks["knife"].rate == 1
    assert methods(root, least=30)["best"].rank is None  # two splits of eight scenes


def test_a_rank_and_the_track_come_from_what_the_host_ran(root):
    add(root, "poor", 0.1)
    seen = {"obs_mode": "point_cloud", "cloud_source": "rays"}
    add(root, "sees", 0.1, **seen)
    add(root, "told", 0.0, obs_mode="cloud_and_keypoints", cloud_source="rays")
    found = methods(root)
    assert {name: (each.rank, each.track) for name, each in found.items()} == {
        "best": (1, "keypoints"),
        "poor": (2, "keypoints"),
        "told": (2, "keypoints"),
        "sees": (1, "clouds"),
    }
    assert found["best"].letters == "a" and "a" not in found["poor"].letters
    assert board_of(root).methods[0].name == "best"


def test_the_seed_is_on_the_board_once_it_is_public(root):
    assert board_of(root).seed_published is None
    publish(root)
    assert board_of(root).seed_published == "1"


# --- Attacks --------------------------------------------------------------------------------


def submit(root: Path, evaluation: Evaluation, level: str = "nominal", folder: str = "") -> Path:
    name = evaluation.result.policy.name
    return write(evaluation, root / "entries" / name / "results" / level / folder)


def test_no_submitted_result_gives_a_rank(root):
    """An edited result of the expert's was 100% and rank 1 in three tracks at once."""
    expert = evaluation_with(lambda trial: SUCCESS, name="expert")
    tracks = {
        "keypoints": {"obs_mode": "state"},
        "clouds": {"obs_mode": "point_cloud"},
        "images": {"obs_mode": "rgbd"},
    }
    for track, env_kwargs in tracks.items():
        name = f"my_{track}"
        entry = write_entry(root, name, track=track)
        (entry.folder / "entry.yaml").write_text(
            json.dumps({**entry.file.model_dump(mode="json"), "policies": []})
        )
        submit(root, renamed(expert, name, env_kwargs=env_kwargs))
    found = methods(root)
    for track in tracks:
        mine = found[f"my_{track}"]
        assert mine.self_reported and mine.rank is None and mine.score is None
        assert (level := mine.levels["nominal"]) is not None and level.rate == 1.0
        assert len(mine.same_actions_as) == 2  # the copies of each other
    assert found["best"].rank == 1


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_byte_of_a_submitted_result_changes_a_rank(root, data):
    folder = root / "entries" / "best" / "results" / "nominal"
    if not folder.exists():
        submit(root, evaluation_with(lambda trial: TIME_LIMIT, name="best"))
        add(root, "poor", 0.2)
    before = {name: (each.rank, each.score, each.track) for name, each in methods(root).items()}
    path = data.draw(st.sampled_from(sorted(each for each in folder.iterdir() if each.is_file())))
    content = path.read_bytes()
    place = data.draw(st.integers(0, len(content) - 1))
    try:
        path.write_bytes(content[:place] + data.draw(st.binary(max_size=3)) + content[place + 1 :])
        found = methods(root)
    finally:
        path.write_bytes(content)
    assert {name: (each.rank, each.score, each.track) for name, each in found.items()} == before


def test_a_checkpoint_that_changes_after_its_verification_loses_the_rank(root):
    (root / "entries/best/checkpoints/it.safetensors").write_bytes(b"better ones")
    board = board_of(root)
    assert (board.methods[0].rank, board.methods[0].score) == (None, None)
    (rejection,) = board.rejections
    assert "have changed since the host ran them" in rejection.reason


def test_a_record_that_the_host_did_not_write_gives_no_rank(root):
    """Who submits does not know the seed, and cannot move the record of another one."""
    add(root, "poor", 0.0)
    entry = write_entry(root, "forger")
    made = evaluation_with(lambda trial: SUCCESS, "forger", fresh(root))
    host_ran(root, entry, [made])
    record = root / HOST / "forger" / VERIFICATION
    content = json.loads(record.read_text())
    for changes in ({"seal": "0" * 64}, {"verified": "tomorrow"}, {"name": "best"}):
        record.write_text(json.dumps({**content, **changes}))
        assert methods(root)["forger"].rank is None
    record.write_text((root / HOST / "best" / VERIFICATION).read_text())
    assert methods(root)["forger"].rank is None
    record.write_text("{")
    board = board_of(root)
    assert [each.folder for each in board.rejections] == ["host/forger"]
    assert {each.name: each.rank for each in board.methods}["best"] == 1


def test_an_edited_run_of_the_host_gives_no_rank(root):
    add(root, "poor", 0.0)
    (result,) = (root / HOST / "poor").rglob(RESULT)
    content = result.read_text()
    result.write_text(content.replace('"state"', '"rgbd"'))
    assert content != result.read_text()
    board = board_of(root)
    assert {each.name: each.rank for each in board.methods} == {"best": 1, "poor": None}
    assert "changed since" in board.rejections[0].reason


def test_renamed_copies_are_shown_and_only_the_first_has_a_rank(root):
    """Whether their weights are the same bytes, or merely act the same."""
    add(root, "zz_first", 0.5)
    copied = evaluation_with(lambda t: SUCCESS, "aa_copy", fresh(root), actions="zz_first")
    host_ran(root, write_entry(root, "aa_copy"), [copied])
    weights = (root / "entries/zz_first/checkpoints/it.safetensors").read_bytes()
    write_entry(root, "bytes", content=weights)
    found = methods(root)
    assert found["zz_first"].rank is not None
    assert found["zz_first"].same_actions_as == ("aa_copy", "bytes")
    for name in ("aa_copy", "bytes"):
        assert found[name].rank is None and "zz_first" in found[name].same_actions_as
    assert found["best"].same_actions_as == ()


@given(st.data())
def test_who_sees_well_begins_like_who_knows_and_is_a_copy_if_all_actions_are_equal(data):
    knows = evaluation_with(lambda trial: SUCCESS, name="knows").episodes
    step, axis = data.draw(st.integers(0, 1)), data.draw(st.integers(0, 5))

    def seen(episode):
        actions = np.array(decode_actions(episode.actions))
        actions[step, axis] += 2**-12  # the smallest change that an environment executes
        return episode.model_copy(update={"actions": encode_actions(actions)})

    sees = [seen(each) for each in knows]
    assert same_share(knows, knows, whole=True) == 1
    assert (same_share(knows, sees), same_share(knows, sees, whole=True)) == (1, 0)


def test_a_result_of_another_policy_or_place_is_rejected_alone(root):
    folder = submit(root, evaluation_with(lambda trial: SUCCESS, name="best"), folder="0")
    assert (score := methods(root)["best"].levels["nominal"]) is not None and score.rate == 1
    wrong = {
        "not in the entry": renamed(
            evaluation_with(lambda trial: SUCCESS, name="best"), content_digest="cd" * 16
        ),
        "its place is results/nominal": evaluation_with(lambda trial: SUCCESS, name="best"),
        "has the name 'expert'": renamed(
            evaluation_with(lambda trial: SUCCESS, name="best"), name="expert"
        ),
        "already has results of hammer": evaluation_with(lambda trial: SUCCESS, name="best"),
        "has only 0 of 2 scenes of unseen_tools of knife": evaluation_with(
            lambda trial: SUCCESS, name="best"
        ),
    }
    for number, (reason, evaluation) in enumerate(wrong.items()):
        level = "hard" if "place" in reason else "nominal"
        if "only" in reason:
            evaluation.episodes[:] = [
                e for e in evaluation.episodes if e.key[:2] != ("knife", "unseen_tools")
            ]
        write(evaluation, folder.parents[1] / level / f"wrong{number}")
        (rejection,) = board_of(root).rejections
        assert reason in rejection.reason, rejection
        assert methods(root)["best"].rank == 1
        shutil.rmtree(folder.parents[1] / level / f"wrong{number}")


def test_a_result_of_a_former_protocol_says_what_to_do(root):
    former = SMALL.model_copy(update={"version": 7})
    submit(root, evaluation_with(lambda trial: SUCCESS, "best", former))
    (rejection,) = board_of(root).rejections
    assert "it follows 'small v7'" in rejection.reason
    assert "fleet-tools evaluate --level LEVEL --name best" in rejection.reason


def test_what_the_host_refuted_is_not_shown(root):
    folder = submit(root, evaluation_with(lambda trial: SUCCESS, name="best"))
    made = random_evaluation(1.0, name="best", protocol=fresh(root))
    import shutil

    digest = evaluation_digest(load_evaluation(folder))
    shutil.rmtree(root / HOST / "best")
    entry = read_entry(root / "entries" / "best")
    host_ran(root, entry, [made], checked={"results/nominal": (digest, "4 of 4 go otherwise")})
    board = board_of(root)
    assert "4 of 4 go otherwise" in board.rejections[0].reason
    assert board.methods[0].levels["nominal"] is None and board.methods[0].rank == 1


# --- Levels ---------------------------------------------------------------------------------


@few(10)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=10, max_size=10))
def test_the_cost_of_a_level_is_the_paired_difference(tmp_path_factory, outcomes):
    root = tmp_path_factory.mktemp("board")
    write_entry(root, "it")
    trials = SMALL.trials()
    for side, level in enumerate(LEVELS):
        by_key = {t.key: o[side] for t, o in zip(trials, outcomes, strict=True)}
        made = evaluation_with(
            lambda trial, by_key=by_key: SUCCESS if by_key[trial.key] else TIME_LIMIT, "it", level
        )
        submit(root, made, level.level_name)
    levels = methods(root)["it"].levels
    easy, hard = levels["nominal"], levels["hard"]
    assert easy is not None and easy.cost is None
    assert hard is not None and hard.cost is not None
    strata = []
    for pair in dict.fromkeys((t.task, t.split) for t in trials):
        of_pair = [o for t, o in zip(trials, outcomes, strict=True) if (t.task, t.split) == pair]
        strata.append((of_pair.count((True, False)), of_pair.count((False, True)), len(of_pair)))
    assert hard.cost.pairs == 10
    assert hard.cost.difference == pytest.approx(np.mean([(a - b) / n for a, b, n in strata]))
    assert (hard.cost.low, hard.cost.high) == pytest.approx(paired_interval(strata))
    assert easy.rate is not None and hard.rate is not None
    assert hard.cost.difference == pytest.approx(easy.rate - hard.rate)


def test_only_the_same_scenes_are_pairs(root):
    other = HARD.model_copy(
        update={
            "splits": {
                n: Scenes(scenes=2, first_seed=s.first_seed + 7)
                for n, s in SMALL.splits.items()
                if isinstance(s, Scenes)
            }
        }
    )
    submit(root, evaluation_with(lambda trial: SUCCESS, "best"))
    submit(root, evaluation_with(lambda trial: SUCCESS, "best", other), "hard")
    board, _ = make_board(root, [SMALL, other])
    assert (score := board.methods[0].levels["hard"]) is not None
    assert (score.rate, score.cost) == (1.0, None)


def test_a_method_without_results_at_a_level_has_none_there(root):
    assert methods(root)["best"].levels == {"nominal": None, "hard": None}
    assert isinstance(methods(root)["best"].score, SuccessRate)
    assert host_digest(SMALL) != host_digest(HARD)
