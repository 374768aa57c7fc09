"""How tasks were handled: in scores, and when an episode runs again."""

import pytest
from support.submitted import SMALL, evaluation_with

from fleet_tools.envs.contact_metrics import ContactMetrics, Load
from fleet_tools.envs.outcomes import SUCCESS, TIME_LIMIT, WORKER_ERROR
from fleet_tools.evaluation.protocol import Trial
from fleet_tools.evaluation.result import EpisodeResult, Score
from fleet_tools.evaluation.scores import score
from fleet_tools.evaluation.trial import judge

GENTLE = ContactMetrics(object=Load(peak_N=8, impulse_Ns=4, contact_s=1), time_s=3)
ROUGH = GENTLE.model_copy(update={"table": Load(peak_N=900, impulse_Ns=9, contact_s=1)})


def handled(contact_metrics: ContactMetrics) -> list[EpisodeResult]:
    """Returns episodes that all succeed, handled in the given way."""
    made = evaluation_with(lambda trial: SUCCESS)
    return [each.model_copy(update={"contact_metrics": contact_metrics}) for each in made.episodes]


def total(contact_metrics: ContactMetrics) -> Score:
    return score(SMALL, handled(contact_metrics)).total


def test_who_slams_the_table_succeeds_and_is_not_gentle():
    gentle, rough = total(GENTLE), total(ROUGH)
    assert gentle.success.rate == rough.success.rate == 1.0
    assert gentle.gentle is not None and rough.gentle is not None
    assert (gentle.gentle.rate, rough.gentle.rate) == (1.0, 0.0)
    assert rough.contact_metrics is not None
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


def test_handling_that_another_run_does_not_confirm_refutes():
    honest = handled(ROUGH)[0]
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
