"""Child processes end when they should, and need nothing of the main module."""

import contextlib
import os
import sys
import time
from collections.abc import Callable

import cloudpickle
import psutil
import pytest
from support.collected import wait_until
from support.processes import ROOT, run_command, running_process

from fleet_tools.parallel.child_process import ChildProcess
from fleet_tools.parallel.workers import LostJob, WorkerOptions

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not import pytest

NO_GUARD = """
import os
from fleet_tools.parallel.workers import WorkerOptions

FACTOR = 3

class Number:
    def __init__(self, value):
        self.value = value

def make():
    def work(job):
        print("printed by a job")
        return Number(job.value * FACTOR)
    return work

jobs = [Number(1), Number(2)]
results = [result for _, result in WorkerOptions(workers=2).run(jobs, make)]
assert all(isinstance(result, Number) for result in results)
print(sorted(result.value for result in results))
"""

KILLED = """
import os, signal, sys, time
from pathlib import Path
from fleet_tools.parallel.workers import WorkerOptions

folder = Path(sys.argv[1])

def make():
    def work(job):
        (folder / f"{job}-{os.getpid()}").touch()
        while job == "loops":
            pass
        if job == "stops":
            os.kill(os.getpid(), signal.SIGSTOP)
        if job == "forks" and not os.fork():
            (folder / f"forked-{os.getpid()}").touch()
            time.sleep(1000)
        return job
    return work

for _ in WorkerOptions(workers=4).run(["loops", "stops", "forks", "ends"], make):
    pass
"""


def runs(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def test_a_script_needs_no_main_guard_and_stdout_is_its_own(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(NO_GUARD)
    done = run_command(sys.executable, str(script), cwd=tmp_path, PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[3, 6]\n"
    assert done.stderr.count("printed by a job") == 2


@pytest.mark.slow
def test_nothing_is_left_of_a_driver_that_is_killed(tmp_path):
    """Neither a worker that is busy, stopped or idle, nor what a worker has forked."""
    with running_process([sys.executable, "-c", KILLED, str(tmp_path)]) as driver:
        wait_until(lambda: len(list(tmp_path.iterdir())) == 5, driver)
        pids = {job: int(pid) for job, pid in (each.name.split("-") for each in tmp_path.iterdir())}
        stopped = psutil.Process(pids["stops"])
        wait_until(lambda: stopped.status() == psutil.STATUS_STOPPED)
        assert all(map(runs, pids.values()))
        driver.kill()
        wait_until(lambda: not any(map(runs, pids.values())))


def test_nothing_is_left_of_an_iterator_that_is_closed_early():
    before = psutil.Process().children()
    results = WorkerOptions(workers=2).run(range(1, 100), lambda: time.sleep)
    next(results)
    started = [each for each in psutil.Process().children() if each not in before]
    assert len(started) == 2
    results.close()
    assert not any(map(psutil.Process.is_running, started))  # nor a zombie


def test_a_worker_is_dead_even_if_what_it_has_forked_lives():
    def make() -> Callable[[int], int]:
        def work(job: int) -> int:
            if os.fork() == 0:
                time.sleep(1000)
            os._exit(job)

        return work

    (_, result), *others = WorkerOptions(workers=1).run([3], make)
    assert result == LostJob("its worker died (exit code 3), 2 times") and not others


def test_a_process_may_be_ended_twice():
    process = ChildProcess("fleet_tools.parallel.local_workers")
    assert not process.ended
    assert process.end() == process.end() == "SIGKILL"
    assert process.ended
