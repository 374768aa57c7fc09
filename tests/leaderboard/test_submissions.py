"""What others submit: genuine results are taken, and nothing else is, with the reason."""

import json
import random
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from submitted import SMALL, drawn, made_up, write

from fleet_tools.envs.outcomes import SIMULATION_ERROR, SUCCESS, TIME_LIMIT, WORKER_ERROR
from fleet_tools.errors import ResultError
from fleet_tools.evaluation.result import EPISODES, RESULT, Evaluation
from fleet_tools.evaluation.scores import score
from fleet_tools.leaderboard.submissions import check, read_submissions

GENUINE = drawn(0.5, seed=1)


@pytest.fixture(name="folder")
def _folder(tmp_path):
    return write(GENUINE, tmp_path / "results" / "theirs")


@pytest.fixture(name="scratch", scope="module")
def _scratch(tmp_path_factory):
    return write(GENUINE, tmp_path_factory.mktemp("scratch") / "theirs")


def kinds(folder):
    """The kinds of what is wrong with a result; none where it is taken."""
    came = check(folder, SMALL)
    return set() if isinstance(came, Evaluation) else {kind for kind, _ in came}


def test_a_genuine_result_is_taken_as_it_is(folder):
    assert check(folder, SMALL) == GENUINE
    (submission,), findings = read_submissions(folder.parent, SMALL)
    assert (submission.folder, submission.tasks, findings) == ("theirs", SMALL.tasks, [])


def test_the_order_of_the_lines_changes_nothing(folder):
    lines = (folder / EPISODES).read_text().splitlines(keepends=True)
    (folder / EPISODES).write_text("".join(random.Random(0).sample(lines, len(lines))))
    assert check(folder, SMALL) == GENUINE


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(file=st.sampled_from([RESULT, EPISODES]), data=st.data())
def test_any_changed_byte_is_found_or_changes_no_score(scratch, file, data):
    text = (scratch / file).read_bytes()
    digits = [k for k, byte in enumerate(text) if chr(byte).isdigit()]
    at = data.draw(st.sampled_from(digits) | st.integers(0, len(text) - 1))
    byte = data.draw(st.sampled_from(b"0123456789") | st.integers(0, 255))
    try:
        (scratch / file).write_bytes(text[:at] + bytes([byte]) + text[at + 1 :])
        came = check(scratch, SMALL)
    finally:
        (scratch / file).write_bytes(text)
    if isinstance(came, Evaluation):
        assert score(SMALL, came.episodes) == GENUINE.result.scores
        assert came.result.protocol_digest == GENUINE.result.protocol_digest
    else:
        assert came
        assert all(what for _, what in came)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(file=st.sampled_from([RESULT, EPISODES]), data=st.data())
def test_cut_anywhere_it_is_refused(scratch, file, data):
    text = (scratch / file).read_bytes()
    size = data.draw(st.integers(0, len(text) - 1))
    try:
        (scratch / file).write_bytes(text[:size])
        assert kinds(scratch)
    finally:
        (scratch / file).write_bytes(text)


def _lines(change):
    def tamper(folder):
        lines = [json.loads(line) for line in (folder / EPISODES).read_text().splitlines()]
        lines = change(lines) or lines
        (folder / EPISODES).write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    return tamper


def _header(change):
    def tamper(folder):
        header = json.loads((folder / RESULT).read_text())
        change(header)
        (folder / RESULT).write_text(json.dumps(header) + "\n")

    return tamper


def _text(file, old, new):
    def tamper(folder):
        text = (folder / file).read_text()
        assert old in text
        (folder / file).write_text(text.replace(old, new, 1))

    return tamper


def _won(lines):
    lost = next(line for line in lines if not line["success"])
    lost.update(outcome=SUCCESS, success=True, success_once=True)


def _lucky(lines):
    """Blames the simulator for failures."""
    for line in lines:
        if not line["success"]:
            line["outcome"] = SIMULATION_ERROR


@pytest.mark.parametrize(
    ("tamper", "kind"),
    [
        (_lines(lambda lines: lines[:-1]), "episodes"),
        (_lines(lambda lines: lines + lines[:1]), "episodes"),
        (_lines(lambda lines: [*lines, {**lines[0], "index": 77}]), "episodes"),
        (_lines(lambda lines: [*lines, {**lines[0], "task": "wrench"}]), "episodes"),
        (_lines(lambda lines: lines[0].update(seed=lines[1]["seed"])), "episodes"),
        (_lines(lambda lines: lines[0].update(outcome="triumph", success=False)), "episodes"),
        (_lines(lambda lines: lines.clear()), "damaged"),
        (_lines(lambda lines: lines[0].update(tool="club")), "scenes"),
        (_lines(lambda lines: lines[0].update(scene_digest="0" * 16)), "scenes"),
        (_lines(lambda lines: lines[0].update(success=not lines[0]["success"])), "damaged"),
        (_lines(lambda lines: lines[0].update(steps=3)), "damaged"),
        (_lines(lambda lines: lines[0].update(rank=1)), "damaged"),
        (_lines(lambda lines: lines[0].update(seconds=float("nan"))), "damaged"),
        (_lines(lambda lines: lines[0].update(info={"x": float("inf")})), "damaged"),
        (_lines(_won), "numbers"),
        (_lines(_lucky), "numbers"),
        (_header(lambda h: h["scores"]["total"]["end"].update(rate=0.99)), "numbers"),
        (_header(lambda h: h["scores"]["total"]["end"].update(low=0.9)), "numbers"),
        (_header(lambda h: h["scores"]["tasks"].pop("knife")), "numbers"),
        (_header(lambda h: h["scores"]["total"].update(policy_errors=1)), "numbers"),
        (_header(lambda h: h.update(complete=False)), "numbers"),
        (_header(lambda h: h.update(scores=None)), "numbers"),
        (_header(lambda h: h.update(schema_version=2)), "schema"),
        (_header(lambda h: h.pop("schema_version")), "schema"),
        (_header(lambda h: h.update(protocol_digest="0" * 16)), "damaged"),
        (_header(lambda h: h["protocol"].update(version=2)), "damaged"),
        (_header(lambda h: h["task_digests"].update(hammer="0" * 16)), "damaged"),
        (_text(RESULT, '"complete"', '"complete": true, "complete"'), "damaged"),
        (_text(EPISODES, '"success":true', '"success":false,"success":true'), "damaged"),
        (_text(EPISODES, "\n", "\n\n"), "damaged"),
        (lambda folder: (folder / EPISODES).write_bytes(b"\xff\n"), "damaged"),
        (lambda folder: (folder / EPISODES).write_text("[]\n"), "damaged"),
        (lambda folder: (folder / EPISODES).write_text("[" * 100_000 + "\n"), "damaged"),
        (lambda folder: (folder / EPISODES).unlink(), "damaged"),
        (lambda folder: (folder / RESULT).unlink(), "damaged"),
    ],
)
def test_what_was_tampered_with_is_refused(folder, tamper, kind):
    tamper(folder)
    assert kinds(folder) == {kind}
    kept, findings = read_submissions(folder.parent, SMALL)
    assert kept == []
    assert {(finding.folder, finding.kind) for finding in findings} == {("theirs", kind)}
    assert not any(str(folder.parent) in finding.what for finding in findings)


def test_a_result_of_another_protocol_is_refused(tmp_path):
    other = SMALL.model_copy(update={"version": 2})
    assert kinds(write(drawn(0.5, protocol=other), tmp_path / "theirs")) == {"protocol"}


def test_everything_that_is_wrong_is_said_at_once(folder):
    def change(lines):
        lines[0]["seed"] += 1
        return lines[:-1]

    _lines(change)(folder)
    what = [what for _, what in check(folder, SMALL)]
    assert len(what) == 2
    assert "1 are missing" in what[0] and "1 have other seeds" in what[1]


def test_whole_tasks_are_enough_and_parts_of_tasks_are_not(tmp_path):
    whole = write(drawn(0.5, tasks=["knife"]), tmp_path / "whole")
    assert check(whole, SMALL).episodes
    (whole / EPISODES).write_text((whole / EPISODES).read_text().split("\n", 1)[1])
    assert kinds(whole) == {"episodes"}


def test_a_lost_worker_knows_no_scene_and_nobody_else_may_not_know_it(folder):
    def lose(outcome):
        def change(lines):
            lines[0].update(
                outcome=outcome, success=False, success_once=False, steps=0, actions="",
                tool=None, object=None, scene_digest=None, state_digest=None,
            )  # fmt: skip

        return _lines(change)

    lose(WORKER_ERROR)(folder)
    assert kinds(folder) == {"numbers"}
    lose(TIME_LIMIT)(folder)
    assert kinds(folder) == {"scenes"}


def test_a_success_without_an_action_is_none(folder):
    _lines(lambda lines: lines[0].update(outcome=SUCCESS, success=True, success_once=True,
                                         steps=0, actions=""))(folder)  # fmt: skip
    assert kinds(folder) == {"episodes"}


def test_foreign_files_and_links_are_refused_with_their_results(folder, tmp_path):
    (folder.parent / "README.md").write_text("What these are.")
    assert read_submissions(folder.parent, SMALL)[1] == []
    (folder / "run.sh").write_text("rm")
    write(made_up(lambda trial: SUCCESS, name="other"), folder.parent / "deeper" / "other")
    (folder.parent / "linked").symlink_to(tmp_path)
    kept, findings = read_submissions(folder.parent, SMALL)
    assert [submission.folder for submission in kept] == ["deeper/other"]
    assert {(f.folder, f.kind) for f in findings} == {("theirs", "foreign"), (".", "foreign")}


def test_the_same_twice_counts_once_and_another_training_is_another(folder):
    shutil.copytree(folder, folder.parent / "zcopy")
    write(drawn(0.5, seed=2, training_seed=3), folder.parent / "another")
    kept, findings = read_submissions(folder.parent, SMALL)
    assert [submission.folder for submission in kept] == ["another", "theirs"]
    assert [(finding.folder, finding.kind) for finding in findings] == [("zcopy", "twice")]


def test_without_a_folder_nothing_is_read(tmp_path):
    with pytest.raises(ResultError, match="no folder"):
        read_submissions(tmp_path / "nowhere", SMALL)
    assert read_submissions(tmp_path, SMALL) == ([], [])
