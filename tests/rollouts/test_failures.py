"""Causes of failures in summaries: every failure is counted, with an example."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from support.small_datasets import hammer_header

from fleet_tools.dataset import AttemptRecord
from fleet_tools.dataset.summary import as_text, summarize
from fleet_tools.policies.policy import EXPLANATION
from fleet_tools.rollouts.rollout import cause_lines, failure_causes


def record(outcome: str, error: str | None = None, **info: str) -> AttemptRecord:
    return AttemptRecord(
        attempt=3,
        seed=7,
        outcome=outcome,
        success=outcome == "success",
        steps=1,
        seconds=0.5,
        error=error,
        info=dict(info),
    )


def name(of: AttemptRecord) -> str:
    return f"attempt {of.attempt}"


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
