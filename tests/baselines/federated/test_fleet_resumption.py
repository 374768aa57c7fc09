"""A fleet that was stopped or killed is resumed, and ends with the same bits."""

import contextlib
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

from support.fleet_cases import (
    ROUNDS,
    RecordingTransport,
    arguments,
    local,
    plan_of,
    rounds_of,
    run_program,
    same,
    same_result,
)
from support.processes import ROOT

from fleet_tools.baselines.federated.messages import Answer
from fleet_tools.baselines.federated.record import FleetWriter, load_progress
from fleet_tools.baselines.federated.run import run
from fleet_tools.baselines.federated.transport import LostClient
from fleet_tools.baselines.fleet import main

Start = Callable[..., BaseProcess]
"""start(arguments, errors): starts the program in a new process, with a file for its stderr."""


@pytest.fixture(scope="module", name="start")
def _start() -> Start:
    """Processes are forked from a server, which imports once what the program needs."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["pytest", "support.fleet_cases", "fleet_tools.baselines.federated.run", "torch._dynamo"]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT / "tests"), prepend=os.pathsep)  # as pytest's path
        forkserver.ensure_running()

    def start(arguments: list[str], errors: Path = Path(os.devnull)) -> BaseProcess:
        process = context.Process(target=run_program, args=(arguments, errors))
        process.start()
        return process

    return start


def count_replies(folder: Path) -> int:
    """Returns the number of stored replies."""
    return len(list((folder / "replies").glob("[0-9]*.safetensors")))


def count_rounds(folder: Path) -> int:
    """Returns the number of rounds in the log."""
    with contextlib.suppress(FileNotFoundError):
        return (folder / "rounds.jsonl").read_bytes().count(b"\n")
    return 0


@pytest.mark.slow  # of Ctrl-C, and of a kill between two files: below
def test_after_kill_9_within_a_round_and_between_rounds_it_ends_with_the_same_bits(
    data: Path, whole: Path, tmp_path: Path, start: Start
) -> None:
    killed = tmp_path / "killed"
    seen: list[int] = []
    for moment in (
        lambda: count_replies(killed) >= 1,
        lambda: count_rounds(killed) > seen[0] + 1,
    ):
        process = start(arguments(data, killed, **ROUNDS))
        while process.is_alive() and not moment():
            time.sleep(0.0005)
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        seen.append(count_rounds(killed))
    assert seen[-1] < 8
    assert main(arguments(data, killed, **ROUNDS)) == 0
    assert same_result(whole, killed)
    names = [{path.name for path in folder.iterdir()} for folder in (whole, killed)]
    assert names[0] == names[1]


def test_ctrl_c_keeps_finished_rounds(
    data: Path, whole: Path, tmp_path: Path, start: Start
) -> None:
    stopped, errors = tmp_path / "stopped", tmp_path / "errors"
    process = start(arguments(data, stopped, **ROUNDS), errors)
    while process.is_alive() and count_rounds(stopped) < 3:
        time.sleep(0.0005)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGINT)
    process.join()
    assert process.exitcode == 130, errors.read_text()
    assert "The same command resumes it" in errors.read_text()
    assert 3 <= count_rounds(stopped) < 8
    assert main(arguments(data, stopped, **ROUNDS)) == 0
    assert same_result(whole, stopped)


def test_stored_replies_are_not_requested_again(data: Path, whole: Path, tmp_path: Path) -> None:
    plan, folder = plan_of(data, **ROUNDS), tmp_path / "out"

    def stop(robot: int, before: int, answer: Answer | LostClient) -> Answer | LostClient:
        if robot == 2:
            raise KeyboardInterrupt
        return answer

    with FleetWriter(folder, plan) as writer, pytest.raises(KeyboardInterrupt):
        run(writer, RecordingTransport(local(plan), stop))
    assert count_replies(folder) == 2
    transport = RecordingTransport(local(plan))
    with FleetWriter(folder, plan) as writer:
        assert same(run(writer, transport).weights, load_progress(whole).weights)
    assert [each[0] for each in transport.exchanges] == [2] + [0, 1, 2] * 7
    assert rounds_of(folder) == rounds_of(whole)


def test_a_kill_between_the_state_and_its_log_loses_no_line(
    data: Path, whole: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    shutil.copytree(whole, folder)
    lines = (folder / "rounds.jsonl").read_bytes()
    (folder / "rounds.jsonl").write_bytes(lines[: lines.index(b"\n") + 9])
    (folder / "merged.safetensors").unlink()
    assert main(arguments(data, folder, **ROUNDS)) == 0
    assert (folder / "rounds.jsonl").read_bytes() == lines
    assert same_result(whole, folder)


def test_a_second_process_cannot_write_to_a_fleet(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with FleetWriter(tmp_path / "out", plan_of(data)):
        assert main(arguments(data, tmp_path / "out")) == 2
    assert "Another process is writing to" in capsys.readouterr().err
