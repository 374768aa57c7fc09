"""Submitted results: genuine ones are accepted, all others are rejected with the reason."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.submitted import SMALL, random_evaluation, renamed, write

from fleet_tools.envs.outcomes import SIMULATION_ERROR, SUCCESS, TIME_LIMIT, WORKER_ERROR
from fleet_tools.evaluation.packed_episodes import write_episodes
from fleet_tools.evaluation.result import Evaluation
from fleet_tools.evaluation.result_folder import EPISODES, PACKED, RESULT
from fleet_tools.evaluation.scores import score
from fleet_tools.leaderboard.checks import Problem
from fleet_tools.leaderboard.records import content_digest
from fleet_tools.leaderboard.result_folders import find_result_folders
from fleet_tools.leaderboard.submissions import read_checked, read_submissions

GENUINE = random_evaluation(0.5, seed=1, name="theirs")

Change = Callable[[Path], object]
"""Changes the files of a result's folder."""


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    return write(GENUINE, tmp_path / "results" / "theirs")


@pytest.fixture(name="scratch", scope="module")
def _scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(GENUINE, tmp_path_factory.mktemp("scratch") / "theirs")


def problems(folder: Path) -> list[Problem]:
    """Returns the problems of a result; none if it is accepted."""
    checked = read_checked(folder, SMALL)
    return [] if isinstance(checked, Evaluation) else checked


def kinds(folder: Path) -> set[str]:
    return {problem.kind for problem in problems(folder)}


def test_a_genuine_result_is_accepted_as_it_is_in_any_order_of_lines(folder):
    assert read_checked(folder, SMALL) == GENUINE
    (submission,), rejections = read_submissions(folder.parent, [SMALL])
    assert (submission.folder, submission.tasks, rejections) == ("theirs", SMALL.tasks, [])
    lines = (folder / EPISODES).read_text().splitlines(keepends=True)
    (folder / EPISODES).write_text("".join(random.Random(0).sample(lines, len(lines))))
    assert read_checked(folder, SMALL) == GENUINE


def test_compressed_episodes_are_accepted_and_a_damaged_file_is_one_problem(folder):
    of_log = content_digest(folder)
    assert write_episodes(folder / PACKED, GENUINE.episodes)
    for remains in (True, False):  # after a kill, a log may lie beside them
        assert read_checked(folder, SMALL) == GENUINE
        assert find_result_folders(folder.parent) == ([folder], [])
        if remains:
            (folder / EPISODES).unlink()
    assert content_digest(folder) != of_log
    content = (folder / PACKED).read_bytes()
    (folder / PACKED).write_bytes(content[:-100])
    (problem,) = problems(folder)
    assert problem.kind == "damaged" and problem.reason.startswith("episodes.parquet is damaged")


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(file=st.sampled_from([RESULT, EPISODES]), data=st.data())
def test_any_changed_byte_is_found_or_changes_no_score(scratch, file, data):
    text = (scratch / file).read_bytes()
    digits = [k for k, byte in enumerate(text) if chr(byte).isdigit()]
    position = data.draw(st.sampled_from(digits) | st.integers(0, len(text) - 1))
    byte = data.draw(st.sampled_from(b"0123456789") | st.integers(0, 255))
    try:
        (scratch / file).write_bytes(text[:position])
        assert kinds(scratch)  # truncated anywhere it is rejected
        (scratch / file).write_bytes(text[:position] + bytes([byte]) + text[position + 1 :])
        checked = read_checked(scratch, SMALL)
    finally:
        (scratch / file).write_bytes(text)
    if isinstance(checked, Evaluation):
        assert score(SMALL, checked.episodes) == GENUINE.result.scores
        assert checked.result.protocol_digest == GENUINE.result.protocol_digest
    else:
        assert checked
        assert all(problem.reason for problem in checked)


def _episodes(change: Callable[[list[dict[str, Any]]], list[dict[str, Any]] | None]) -> Change:
    def tamper(folder: Path) -> None:
        lines = [json.loads(line) for line in (folder / EPISODES).read_text().splitlines()]
        lines = change(lines) or lines
        (folder / EPISODES).write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    return tamper


def _first(**values: Any) -> Change:
    """Changes values of the first episode."""
    return _episodes(lambda lines: lines[0].update(values))


def _result(change: Callable[[dict[str, Any]], object]) -> Change:
    def tamper(folder: Path) -> None:
        result = json.loads((folder / RESULT).read_text())
        change(result)
        (folder / RESULT).write_text(json.dumps(result) + "\n")

    return tamper


def _text(file: str, old: str, new: str) -> Change:
    def tamper(folder: Path) -> None:
        text = (folder / file).read_text()
        assert old in text
        (folder / file).write_bytes(text.replace(old, new, 1).encode())

    return tamper


def _claim_success(lines: list[dict[str, Any]]) -> None:
    failed = next(line for line in lines if not line["success"])
    failed.update(outcome=SUCCESS, success=True, success_once=True)


def _blame_simulator(lines: list[dict[str, Any]]) -> None:
    for line in lines:
        if not line["success"]:
            line["outcome"] = SIMULATION_ERROR


@pytest.mark.parametrize(
    ("tamper", "kind"),
    [
        (_episodes(lambda lines: lines[:-1]), "incomplete scores"),
        (_episodes(lambda lines: lines + lines[:1]), "episodes"),
        (_episodes(lambda lines: [*lines, {**lines[0], "index": 77}]), "episodes"),
        (_episodes(lambda lines: [*lines, {**lines[0], "task": "wrench"}]), "episodes"),
        (_episodes(lambda lines: lines[0].update(seed=lines[1]["seed"])), "episodes"),
        (_first(outcome="triumph", success=False), "episodes"),
        (_episodes(lambda lines: lines.clear()), "damaged"),
        (_first(tool="club"), "scenes"),
        (_first(scene_digest="0" * 16), "scenes"),
        (_episodes(lambda lines: lines[0].update(success=not lines[0]["success"])), "damaged"),
        (_first(steps=3), "damaged"),
        (_first(rank=1), "damaged"),
        (_first(seconds=float("nan")), "damaged"),
        (_first(info={"x": float("inf")}), "damaged"),
        (_episodes(_claim_success), "scores"),
        (_episodes(_blame_simulator), "scores"),
        (_result(lambda r: r["scores"]["total"]["success"].update(rate=0.99)), "scores"),
        (_result(lambda r: r["scores"]["total"]["success"].update(low=0.9)), "scores"),
        (_result(lambda r: r["scores"]["tasks"].pop("knife")), "scores"),
        (_result(lambda r: r["scores"]["total"].update(policy_errors=1)), "scores"),
        (_result(lambda r: r.update(complete=False)), "scores"),
        (_result(lambda r: r.update(scores=None)), "incomplete"),
        (_result(lambda r: r.update(schema_version=2)), "schema"),
        (_result(lambda r: r.update(schema_version=True)), "schema"),
        (_result(lambda r: r.update(schema_version=1.0)), "schema"),
        (_result(lambda r: r.pop("schema_version")), "schema"),
        (lambda folder: (folder / RESULT).write_text("[]\n"), "schema"),
        (_result(lambda r: r.update(protocol_digest="0" * 16)), "damaged"),
        (_result(lambda r: r["protocol"].update(version=2)), "damaged"),
        (_result(lambda r: r["task_digests"].update(hammer="0" * 16)), "damaged"),
        (_result(lambda r: r["packages"].update(drake="1.50.0")), "physics"),
        (_result(lambda r: r["packages"].pop("drake")), "physics"),
        (_result(lambda r: r["scores"]["total"].update(end={})), "damaged"),
        (_result(lambda r: r["policy"].pop("track")), "damaged"),
        (_result(lambda r: r.update(scores=[])), "damaged"),
        (_result(lambda r: r.update(policy="zero")), "damaged"),
        (_text(RESULT, '"complete"', '"complete": true, "complete"'), "damaged"),
        (_text(EPISODES, '"success":true', '"success":false,"success":true'), "damaged"),
        (_text(EPISODES, "\n", "\n\n"), "damaged"),
        (_text(EPISODES, "\n", "\r"), "damaged"),
        (lambda folder: (folder / EPISODES).write_bytes(b"\xff\n"), "damaged"),
        (lambda folder: (folder / EPISODES).write_text("[]\n"), "damaged"),
        (lambda folder: (folder / EPISODES).write_text("[" * 100_000 + "\n"), "damaged"),
        (lambda folder: (folder / RESULT).write_text("[" * 100_000 + "\n"), "damaged"),
        (lambda folder: (folder / EPISODES).unlink(), "damaged"),
        (lambda folder: (folder / RESULT).unlink(), "damaged"),
    ],
)
def test_a_tampered_result_is_rejected(folder, tamper, kind):
    tamper(folder)
    assert kinds(folder) == {*kind.split()}
    accepted, rejections = read_submissions(folder.parent, [SMALL])
    assert accepted == []
    assert {(rejection.folder, rejection.kind) for rejection in rejections} == {
        ("theirs", each) for each in kind.split()
    }
    assert not any(str(folder.parent) in rejection.reason for rejection in rejections)


def test_wrong_scores_are_named_by_their_location(folder):
    change = {"successes": 9}
    _result(lambda r: r["scores"]["strata"]["knife"]["train"]["success"].update(change))(folder)
    (problem,) = problems(folder)
    assert problem.reason.startswith("scores.strata.knife.train.success.successes is 9, but")


@pytest.mark.parametrize("depth", [100, 300, 900, 10_000])
def test_deeply_nested_scores_are_rejected(folder, depth):
    nested = '{"x": ' * depth + "{}" + "}" * depth
    _result(lambda r: r.update(scores="NESTED"))(folder)
    _text(RESULT, '"NESTED"', nested)(folder)
    assert kinds(folder) == {"damaged"}


def test_a_result_of_another_protocol_is_rejected(tmp_path):
    other = SMALL.model_copy(update={"version": 2})
    (problem,) = problems(write(random_evaluation(0.5, protocol=other), tmp_path / "theirs"))
    assert problem.kind == "protocol" and "required is 'small v1'" in problem.reason


def test_all_problems_are_named_at_once(folder):
    def change(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        lines[0]["seed"] += 1
        return lines[:-1]

    _episodes(change)(folder)
    missing, other_seed = problems(folder)
    assert "missing episodes of the covered tasks: 1," in missing.reason
    assert "episodes with other seeds than in the protocol: 1," in other_seed.reason


def test_complete_tasks_are_enough_and_parts_of_tasks_are_not(tmp_path):
    folder = write(random_evaluation(0.5, tasks=["knife"]), tmp_path / "knife")
    assert not problems(folder)
    (folder / EPISODES).write_text((folder / EPISODES).read_text().split("\n", 1)[1])
    assert kinds(folder) == {"incomplete", "scores"}


# --- Incomplete results -----------------------------------------------------------------------


def without_last_scenes(evaluation: Evaluation, count: int) -> Evaluation:
    """Returns the evaluation as if the last scenes of each task and split had not been run."""
    protocol = evaluation.result.protocol
    kept = [
        episode
        for episode in evaluation.episodes
        if episode.index < protocol.splits[episode.split].scenes - count
    ]
    update = {"complete": False, "scores": score(protocol, kept)}
    return Evaluation(evaluation.result.model_copy(update=update), kept)


def test_a_preview_shows_an_incomplete_result_with_what_is_missing(tmp_path):
    partial = without_last_scenes(random_evaluation(0.5, name="partial"), 1)
    folder = write(partial, tmp_path / "partial")
    write(renamed(GENUINE, "genuine"), tmp_path / "genuine")
    assert kinds(folder) == {"incomplete"}
    accepted, (rejection,) = read_submissions(tmp_path, [SMALL])
    assert ([each.folder for each in accepted], rejection.folder) == (["genuine"], "partial")
    (genuine, shown), rejections = read_submissions(tmp_path, [SMALL], preview=True)
    assert (genuine.policy.name, genuine.missing, rejections) == ("genuine", "", [])
    assert shown.evaluation == partial
    expected = "only 2 of 3 scenes of train, 1 of 2 scenes of unseen_tools of hammer, knife"
    assert shown.missing == expected
    (folder / RESULT).write_text(
        partial.result.model_copy(update={"scores": None}).model_dump_json(indent=2) + "\n"
    )
    (_, shown), rejections = read_submissions(tmp_path, [SMALL], preview=True)
    assert (shown.missing, rejections) == (expected, [])  # as a killed evaluation leaves it


@pytest.mark.parametrize(
    ("tamper", "kind"),
    [
        (_first(scene_digest="0" * 16), "scenes"),
        (_first(seed=1), "episodes"),
        (_episodes(_claim_success), "scores"),
        (_episodes(lambda lines: lines + lines[:1]), "episodes"),
    ],
)
def test_a_preview_shows_no_incomplete_result_with_other_problems(tmp_path, tamper, kind):
    tamper(write(without_last_scenes(GENUINE, 1), tmp_path / "theirs"))
    accepted, rejections = read_submissions(tmp_path, [SMALL], preview=True)
    assert accepted == []
    assert {rejection.kind for rejection in rejections} == {"incomplete", kind}


def test_a_preview_displaces_no_result_of_the_same_name(tmp_path):
    write(without_last_scenes(GENUINE, 1), tmp_path / "theirs" / "a")
    write(GENUINE, tmp_path / "theirs" / "b")
    accepted, rejections = read_submissions(tmp_path, [SMALL], preview=True)
    assert ([bool(each.missing) for each in accepted], rejections) == ([True, False], [])


def test_only_a_lost_worker_may_leave_the_scene_unknown_and_a_success_needs_actions(folder):
    unknown: dict[str, Any] = {
        "success": False, "success_once": False, "steps": 0, "actions": "",
        "tool": None, "object": None, "scene_digest": None, "state_digest": None,
    }  # fmt: skip
    _first(outcome=WORKER_ERROR, **unknown)(folder)
    assert kinds(folder) == {"scores"}
    _first(outcome=TIME_LIMIT, **unknown)(folder)
    assert kinds(folder) == {"scenes"}
    write(GENUINE, folder.parent.parent / "again")
    _first(outcome=SUCCESS, success=True, success_once=True, steps=0, actions="")(
        folder.parent.parent / "again"
    )
    assert kinds(folder.parent.parent / "again") == {"episodes"}
