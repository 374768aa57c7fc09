"""Results on disk: stored episodes stay, and files that are not an evaluation's are refused."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from support.evaluated import SMALL, TRIALS, a_result, an_episode, as_log

from fleet_tools.config.values import parse
from fleet_tools.envs.outcomes import SUCCESS, TIME_LIMIT
from fleet_tools.errors import ConfigError, OrderDependenceError, ResultError
from fleet_tools.evaluation.result import EpisodeResult, decode_actions, encode_actions
from fleet_tools.evaluation.result_folder import (
    EPISODES,
    PACKED,
    RESULT,
    EvaluationWriter,
    load_evaluation,
)
from fleet_tools.evaluation.score_tables import as_text
from fleet_tools.evaluation.scores import score

Change = Callable[[dict[str, Any]], object]


def _other(line: dict[str, Any]) -> dict[str, Any]:
    """Returns another trial than that of a line."""
    return next(trial.model_dump() for trial in TRIALS if trial.seed != line["seed"])


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    """Folder of an evaluation of all trials, stored in random order."""
    shuffled = random.Random(3).sample(TRIALS, len(TRIALS))
    with EvaluationWriter(tmp_path / "result", a_result()) as writer:
        for trial in shuffled:
            writer.append(an_episode(trial, SUCCESS if trial.index else TIME_LIMIT))
        writer.finish()
    return tmp_path / "result"


# --- Reading and resuming -------------------------------------------------------------------


@given(arrays.arrays(np.float32, st.tuples(st.integers(0, 9), st.just(6))))
def test_decoded_actions_have_the_same_bits(actions):
    assert decode_actions(encode_actions(actions)).tobytes() == actions.tobytes()


@pytest.mark.parametrize("text", ["?", "AAAA", "AAAAAA==="])
def test_text_that_holds_no_actions_is_refused(text):
    with pytest.raises(ConfigError, match="six float32"):
        decode_actions(text)


def test_an_evaluation_is_read_as_written_in_the_order_of_the_protocol(folder):
    evaluation = load_evaluation(folder)
    assert [episode.key for episode in evaluation.episodes] == [trial.key for trial in TRIALS]
    assert evaluation.result.complete
    scores = score(SMALL, evaluation.episodes)
    assert evaluation.result.scores == scores
    assert scores.total.success.rate == pytest.approx((3 / 4 + 2 / 3) / 2)


def test_complete_lines_of_a_cut_file_count_and_the_rest_is_resumed(folder):
    content = as_log(folder).read_bytes()
    ends = [k for k, byte in enumerate(content, 1) if byte == ord("\n")]
    for size in [0, 1, ends[0] - 1, ends[0], ends[0] + 5, ends[4] - 1, len(content)]:
        (folder / PACKED).unlink(missing_ok=True)
        (folder / EPISODES).write_bytes(content[:size])
        with EvaluationWriter(folder, a_result()) as writer:
            assert len(writer.records) == sum(end <= size for end in ends)
            missing = {trial.key for trial in TRIALS} - {e.key for e in writer.records}
            for trial in TRIALS:
                if trial.key in missing:
                    writer.append(an_episode(trial, SUCCESS if trial.index else TIME_LIMIT))
            assert writer.finish().result.complete
        assert len(load_evaluation(folder).episodes) == len(TRIALS)


def test_a_result_has_no_scores_before_it_is_finished(folder):
    with EvaluationWriter(folder, a_result()):
        present = load_evaluation(folder).result
        assert (present.scores, present.complete) == (None, False)
        with pytest.raises(ResultError, match="Another process is writing"):
            EvaluationWriter(folder, a_result())


def test_an_evaluation_is_resumed_only_with_the_same_policy_and_versions(folder):
    before = (folder / RESULT).read_bytes()
    other = a_result().policy.model_copy(update={"source": "random"})
    with pytest.raises(ResultError, match="the policy is 'zero', not 'random'"):
        EvaluationWriter(folder, a_result(policy=other))
    with pytest.raises(ResultError, match=r"the version of drake is '1\.51\.1', not '1'"):
        EvaluationWriter(folder, a_result(packages={"fleet_tools": "0", "drake": "1"}))
    assert (folder / RESULT).read_bytes() == before
    renamed = a_result().policy.model_copy(update={"name": "another name"})
    EvaluationWriter(folder, a_result(policy=renamed)).close()


# --- Files that are not valid ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda line: line.update(seed=line["seed"] + 1), "has the seed .* in the protocol it is"),
        (lambda line: line.update(index=99), "is not in the protocol 'small v1'"),
        (lambda line: line.update(success=not line["success"]), "episodes.jsonl:3 is damaged"),
        (lambda line: line.update(steps=3), "differs from the number of steps, 3"),
        (lambda line: line.update(score=1.0), "key: 'score'"),
        (lambda line: line.pop("outcome"), "outcome: Field required"),
        (lambda line: line.update(state_digest=None), "hash of the final state is missing"),
        (lambda line: line.update(_other(line)), "occurs twice"),
    ],
)
def test_an_invalid_line_is_refused(folder, change, message):
    as_log(folder, lambda lines: change(lines[2]))
    with pytest.raises(ResultError, match=message):
        load_evaluation(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.update(schema_version=2), "reads 1"),
        (lambda data: data["task_digests"].update(hammer="0"), "is not the hash"),
        (lambda data: data["protocol"].update(version=9), "is not the hash"),
        (lambda data: data.pop("policy"), "policy: Field required"),
    ],
)
def test_an_invalid_result_is_refused(folder, change, message):
    data = json.loads((folder / RESULT).read_text())
    change(data)
    (folder / RESULT).write_text(json.dumps(data))
    with pytest.raises(ResultError, match=message):
        load_evaluation(folder)


def test_a_missing_or_damaged_result_is_refused(folder, tmp_path):
    with pytest.raises(ResultError, match="is not an evaluation"):
        load_evaluation(tmp_path)
    (folder / RESULT).write_text("{")
    with pytest.raises(ResultError, match="is damaged"):
        load_evaluation(folder)


def test_messages_do_not_hold_a_whole_episode():
    data = an_episode(TRIALS[0], steps=60).model_dump() | {"steps": 61}
    with pytest.raises(ConfigError) as raised:
        parse(EpisodeResult, data, "data")
    assert len(str(raised.value)) < 600


def test_an_order_dependence_stays_with_the_result_whoever_resumes_it(folder):
    with EvaluationWriter(folder, a_result()) as writer, writer.marking():
        raise OrderDependenceError("It draws.")
    with EvaluationWriter(folder, a_result()) as writer:
        result = writer.finish().result
    assert result.complete and result.order_dependence == "It draws."
    assert "It draws." in as_text(result)
    assert load_evaluation(folder).result == result
