"""Workers that really die and really hang."""

import contextlib
import os
import signal
import sys
import time
from functools import partial

import pytest

from fleet_tools.errors import InfeasibleError, UnknownNameError, WorkersError
from fleet_tools.parallel import cluster, workers
from fleet_tools.parallel.workers import Lost

ray = pytest.importorskip("ray")
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not see tests/


@pytest.fixture(name="cluster", scope="module", autouse=True)
def _cluster():
    """One for all, for starting one takes seconds; the programs' tests start their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "7")  # as a user may have it
        with cluster.connected(2, None) as ray:
            yield ray


def results_of(jobs, make_work, count, timeout_s=60.0):
    left = iter(jobs)
    run = workers.run(lambda: next(left, None), make_work, count=count, timeout_s=timeout_s)
    with contextlib.closing(run):
        return dict(run)


def make_square():
    return lambda job: job**2


def make_trouble(folder):
    """Does what a job says; `once` only the first time, over all processes."""

    def work(job):
        verb, _, once = job.partition(" ")
        done_before = (folder / verb).exists()
        (folder / verb).touch()
        if once and done_before:
            return f"{verb}, then well"
        match verb:
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "freeze":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "hang":
                time.sleep(1000)
        return verb

    return work


def make_unknown():
    raise UnknownNameError("tool", "hamer", ["hammer"])


def make_infeasible():
    def work(job):
        raise InfeasibleError(f"No plan for {job}.", {"distance": "1 m"})

    return work


def make_surroundings():
    return lambda job: (os.environ.get("OMP_NUM_THREADS"), os.getpid(), os.getpgrp())


def dying():
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_everything_is_done_once_whoever_does_it(count):
    assert results_of(range(20), make_square, count) == {k: k**2 for k in range(20)}


def test_who_dies_or_hangs_once_is_replaced(tmp_path):
    jobs = ["well", "die once", "freeze once", "well again"]
    begun = time.monotonic()
    results = results_of(jobs, partial(make_trouble, tmp_path), 2, timeout_s=4.0)
    assert results == {
        "well": "well",
        "well again": "well, then well",
        "die once": "die, then well",
        "freeze once": "freeze, then well",
    }
    assert time.monotonic() - begun > 4.0


def test_who_dies_or_hangs_twice_is_lost_and_takes_nothing_else_down(tmp_path):
    results = results_of(["die", "well", "hang"], partial(make_trouble, tmp_path), 2, timeout_s=3.0)
    assert results["well"] == "well"
    assert results["die"] == Lost("its worker died (ActorDiedError), 2 times")
    assert results["hang"] == Lost("it took longer than 3 s, 2 times")


@pytest.mark.parametrize("count", [0, 1])
def test_typed_errors_come_back_as_they_are(count):
    with pytest.raises(UnknownNameError, match="did you mean 'hammer'"):
        results_of([1], make_unknown, count)
    with pytest.raises(InfeasibleError, match=r"No plan for 7\.") as raised:
        results_of([7], make_infeasible, count)
    assert raised.value.violations == {"distance": "1 m"}


def test_workers_have_one_thread_and_none_is_this_process():
    (threads, process, group), *_ = results_of([0], make_surroundings, 1).values()
    assert threads == "1"
    assert process != os.getpid()
    assert group != os.getpgrp()  # Ctrl-C at the terminal does not reach it


def test_what_cannot_start_is_an_error_and_not_a_loop():
    with pytest.raises(WorkersError, match="Workers do not start: its worker died"):
        results_of([1], dying, 1)
