"""A dataset and a fleet on three machines of which one dies, or is cut off for a while.

`python -m pytest -m slow -rP tests/parallel/test_machines.py` prints what happened when.

The machines are network namespaces of this one, and share its file system (`support.namespaces`).
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.collected import lines_of, options, without_times
from support.namespaces import Machine, ray_machines, require_namespaces

from fleet_tools import collect, replay
from fleet_tools.dataset import Dataset

pytestmark = pytest.mark.slow

MACHINES = 3
CUT_S = 20.0
EPISODES = 60
LIMIT_S = 400.0

Disturb = Callable[[Machine], None]
"""Does something to a machine, and returns once it is over."""


def kill(machine: Machine) -> None:
    machine.kill()


def cut(machine: Machine) -> None:
    machine.set_link(False)
    time.sleep(CUT_S)
    machine.set_link(True)


@pytest.fixture(name="cluster")
def _cluster() -> Iterator[list[Machine]]:
    pytest.importorskip("ray")
    require_namespaces()
    with ray_machines(MACHINES, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="a" * 64) as machines:
        yield machines


@pytest.fixture(name="undisturbed", scope="module")
def _undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset that this process collected alone."""
    folder = tmp_path_factory.mktemp("undisturbed") / "hammer"
    assert collect.main(options(folder, "--quiet", episodes=EPISODES)) == 0
    return folder


def finished(
    cluster: list[Machine],
    command: list[str],
    progress: Callable[[], int],
    disturb: Disturb,
    *,
    after: int,
) -> tuple[dict[str, Any], str]:
    """Runs a program on the head, disturbs another machine at work; returns its report and stderr.

    Args:
        cluster: The machines.
        command: The program.
        progress: Returns what the program has done so far.
        disturb: What is done to a machine.
        after: Progress after which it is done.
    """
    head, *others = cluster
    began = time.monotonic()
    command = [sys.executable, "-m", *command, "--ray-address", head.address, "--json"]
    with head.running(*command) as process:
        while progress() < after or not (at_work := [each for each in others if each.actors()]):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() - began < LIMIT_S
            time.sleep(0.05)
        other, seconds = at_work[0], time.monotonic() - began
        print(f"{disturb.__name__} of {other.actors()} at {progress()}, after {seconds:.1f} s")
        disturbing = threading.Thread(target=disturb, args=(other,))
        disturbing.start()
        with contextlib.closing(_Watch(progress)):
            out, err = process.communicate(timeout=LIMIT_S)
        was_over = not disturbing.is_alive()
        print(f"ended after {time.monotonic() - began:.1f} s with {progress()}")
        disturbing.join()
    assert process.returncode == 0, err
    assert "Traceback" not in err, err
    assert was_over, "the program ended before the link was mended"
    print(err)
    return json.loads(out), err


class _Watch:
    """Measures the longest time without progress."""

    def __init__(self, progress: Callable[[], int]) -> None:
        self._progress, self._ended = progress, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        last, since, longest = self._progress(), time.monotonic(), 0.0
        while not self._ended.wait(0.05):
            if (now := self._progress()) != last:
                last, since = now, time.monotonic()
            longest = max(longest, time.monotonic() - since)
        print(f"longest time without progress: {longest:.1f} s")

    def close(self) -> None:
        self._ended.set()
        self._thread.join()


@pytest.mark.parametrize("disturb", [kill, cut])
def test_collection_loses_nothing(disturb, cluster, undisturbed, tmp_path):
    folder = tmp_path / "hammer"
    command = ["fleet_tools.collect", "--task", "hammer", "--episodes", str(EPISODES)]
    report, _ = finished(
        cluster, [*command, "--output", str(folder)], lambda: lines_of(folder), disturb, after=6
    )
    assert report["complete"] and report["successes"] == EPISODES
    assert "worker_error" not in {record.outcome for record in Dataset(folder).manifest()}
    assert without_times(folder) == without_times(undisturbed)
    assert replay.main([str(folder), "--episodes", "5", "--workers", "0", "--quiet"]) == 0


@pytest.mark.parametrize("disturb", [kill, cut])
def test_a_fleet_ends_and_names_whom_it_left_out(disturb, cluster, tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("safetensors")
    from support.fleet_cases import arguments, write_data

    data, output = write_data(tmp_path / "data"), tmp_path / "out"
    rounds, robots = 100, 6
    training = {"epochs": rounds, "batch_size": 2, "seed": 5}
    given = arguments(data, output, robots=robots, merge_every=1, training=training)
    given = [each for each in given if each not in ("--workers", "0")]
    log = output / "rounds.jsonl"

    def done() -> int:
        return log.read_bytes().count(b"\n") if log.exists() else 0

    command = ["fleet_tools.baselines.fleet", *given]
    report, err = finished(cluster, command, done, disturb, after=5)
    left_out = report["left_out"]
    print(f"left out: {left_out}")
    assert report["rounds"] == rounds == done()
    for number, robot in enumerate(report["robots"]):
        own = [each for each in left_out if each["robot"] == number]
        assert robot["rounds"] == rounds - len(own)
        assert all(each["round"] > 5 and each["reason"] for each in own)
        assert (f"Robot {number} is lost" in err) == bool(own)


def test_nothing_is_left_of_machines():
    pytest.importorskip("ray")
    require_namespaces()
    with contextlib.ExitStack() as stack:
        (machine,) = stack.enter_context(ray_machines(1))
        process, home = stack.enter_context(machine.running("sleep", "1000")), machine.home
        assert len(_namespaces()) == 2
    assert process.poll() is not None
    assert not _namespaces() and not home.exists()
    arguments = subprocess.run(["ps", "axo", "args"], capture_output=True, text=True).stdout
    assert str(home) not in arguments


def _namespaces() -> list[str]:
    """Returns the namespaces that this process made."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    return re.findall(rf"^\S+-{os.getpid()}-\S+", listed, re.MULTILINE)
