"""Streaming rounds that close early, lose robots, or are killed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

from support.fleet_cases import RecordingTransport, local, plan_of, run_rounds, same
from support.streaming_cases import COMMON, KilledError, Ordered

from fleet_tools.baselines.federated.partial import NoStore, Partial
from fleet_tools.baselines.federated.round_messages import LATE
from fleet_tools.baselines.federated.transport import LostClient
from fleet_tools.baselines.training.state import TrainingError


def test_a_round_closes_when_enough_have_answered(large: Path) -> None:
    closing = {"over_sampling": 1.5}
    plan = plan_of(
        large,
        **COMMON,
        robots=6,
        participation=0.67,
        merge_every=None,
        closing=closing,
        streaming={},
    )
    (result,) = run_rounds(plan, Ordered(local(plan), lambda robot: -robot))
    left_out = {robot: each.left_out for robot, each in result.robots.items()}
    assert left_out == {0: LATE, 1: LATE, 2: None, 3: None, 4: None, 5: None}


@pytest.mark.parametrize("streaming", [None, {}], ids=["at_once", "streaming"])
def test_without_a_quorum_there_is_no_merge(large: Path, streaming: Any) -> None:
    closing = {"deadline": 5.0, "quorum": 0.8}
    plan = plan_of(large, **COMMON, robots=5, closing=closing, streaming=streaming)
    assert run_rounds(plan, Ordered(local(plan), silent=(3,)), count=1)  # 4 of 5
    with pytest.raises(TrainingError, match=r"3 of 5 .* quorum is 4"):
        run_rounds(plan, Ordered(local(plan), silent=(3, 4)), count=1)


def test_who_fails_is_dropped_without_beginning_anew(large: Path) -> None:
    plan = plan_of(large, **COMMON, robots=5, streaming={}, merge_every=None)
    recording = RecordingTransport(
        local(plan), lambda robot, before, answer: LostClient("unplugged") if robot == 2 else answer
    )
    (result,) = run_rounds(plan, recording)
    assert len(recording.exchanges) == 5
    assert [each.left_out for each in result.robots.values()] == [
        None,
        None,
        "unplugged",
        None,
        None,
    ]
    others = replace(plan, clients=tuple(each for each in plan.clients))
    (without,) = run_rounds(others, Ordered(local(plan), silent=(2,)))
    assert same(result.weights, without.weights) and without.came_late == 1


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("after", [1, 3, 4])
def test_a_round_that_was_killed_goes_on_to_the_same_bits(
    large: Path, monkeypatch: pytest.MonkeyPatch, passes: int, after: int
) -> None:
    from fleet_tools.baselines.federated import rounds

    monkeypatch.setattr(rounds, "STORE_EVERY_S", 0.0)
    settings = {"method": "git_rebasin", "streaming": {"passes": passes}, "merge_every": None}
    plan = plan_of(large, robots=4, **settings)
    (undisturbed,) = run_rounds(plan)
    stored: list[Partial] = []

    class Store(NoStore):
        def partial(self) -> Partial | None:
            return stored[-1] if stored else None

        def save_partial(self, partial: Partial) -> None:
            stored.append(partial)
            if len(stored) == after:
                raise KilledError

    with pytest.raises(KilledError):
        run_rounds(plan, store=Store())
    recording = RecordingTransport(local(plan))
    (resumed,) = run_rounds(plan, recording, store=Store())
    assert same(resumed.weights, undisturbed.weights) and resumed.loss == undisturbed.loss
    assert resumed.robots == undisturbed.robots
    assert len(recording.exchanges) == 4 * passes - after  # nobody who answered is asked again
