"""Streaming in configurations and in the program."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

from support.fleet_cases import arguments, config_of, local, plan_of
from support.streaming_cases import COMMON, KilledError

from fleet_tools.baselines.federated.partial import NoStore, Partial
from fleet_tools.baselines.federated.progress import after_round
from fleet_tools.baselines.federated.record import FleetWriter
from fleet_tools.baselines.federated.rounds import run_round
from fleet_tools.baselines.federated.summary import as_text
from fleet_tools.baselines.fleet import main
from fleet_tools.errors import ConfigError


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"method": "least_squares", "streaming": {}}, "choose one of naive_average"),
        ({"method": "fleet_merge", "options": {"soft": True}, "streaming": {}}, "'soft'"),
        ({**COMMON, "streaming": {"passes": 2}}, "passes: 1"),
        ({**COMMON, "streaming": {}, "try_robots": True}, "does not store robots' weights"),
        ({**COMMON, "streaming": {"bits": 5}}, "bits"),
        ({**COMMON, "streaming": {"bits": 8, "neighbours": 4}}, "neighbours"),
        ({**COMMON, "closing": {"over_sampling": 0.5}}, "over_sampling"),
        ({**COMMON, "closing": {"deadline": 0}}, "deadline"),
    ],
)
def test_what_cannot_stream_is_refused(data: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config_of(data, **changes)


def test_the_program_stores_answers_and_resumes(large: Path, tmp_path: Path) -> None:
    changes = {**COMMON, "robots": 10, "participation": 0.5, "streaming": {"bits": 8}}
    assert main(arguments(large, tmp_path / "whole", **changes)) == 0
    report = json.loads((tmp_path / "whole/report.json").read_text())
    numbers = {"robots": 10, "asked": 10, "merged": 10, "failed": 0}
    assert report["streaming"] == numbers | {"not_awaited": 0, "came_late": 0}
    assert report["robots"] == [] and report["traffic"]["messages"] == 10
    lines = [(tmp_path / f"whole/answers/{n}.jsonl").read_text().splitlines() for n in (1, 2)]
    assert [len(each) for each in lines] == [5, 5]
    plan = plan_of(large, **changes)
    assert [json.loads(line)["robot"] for line in lines[1]] == plan.participants(2)
    # Killed after the first round, with half of the second one done.
    with FleetWriter(tmp_path / "killed", plan) as writer:
        first = run_round(plan, local(plan), 1, None)
        writer.save(after_round(None, plan, first, None, 0.0))
        writer.save_answers(1, first.robots.values())
        stored: list[Partial] = []

        class Store(NoStore):
            def save_partial(self, partial: Partial) -> None:
                writer.save_partial(partial)
                stored.append(partial)
                if len(stored) == 3:
                    raise KilledError

        with pytest.MonkeyPatch.context() as patch, pytest.raises(KilledError):
            patch.setattr("fleet_tools.baselines.federated.rounds.STORE_EVERY_S", 0.0)
            run_round(plan, local(plan), 2, first.weights, Store())
    assert main(arguments(large, tmp_path / "killed", **changes)) == 0
    assert "10 requests: 10 changes merged, 0 not awaited, 0 failed" in as_text("", report)
    for name in ("merged.safetensors", "report.json", "answers/2.jsonl"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not (tmp_path / "killed/exchange.safetensors").exists()
