"""The program that collects, with workers that are really interrupted."""

import contextlib
import json
import os
import shutil
import signal
import subprocess

import psutil
import pytest
from support.collected import (
    COMMAND,
    lines_of,
    options,
    running,
    wait_until,
    without_times,
)
from support.processes import run_command

from fleet_tools import collect
from fleet_tools.parallel import cluster, local_workers

TWO = ("--workers", "2")


def workers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    children = psutil.Process(process.pid).children()
    return [each for each in children if local_workers.__name__ in "".join(each.cmdline())]


def test_any_number_of_workers_gives_the_same_bytes(uninterrupted, tmp_path):
    assert collect.main(options(tmp_path, "--quiet", *TWO)) == 0
    assert without_times(tmp_path) == without_times(uninterrupted)


@pytest.mark.slow
def test_nothing_starts_for_a_collection_that_is_complete(uninterrupted, tmp_path):
    shutil.copytree(uninterrupted, tmp_path / "complete")
    with running(*options(tmp_path / "complete", *TWO, "--json")) as process:
        started = []
        while process.poll() is None:
            with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
                started += workers_of(process)
        out, err = process.communicate()
    assert json.loads(out)["attempts_now"] == 0, err
    assert not started


@pytest.mark.slow
def test_ctrl_c_waits_for_the_episodes_in_progress(tmp_path):
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
def test_on_a_running_cluster(uninterrupted, tmp_path):
    pytest.importorskip("ray")
    with cluster.connected(2, None) as ray:
        address = ray.get_runtime_context().gcs_address
        command = [*COMMAND, *options(tmp_path, *TWO, "--ray-address", address, "--json")]
        finished = run_command(*command)
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout)["complete"]
    assert without_times(tmp_path) == without_times(uninterrupted)
