"""Verdicts at smaller time steps: who keeps them, and how the pages mark those near the edge."""

import shutil
from dataclasses import replace

import pydantic
import pytest
import verdicts
from hypothesis import given
from hypothesis import strategies as st
from support.boards import board
from support.submitted import SMALL, certificate, random_evaluation, submission, write

from fleet_tools.evaluation.config import EvaluationConfig
from fleet_tools.evaluation.result_folder import EPISODES
from fleet_tools.evaluation.run import evaluate_policy
from fleet_tools.leaderboard.page import as_html, as_markdown
from fleet_tools.leaderboard.records import (
    CERTIFIED,
    StepVerdicts,
    content_digest,
    read_certificates,
    write_certificates,
)
from fleet_tools.leaderboard.submissions import read_submissions
from fleet_tools.leaderboard.tables import certificate_text, facts, notes
from fleet_tools.leaderboard.texts import summary

OURS = random_evaluation(0.5, seed=1, name="ours")
VERDICTS = st.lists(st.tuples(*[st.booleans()] * 3), min_size=1, max_size=12)


@given(VERDICTS)
def test_near_the_edge_is_what_another_step_decides_otherwise(successes):
    found = certificate(successes)
    near = {each.index for each in found.near_the_edge}
    for k, (first, *others) in enumerate(successes):
        assert (k in near) == any(each != first for each in others)
    text = certificate_text([found])
    same = len(successes) - len(near)
    assert text.startswith(f"{same} of {len(successes)} verdicts the same at 2 and 1 ms")
    assert ("near the edge" in text) == bool(near)


@given(VERDICTS)
def test_the_details_name_each_episode_near_the_edge_and_no_other(successes):
    found = certificate(successes)
    standing = board([replace(submission(OURS), certificate=found)]).standings[0]
    told = facts(standing)[0]["smaller steps"]
    for each in found.episodes:
        assert (f"episode {each.index} of knife, {each.split} (" in told) == each.near_the_edge
    assert certificate_text([found]) in notes(standing)


def test_both_pages_mark_an_episode_near_the_edge_and_say_nothing_without_certificates():
    found = certificate([(True, True, True), (True, False, False)])
    mark = "episode 1 of knife, unseen_tools (success at 4 ms, failure at 2 and 1 ms)"
    count = "1 of 2 verdicts the same at 2 and 1 ms; 1 near the edge"
    marked = board([replace(submission(OURS), certificate=found)])
    plain = board([submission(OURS)])
    for page in (as_html, lambda each: as_markdown(each).replace("\\", "")):
        assert page(marked).count(count) == 2 and mark in page(marked)  # in table and details
        assert "verdicts the same" not in page(plain)
    assert summary(marked, None)["certified"] == [found.model_dump()]
    assert summary(plain, None)["certified"] == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps_ms": (4.0,)},
        {"steps_ms": (4.0, 4.0, 1.0)},
        {"steps_ms": (1.0, 2.0, 4.0)},
        {"steps_ms": (4.0, 2.0)},
        {"episodes": (StepVerdicts(task="a", split="b", index=0, successes=(True,) * 3),) * 2},
    ],
)
def test_a_certificate_that_contradicts_itself_is_refused(wrong):
    with pytest.raises(pydantic.ValidationError):
        certificate([(True, True, True)], **wrong)


# --- The file of the host ------------------------------------------------------------------------


@given(VERDICTS, VERDICTS)
def test_what_is_kept_is_read_again(tmp_path_factory, one, two):
    root = tmp_path_factory.mktemp("results")
    assert read_certificates(root) == {}
    kept = {"ours": certificate(one), "b/0": certificate(two, folder="b/0")}
    write_certificates(root, kept)
    assert read_certificates(root) == kept


def test_a_result_that_has_changed_since_has_no_certificate_and_strangers_bring_none(tmp_path):
    folder = write(OURS, tmp_path / "ours")
    found = certificate([(True, False, True)], content_digest=content_digest(folder))
    write_certificates(tmp_path, {"ours": found})
    (ours,), rejections = read_submissions(tmp_path, [SMALL])
    assert ours.certificate == found and not rejections
    with (folder / EPISODES).open("r+") as file:
        lines = file.readlines()
        file.seek(0)
        file.writelines(lines[::-1])
    (ours,), _ = read_submissions(tmp_path, [SMALL])
    assert ours.certificate is None
    shutil.copy(tmp_path / CERTIFIED, folder / CERTIFIED)
    accepted, (rejection,) = read_submissions(tmp_path, [SMALL])
    assert not accepted and rejection.kind == "foreign"


# --- The program that makes them ------------------------------------------------------------------


def test_a_result_elsewhere_is_refused_before_anything_runs(tmp_path, capsys):
    folder = write(OURS, tmp_path / "elsewhere" / "ours")
    (tmp_path / "results").mkdir()
    arguments = [str(folder), "--certify", str(tmp_path / "results")]
    assert verdicts.main(arguments) == 2
    assert "is not below" in capsys.readouterr().err
    assert not (tmp_path / "results" / CERTIFIED).exists()


@pytest.mark.slow  # twelve episodes of the expert
def test_the_experts_verdicts_are_kept_as_they_come_out(tmp_path):
    expert = tmp_path / "expert"
    evaluate_policy(EvaluationConfig(policy="expert", split="train", scenes=1), expert)
    arguments = [str(expert), "--episodes", "1", "--substeps", "2"]
    code = verdicts.main([*arguments, "--certify", str(tmp_path), "--quiet"])
    found = read_certificates(tmp_path)["expert"]
    assert found.steps_ms == (4.0, 2.0) and len(found.episodes) == 4
    assert found.content_digest == content_digest(expert)
    assert code == (1 if found.near_the_edge else 0)
