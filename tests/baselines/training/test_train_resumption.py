"""A training run is resumed after kill -9 and after Ctrl-C as if it had never stopped."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

from support.processes import ROOT
from support.training_cases import same, small_data, train_options

from fleet_tools.baselines import train
from fleet_tools.baselines.training.record import load_progress


@pytest.fixture(scope="module", name="data")
def _data(tmp_path_factory):
    return small_data(tmp_path_factory.mktemp("program") / "data").episodes[0].folder


def same_result(one: Path, other: Path) -> bool:
    """Whether two runs have the same result, except for wall times."""
    runs = [load_progress(folder) for folder in (one, other)]
    metrics = [[each.model_copy(update={"seconds": 0}) for each in run.metrics] for run in runs]
    return (
        same(runs[0].state.weights, runs[1].state.weights)
        and same(runs[0].state.moments, runs[1].state.moments)
        and all(
            (one / name).read_bytes() == (other / name).read_bytes()
            for name in ("last.safetensors", "best.safetensors")
        )
        and metrics[0] == metrics[1]
    )


@pytest.mark.slow  # of what is left then: test_damaged_training.py
def test_after_kill_9_and_ctrl_c_the_same_command_ends_with_the_same_bits(data, tmp_path, capsys):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    epochs = ["--epochs", "30", "--quiet"]
    assert train.main(train_options(data, whole, *epochs)) == 0
    options = train_options(data, stopped, *epochs, "--save-every", "0.001")
    program = [sys.executable, "-m", "fleet_tools.baselines.train"]
    process = subprocess.Popen([*program, *options], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and _epochs(stopped) < 2:
        time.sleep(0.002)
    process.kill()
    _, errors = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL, errors
    assert 2 <= load_progress(stopped).state.epoch < 30

    def interrupt() -> None:
        while _epochs(stopped) < 6:
            time.sleep(0.002)
        os.kill(os.getpid(), signal.SIGINT)

    with ThreadPoolExecutor(1) as threads:
        interrupted = threads.submit(interrupt)
        assert train.main(options) == 130
        interrupted.result()
    assert "The same command resumes it" in capsys.readouterr().err
    assert 6 <= load_progress(stopped).state.epoch < 30
    assert train.main(train_options(data, stopped, *epochs)) == 0
    assert same_result(whole, stopped)
    assert {path.name for path in stopped.iterdir()} == {path.name for path in whole.iterdir()}


def _epochs(folder: Path) -> int:
    try:
        return len((folder / "metrics.jsonl").read_text().splitlines())
    except FileNotFoundError:
        return 0
