"""`train --dagger`: rounds of training and of collecting with the expert."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

from support.collected import ONE_PAIR, options
from support.small_checkpoints import untrained
from support.training_cases import same

from fleet_tools import collect
from fleet_tools.baselines import train
from fleet_tools.baselines.training.record import load_progress
from fleet_tools.dataset.dataset_folder import Dataset
from fleet_tools.errors import PolicyError
from fleet_tools.evaluation.config import EvaluationConfig
from fleet_tools.evaluation.run import describe
from fleet_tools.rollouts.episode import LEARNER_STEPS


def arguments(data: Path, output: Path, rounds: int) -> list[str]:
    """Returns the program's arguments for a short training of a small policy."""
    size = ["--set", "body.layers=1", "--set", "body.width=8", "--epochs", "2", "--threads", "1"]
    rounds_ = ["--dagger", str(rounds), "--dagger-episodes", "1", "--validation-fraction", "0.4"]
    return [
        *["--dataset", str(data), "--architecture", "mlp", *size, *rounds_],
        *["--output", str(output), "--quiet", "--json"],
    ]


def test_rounds_learn_from_all_data_and_the_same_command_goes_on(tmp_path, capsys):
    data, output = tmp_path / "data", tmp_path / "run"
    assert collect.main(options(data, *ONE_PAIR, "--quiet")) == 0
    capsys.readouterr()
    assert train.main(arguments(data, output, 1)) == 0
    summary = json.loads(capsys.readouterr().out)
    rounds = [output / "round_0", output / "round_1"]
    assert [each["output"] for each in summary["rounds"]] == list(map(str, rounds))
    collected = Dataset(output / "data_1" / "hammer")
    records = collected.stored()
    assert len(records) == 1
    assert collected.header.policy.startswith("dagger:best.safetensors")
    assert collected.header.env_spec == Dataset(data).header.env_spec
    assert any(record.info[LEARNER_STEPS] for record in records)
    configs = [json.loads((each / "config.json").read_text()) for each in rounds]
    assert [config["episodes"] for config in configs] == [3, 4]
    assert {record.seed for record in records}.isdisjoint(r.seed for r in Dataset(data).stored())

    before = load_progress(rounds[1]).state.weights
    (rounds[1] / "state.safetensors").rename(tmp_path / "lost")  # as if it had just begun
    for name in ("metrics.jsonl", "last.safetensors", "best.safetensors", "config.json"):
        (rounds[1] / name).unlink()
    stored = {path: path.read_bytes() for path in (output / "data_1").rglob("*.hdf5")}
    assert train.main(arguments(data, output, 1)) == 0
    assert same(load_progress(rounds[1]).state.weights, before)
    assert {path: path.read_bytes() for path in (output / "data_1").rglob("*.hdf5")} == stored


def test_a_learner_that_the_expert_helps_cannot_be_evaluated(tmp_path):
    checkpoint = untrained(tmp_path / "policy.safetensors")
    with pytest.raises(PolicyError, match="acts in turns"):
        describe(EvaluationConfig(policy=f"dagger:{checkpoint}", tool="hammer"))
