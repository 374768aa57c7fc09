"""The header and the summary of a dataset: its arrays and environment, counts and causes."""

from pathlib import Path

import gymnasium
from hypothesis import given
from hypothesis import strategies as st
from support.small_datasets import Drawn, hammer_header, write

from fleet_tools.config.tasks import load_task
from fleet_tools.dataset import AttemptRecord
from fleet_tools.dataset.summary import as_text, summarize
from fleet_tools.envs.tool_use_env import unwrap
from fleet_tools.policies.policy import EXPLANATION
from fleet_tools.robot.arm import load_robot
from fleet_tools.rollouts.rollout import cause_lines, failure_causes

HAMMER = load_task("hammer")


def test_header_describes_every_array_of_a_step(hammer):
    header = hammer_header()
    space = hammer.observation_space
    assert isinstance(space, gymnasium.spaces.Dict)
    assert {name: (array.shape, array.dtype) for name, array in header.observation.items()} == {
        name: (entry.shape, entry.dtype) for name, entry in space.items()
    }
    assert header.observation["tool_keypoints"].entries == hammer.task.keypoints.tool
    assert header.action.scale == tuple(hammer.action_scale)


def test_environment_is_made_again_from_the_task_as_it_was():
    header = hammer_header()
    text = header.task.text.replace("time_limit_s: 10", "time_limit_s: 1.2")
    changed = HAMMER.model_copy(update={"time_limit_s": 1.2})
    task = header.task.model_copy(update={"text": text, "content_digest": changed.digest()})
    fill = load_robot().fill
    assert unwrap(header.model_copy(update={"task": task}).make_env()).task == fill(changed)
    assert unwrap(header.make_env()).task == fill(HAMMER)


def test_the_name_of_a_task_does_not_lead_to_a_file(tmp_path):
    header = hammer_header()
    text = header.task.text.replace("time_limit_s: 10", "time_limit_s: 1.2")
    changes = {"text": text, "content_digest": "0", "name": str(tmp_path / "own")}
    task = header.task.model_copy(update=changes)
    env = unwrap(header.model_copy(update={"task": task}).make_env())
    assert env.task.max_episode_steps == 7
    assert not list(tmp_path.iterdir())


def test_keyword_arguments_replace_those_of_the_header():
    header = hammer_header()
    assert header.make_env().render_mode is None
    assert header.make_env(render_mode="rgb_array").render_mode == "rgb_array"


NOWHERE = Path("/nonexistent")


def record(outcome: str, error: str | None = None, **info: str) -> AttemptRecord:
    counts = {"attempt": 3, "seed": 7, "steps": 1, "seconds": 0.5}
    success = outcome == "success"
    return AttemptRecord(outcome=outcome, success=success, error=error, info=dict(info), **counts)


def name(of: AttemptRecord) -> str:
    return f"attempt {of.attempt}"


def test_summary_counts_what_the_dataset_holds(tmp_path):
    dataset = write(tmp_path, Drawn([2, 3, 5], [True, False, True], 0))
    summary = summarize(tmp_path, dataset.header, dataset.manifest())
    assert (summary["attempts"], summary["successes"]) == (3, 2)
    assert (summary["stored_episodes"], summary["stored_steps"]) == (3, 10)
    assert summary["stored_steps_to_imitate"] == 10 and "imitated" not in as_text(summary)
    assert summary["episode_steps"] == {"mean": 3.333, "median": 3, "longest": 5}
    assert summary["tools"] == {"tool_0": 2, "tool_1": 1}
    assert summary["causes"] == {"time_limit": {"count": 1, "example": "attempt 1 (seed 1)"}}
    assert summary["bytes"] == sum(
        path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()
    )
    assert "2 of 3 attempts succeeded: 66.7%" in as_text(summary)


def test_summary_says_how_many_steps_are_not_to_be_imitated(tmp_path):
    dataset = write(tmp_path, Drawn([9, 8], [True, True], 0, labelled=True))
    summary = summarize(tmp_path, dataset.header, dataset.manifest())
    to_imitate = sum(each.labels.imitate(len(each)).sum() for each in dataset)
    assert summary["stored_steps_to_imitate"] == to_imitate < 17
    assert f"17 steps ({17 - to_imitate} not to be imitated)" in as_text(summary)


def test_summary_of_no_attempts():
    summary = summarize(NOWHERE, hammer_header(), [])
    assert summary["success_rate"] is None
    assert as_text(summary) == "hammer: 0 episodes, 0 steps, 0.00 MB in /nonexistent"


@given(st.lists(st.sampled_from(["success", "time_limit", "policy_error"])))
def test_every_failure_is_counted(outcomes):
    causes = failure_causes(map(record, outcomes), name)
    counts = {outcome: outcomes.count(outcome) for outcome in outcomes if outcome != "success"}
    assert {outcome: cause["count"] for outcome, cause in causes.items()} == counts


def test_the_example_tells_the_error_or_what_the_policy_says():
    records = [
        record("policy_error", "no plan"),
        record("time_limit", **{EXPLANATION: "2 attempts"}),
    ]
    assert cause_lines(failure_causes(records, name)) == [
        "  1 ended as policy_error, such as attempt 3: no plan",
        "  1 ended as time_limit, such as attempt 3: 2 attempts",
    ]


def test_the_summary_of_a_dataset_explains():
    records = [record("time_limit", **{EXPLANATION: "2 attempts; ended in retreat"})]
    text = as_text(summarize(Path("/nonexistent"), hammer_header(), records))
    assert "1 ended as time_limit, such as attempt 3 (seed 7): 2 attempts; ended in retreat" in text
