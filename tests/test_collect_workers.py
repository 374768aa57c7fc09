"""The program that collects, with workers: killed, stopped and interrupted for real."""

import contextlib
import json
import os
import signal
import subprocess
import time

import psutil
import pytest
from collected import COMMAND, EPISODES, ROOT, options, timeless

from fleet_tools import collect
from fleet_tools.dataset import Dataset
from fleet_tools.parallel import cluster

pytest.importorskip("ray")

TWO = ("--workers", "2")


def begin(*arguments):
    """Starts the program in a process group of its own."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*COMMAND, *arguments], cwd=ROOT, start_new_session=True, **pipes)


def wait_until(condition, process=None):
    deadline = time.monotonic() + 120
    while not condition():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def lines_of(folder):
    manifest = folder / "manifest.jsonl"
    return manifest.read_bytes().count(b"\n") if manifest.exists() else 0


def worker_at_work(process, apart_from=None):
    """Waits for one, and returns its number."""
    found = []

    def look():
        for child in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):  # it has ended
                if child.pid != apart_from and "_Worker.do" in "".join(child.cmdline()):
                    found.append(child.pid)
        return found

    wait_until(look, process)
    return found[0]


def test_workers_killed_and_stopped_at_work_change_nothing(uninterrupted, tmp_path):
    process = begin(*options(tmp_path, *TWO, "--timeout", "15"))
    stopped = worker_at_work(process)
    os.kill(stopped, signal.SIGSTOP)
    os.kill(worker_at_work(process, apart_from=stopped), signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert out.startswith(f"hammer: {EPISODES} episodes")
    assert timeless(tmp_path) == timeless(uninterrupted)


def test_driver_killed_at_work_and_begun_again(uninterrupted, tmp_path):
    process = begin(*options(tmp_path, *TWO))
    wait_until(lambda: lines_of(tmp_path) >= 1, process)
    orphan = worker_at_work(process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    wait_until(lambda: not psutil.pid_exists(orphan))
    assert 1 <= len(Dataset(tmp_path).manifest()) < EPISODES
    assert collect.main(options(tmp_path, "--quiet")) == 0
    assert timeless(tmp_path) == timeless(uninterrupted)


def test_interrupted_it_finishes_what_was_begun_and_says_how_to_go_on(uninterrupted, tmp_path):
    process = begin(*options(tmp_path, *TWO))
    wait_until(lambda: lines_of(tmp_path) >= 1, process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "The same command goes on" in err
    assert "Traceback" not in err
    assert "attempts succeeded" in out
    assert not list(tmp_path.rglob("*.aside*"))
    assert collect.main(options(tmp_path, "--quiet")) == 0
    assert timeless(tmp_path) == timeless(uninterrupted)


def test_on_a_running_cluster(uninterrupted, tmp_path, capsys):
    with cluster.connected(2, None) as ray:
        address = ray.get_runtime_context().gcs_address
        command = [*COMMAND, *options(tmp_path, *TWO, "--ray-address", address, "--json")]
        finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout)["complete"]
    assert timeless(tmp_path) == timeless(uninterrupted)
