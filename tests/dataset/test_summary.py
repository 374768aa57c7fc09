"""The summary of a dataset: its counts, its success rate, and the interval of the rate."""

from pathlib import Path

from support.small_datasets import Drawn, hammer_header, write

from fleet_tools.dataset import AttemptRecord
from fleet_tools.dataset.summary import as_text, summarize

NOWHERE = Path("/nonexistent")
SUCCESS, FAILURE = (
    AttemptRecord(attempt=0, seed=0, outcome=name, success=name == "success", steps=1, seconds=0.5)
    for name in ("success", "time_limit")
)


def interval(successes: int, trials: int) -> tuple[float, float]:
    """Returns the interval in the summary of some attempts."""
    records = [SUCCESS] * successes + [FAILURE] * (trials - successes)
    return summarize(NOWHERE, hammer_header(), records)["success_rate_interval_95"]


def test_summary_counts_what_the_dataset_holds(tmp_path: Path):
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


def test_summary_says_how_many_steps_are_not_to_be_imitated(tmp_path: Path):
    dataset = write(tmp_path, Drawn([9, 8], [True, True], 0, labelled=True))
    summary = summarize(tmp_path, dataset.header, dataset.manifest())
    to_imitate = sum(each.labels.imitate(len(each)).sum() for each in dataset)
    assert summary["stored_steps_to_imitate"] == to_imitate < 17
    assert f"17 steps ({17 - to_imitate} not to be imitated)" in as_text(summary)


def test_summary_of_no_attempts():
    summary = summarize(NOWHERE, hammer_header(), [])
    assert summary["success_rate"] is None
    assert as_text(summary) == "hammer: 0 episodes, 0 steps, 0.00 MB in /nonexistent"
