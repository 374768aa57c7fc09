"""What enters the leaderboard: complete tasks of its protocol, and nothing else."""

import pytest
from support.evaluated import SMALL, TRIALS, a_result

from fleet_tools.evaluation.admission import admission, missing_scenes
from fleet_tools.evaluation.config import PROTOCOL
from fleet_tools.evaluation.protocol import load_protocol

CURRENT = load_protocol(PROTOCOL)


def keys(task: str | None = None, split: str | None = None, scenes: int | None = None):
    return {trial.key for trial in CURRENT.trials(task, split, scenes)}


def test_complete_tasks_can_enter_and_all_of_them_have_a_rank() -> None:
    result = a_result(CURRENT)
    whole = admission(result, keys())
    assert whole.can_enter and not whole.absent_tasks
    assert str(whole) == "This result can enter the leaderboard."
    one = admission(result, keys("knife"))
    assert one.can_enter and one.absent_tasks == ("hammer", "spatula", "wrench")
    assert "without a rank: it lacks hammer, spatula, wrench" in str(one)


@pytest.mark.parametrize(
    ("present", "missing"),
    [
        (keys(scenes=5), "5 of 30 scenes of each split of hammer, knife, spatula, wrench"),
        (keys("knife", scenes=1) | keys("hammer"), "1 of 30 scenes of each split of knife"),
        (
            keys("knife", "train"),
            "0 of 30 scenes of unseen_pairs, unseen_tools and unseen_objects of knife",
        ),
        (
            keys("knife", scenes=29) | keys("wrench", scenes=7),
            "29 of 30 scenes of each split of knife; 7 of 30 scenes of each split of wrench",
        ),
    ],
)
def test_parts_of_tasks_cannot_enter(present: set[tuple[str, str, int]], missing: str) -> None:
    assert missing_scenes(CURRENT, present) == missing
    entry = admission(a_result(CURRENT), present)
    assert not entry.can_enter
    assert f"cannot enter the leaderboard: it has only {missing}, and" in str(entry)
    assert "--preview" in str(entry)


def test_results_of_another_protocol_cannot_enter() -> None:
    entry = admission(a_result(SMALL), {trial.key for trial in TRIALS})
    assert not entry.can_enter
    assert "it follows 'small v1'" in str(entry) and CURRENT.title in str(entry)
    assert missing_scenes(SMALL, {trial.key for trial in TRIALS}) == ""
