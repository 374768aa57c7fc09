"""How tasks were handled, on the leaderboard: what is shown, and what is refused."""

import json
from typing import Any

import pytest
from support.submitted import SMALL, evaluation_with, submission, write

from fleet_tools.envs.contact_metrics import ContactMetrics, Load
from fleet_tools.envs.outcomes import SUCCESS, TIME_LIMIT, WORKER_ERROR
from fleet_tools.evaluation.protocol import Trial
from fleet_tools.evaluation.result import EpisodeResult, Evaluation
from fleet_tools.evaluation.result_folder import EPISODES
from fleet_tools.evaluation.score_tables import as_text
from fleet_tools.evaluation.scores import score
from fleet_tools.evaluation.trial import judge
from fleet_tools.leaderboard.board import Board, RankedLevel, make_rankings
from fleet_tools.leaderboard.page import as_html, as_markdown
from fleet_tools.leaderboard.submissions import read_checked

GENTLE = ContactMetrics(object=Load(peak_N=8, impulse_Ns=4, contact_s=1), time_s=3)
ROUGH = GENTLE.model_copy(update={"table": Load(peak_N=900, impulse_Ns=9, contact_s=1)})


def handled(contact_metrics: ContactMetrics | None = GENTLE, name: str = "somebody") -> Evaluation:
    """Returns an evaluation whose every episode succeeds, handled in the given way."""
    made = evaluation_with(lambda trial: SUCCESS, name=name)
    return with_episodes(
        made,
        [each.model_copy(update={"contact_metrics": contact_metrics}) for each in made.episodes],
    )


def with_episodes(made: Evaluation, episodes: list[EpisodeResult]) -> Evaluation:
    scores = score(SMALL, episodes)
    return Evaluation(made.result.model_copy(update={"scores": scores}), episodes)


def kinds(tmp_path, evaluation: Evaluation) -> set[str]:
    checked = read_checked(write(evaluation, tmp_path / evaluation.result.policy.name), SMALL)
    return set() if isinstance(checked, Evaluation) else {problem.kind for problem in checked}


def a_board(*evaluations: Evaluation) -> Board:
    submissions = [submission(each) for each in evaluations]
    return Board([RankedLevel(SMALL, "0123456789abcdef")], make_rankings(submissions, [SMALL]))


def total_of(evaluation: Evaluation) -> Any:
    assert evaluation.result.scores is not None
    return evaluation.result.scores.total


def test_who_slams_the_table_succeeds_and_is_not_gentle():
    gentle, rough = total_of(handled()), total_of(handled(ROUGH))
    assert gentle.success.rate == rough.success.rate == 1.0
    assert (gentle.gentle.rate, rough.gentle.rate) == (1.0, 0.0)
    assert rough.contact_metrics["table_peak_N"] == pytest.approx(900)


def test_failures_are_not_gentle_and_lost_episodes_count_as_failures():
    def outcome_of(trial: Trial) -> str:
        return {0: SUCCESS, 1: TIME_LIMIT}.get(trial.index, WORKER_ERROR)

    made = evaluation_with(outcome_of)
    episodes = [
        each.model_copy(
            update={"steps": 0, "actions": ""}
            if each.outcome == WORKER_ERROR
            else {"contact_metrics": GENTLE}
        )
        for each in made.episodes
    ]
    total = score(SMALL, episodes).total
    assert total.gentle == total.success and total.contact_metrics is not None


def test_results_without_handling_remain_valid_and_have_dashes_beside_those_with(tmp_path):
    old, new = handled(None, "old"), handled(name="new")
    assert kinds(tmp_path, old) == kinds(tmp_path, new) == set()
    assert "contact_metrics" not in json.loads(
        (tmp_path / "old" / EPISODES).read_text().splitlines()[0]
    )
    alone, both = as_html(a_board(old)), as_html(a_board(old, new))
    assert "table peak" not in alone.lower() and "Table peak, N" in both
    lines = [line for line in as_markdown(a_board(old, new)).splitlines() if " - |" in line]
    assert len(lines) == 1 and lines[0].startswith("| old |") and lines[0].count(" - |") == 9
    assert "Contact metrics" in as_text(new.result)
    assert "Contact metrics" not in as_text(old.result)


def test_handling_is_told_of_all_episodes_or_of_none(tmp_path):
    made = handled()
    hidden = made.episodes[3].model_copy(update={"contact_metrics": None})
    assert kinds(
        tmp_path, with_episodes(made, [*made.episodes[:3], hidden, *made.episodes[4:]])
    ) == {"episodes"}


def test_a_success_that_touched_nothing_is_refused(tmp_path):
    assert kinds(tmp_path, handled(ContactMetrics(time_s=3))) == {"episodes"}


def test_gentleness_that_does_not_follow_from_the_episodes_is_refused(tmp_path):
    rough, gentle = handled(ROUGH), handled()
    assert kinds(tmp_path, Evaluation(gentle.result, rough.episodes)) == {"scores"}


@pytest.mark.parametrize("value", ["NaN", "-1", "null", '"1"', "Infinity"])
def test_values_that_no_evaluation_writes_are_refused(tmp_path, value):
    folder = write(handled(), tmp_path / "somebody")
    text = (folder / EPISODES).read_text()
    assert '"peak_N":8.0' in text
    (folder / EPISODES).write_text(text.replace('"peak_N":8.0', f'"peak_N":{value}', 1))
    checked = read_checked(folder, SMALL)
    assert not isinstance(checked, Evaluation) and {each.kind for each in checked} == {"damaged"}


def test_handling_that_another_run_does_not_confirm_refutes():
    honest = handled(ROUGH).episodes[0]
    forged = honest.model_copy(update={"contact_metrics": GENTLE})
    nearby = honest.model_copy(update={"state_digest": "f" * 16})
    for stored, again, alike in (
        (honest, honest, True),
        (forged, honest, False),
        (forged, nearby, False),  # other bits, as on another processor, are no excuse for this
        (honest, nearby, True),
        (honest.model_copy(update={"contact_metrics": None}), honest, True),  # an older result
    ):
        assert judge(stored, again).agreement.same_outcome == alike
    assert "contact_metrics" in judge(forged, honest).differences[0]
