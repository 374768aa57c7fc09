"""The program that collects, with workers that are really killed, stopped and interrupted."""

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest
from support.collected import (
    COMMAND,
    EPISODES,
    lines_of,
    options,
    running,
    wait_until,
    without_times,
)
from support.processes import ROOT

from fleet_tools import collect
from fleet_tools.dataset import Dataset
from fleet_tools.parallel import cluster

pytest.importorskip("ray")

TWO = ("--workers", "2")


def busy_worker(process: subprocess.Popen[str], other_than: int | None = None) -> int:
    """Waits for a worker that does a job, and returns its process identifier."""
    found: list[int] = []

    def look() -> list[int]:
        for child in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):  # it has ended
                if child.pid != other_than and "_Worker.do" in "".join(child.cmdline()):
                    found.append(child.pid)
        return found

    wait_until(look, process)
    return found[0]


@pytest.mark.slow
def test_driver_killed_and_started_again(uninterrupted: Path, tmp_path: Path):
    with running(*options(tmp_path, *TWO)) as process:
        wait_until(lambda: lines_of(tmp_path) >= 1, process)
        orphan = busy_worker(process)
        os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: not psutil.pid_exists(orphan))
    assert 1 <= len(Dataset(tmp_path).manifest()) < EPISODES
    assert collect.main(options(tmp_path, "--quiet")) == 0
    assert without_times(tmp_path) == without_times(uninterrupted)


@pytest.mark.slow  # of workers alone: tests/parallel; of the program alone: test_collect.py
def test_workers_killed_and_stopped_change_nothing(uninterrupted: Path, tmp_path: Path):
    with running(*options(tmp_path, *TWO, "--timeout", "15")) as process:
        stopped = busy_worker(process)
        os.kill(stopped, signal.SIGSTOP)
        os.kill(busy_worker(process, other_than=stopped), signal.SIGKILL)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert out.startswith(f"hammer: {EPISODES} episodes")
    assert without_times(tmp_path) == without_times(uninterrupted)


@pytest.mark.slow
def test_ctrl_c_waits_for_the_episodes_in_progress(tmp_path: Path):
    episodes = 6  # more than those in progress and finished when it is interrupted
    with running(*options(tmp_path / "one", *TWO, episodes=episodes)) as process:
        wait_until(lambda: lines_of(tmp_path / "one") >= 1, process)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "The same command resumes it" in err
    assert "Traceback" not in err
    assert "attempts succeeded" in out
    assert not list(tmp_path.rglob("*.aside*"))
    for name in ("one", "other"):
        assert collect.main(options(tmp_path / name, "--quiet", episodes=episodes)) == 0
    assert without_times(tmp_path / "one") == without_times(tmp_path / "other")


@pytest.mark.slow
def test_on_a_running_cluster(uninterrupted: Path, tmp_path: Path):
    with cluster.connected(2, None) as ray:
        address = ray.get_runtime_context().gcs_address
        command = [*COMMAND, *options(tmp_path, *TWO, "--ray-address", address, "--json")]
        finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout)["complete"]
    assert without_times(tmp_path) == without_times(uninterrupted)
