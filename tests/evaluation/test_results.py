"""Results on disk: what ended stays, and what is not an evaluation's is refused."""

import json
import random

import numpy as np
import pytest
from evaluated import SMALL, TRIALS, a_result, an_episode
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fleet_tools.config.values import parse
from fleet_tools.envs.outcomes import SUCCESS, TIME_LIMIT
from fleet_tools.errors import ConfigError, ResultError
from fleet_tools.evaluation.result import (
    EPISODES,
    RESULT,
    EpisodeResult,
    decode_actions,
    encode_actions,
    load_evaluation,
)
from fleet_tools.evaluation.scores import score
from fleet_tools.evaluation.writer import EvaluationWriter


@pytest.fixture(name="folder")
def _folder(tmp_path):
    """Of an evaluation of all trials, which ended in some order."""
    shuffled = random.Random(3).sample(TRIALS, len(TRIALS))
    with EvaluationWriter(tmp_path / "it", a_result()) as writer:
        for trial in shuffled:
            writer.add(an_episode(trial, SUCCESS if trial.index else TIME_LIMIT))
        writer.finish()
    return tmp_path / "it"


@given(arrays.arrays(np.float32, st.tuples(st.integers(0, 9), st.just(6))))
def test_actions_come_back_bit_for_bit(actions):
    assert decode_actions(encode_actions(actions)).tobytes() == actions.tobytes()


@pytest.mark.parametrize("text", ["?", "AAAA", "AAAAAA==="])
def test_what_holds_no_actions_is_refused(text):
    with pytest.raises(ConfigError, match="six float32"):
        decode_actions(text)


def test_an_evaluation_is_read_as_it_was_written_in_the_protocols_order(folder):
    evaluation = load_evaluation(folder)
    assert [episode.key for episode in evaluation.episodes] == [trial.key for trial in TRIALS]
    assert evaluation.result.complete
    assert evaluation.result.scores == score(SMALL, evaluation.episodes)
    assert evaluation.result.scores.total.end.rate == pytest.approx((3 / 4 + 2 / 3) / 2)


def test_cut_anywhere_the_whole_lines_count_and_the_next_goes_on(folder):
    content = (folder / EPISODES).read_bytes()
    ends = [k for k, byte in enumerate(content, 1) if byte == ord("\n")]
    for size in [0, 1, ends[0] - 1, ends[0], ends[0] + 5, ends[4] - 1, len(content)]:
        (folder / EPISODES).write_bytes(content[:size])
        with EvaluationWriter(folder, a_result()) as writer:
            assert len(writer.episodes) == sum(end <= size for end in ends)
            missing = {t.key for t in TRIALS} - {e.key for e in writer.episodes}
            for trial in TRIALS:
                if trial.key in missing:
                    writer.add(an_episode(trial, SUCCESS if trial.index else TIME_LIMIT))
            assert writer.finish().complete
        assert len(load_evaluation(folder).episodes) == len(TRIALS)


def test_until_it_is_finished_a_result_has_no_scores(folder):
    with EvaluationWriter(folder, a_result()):
        present = load_evaluation(folder).result
        assert (present.scores, present.complete) == (None, False)
        with pytest.raises(ResultError, match="Another process is writing"):
            EvaluationWriter(folder, a_result())


def test_another_policy_or_version_does_not_go_on_with_it(folder):
    before = (folder / RESULT).read_bytes()
    other = a_result().policy.model_copy(update={"source": "random"})
    with pytest.raises(ResultError, match="the policy is 'zero', not 'random'"):
        EvaluationWriter(folder, a_result(policy=other))
    with pytest.raises(ResultError, match="the version of drake is None, not '1'"):
        EvaluationWriter(folder, a_result(packages={"fleet_tools": "0", "drake": "1"}))
    assert (folder / RESULT).read_bytes() == before
    renamed = a_result().policy.model_copy(update={"name": "another name"})
    EvaluationWriter(folder, a_result(policy=renamed)).close()


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ResultError, match="neither empty nor an evaluation"):
        EvaluationWriter(tmp_path, a_result())
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_creation_that_was_cut_short_is_taken_up(tmp_path):
    (tmp_path / EPISODES).touch()
    (tmp_path / ".result.77.aside.json").write_text("{")
    with EvaluationWriter(tmp_path, a_result()) as writer:
        assert not writer.finish().complete
    assert {path.name for path in tmp_path.iterdir()} == {EPISODES, RESULT}


def _change_line(folder, change):
    lines = (folder / EPISODES).read_text().splitlines()
    line = json.loads(lines[2])
    change(line)
    lines[2] = json.dumps(line)
    (folder / EPISODES).write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda line: line.update(seed=line["seed"] + 1), "has the seed .* the protocol says"),
        (lambda line: line.update(index=99), "is none of the protocol 'small v1'"),
        (lambda line: line.update(success=not line["success"]), "episodes.jsonl:3 is damaged"),
        (lambda line: line.update(steps=3), "not 3 actions"),
        (lambda line: line.update(score=1.0), "no key 'score'"),
        (lambda line: line.pop("outcome"), "outcome: Field required"),
        (lambda line: line.update(state_digest=None), "hash of the last state is missing"),
    ],
)
def test_a_line_that_cannot_be_is_refused(folder, change, said):
    _change_line(folder, change)
    with pytest.raises(ResultError, match=said):
        load_evaluation(folder)


def test_a_line_given_twice_is_refused(folder):
    first = (folder / EPISODES).read_text().splitlines()[0]
    with (folder / EPISODES).open("a") as file:
        file.write(first + "\n")
    with pytest.raises(ResultError, match="is there twice"):
        load_evaluation(folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data.update(schema_version=2), "reads 1"),
        (lambda data: data["task_digests"].update(hammer="0"), "is not the hash"),
        (lambda data: data["protocol"].update(version=9), "is not the hash"),
        (lambda data: data.pop("policy"), "policy: Field required"),
    ],
)
def test_a_result_that_cannot_be_is_refused(folder, change, said):
    data = json.loads((folder / RESULT).read_text())
    change(data)
    (folder / RESULT).write_text(json.dumps(data))
    with pytest.raises(ResultError, match=said):
        load_evaluation(folder)


def test_what_is_missing_or_no_json_is_said(folder, tmp_path):
    with pytest.raises(ResultError, match="is no evaluation"):
        load_evaluation(tmp_path)
    (folder / RESULT).write_text("{")
    with pytest.raises(ResultError, match="is damaged"):
        load_evaluation(folder)


def test_messages_do_not_recite_a_whole_episode():
    data = an_episode(TRIALS[0], steps=60).model_dump() | {"steps": 61}
    with pytest.raises(ConfigError) as raised:
        parse(EpisodeResult, data, "it")
    assert len(str(raised.value)) < 600
