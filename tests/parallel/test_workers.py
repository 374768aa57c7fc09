"""Workers that really die and really hang."""

import contextlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import cloudpickle
import pytest

from fleet_tools.errors import InfeasibleError, UnknownNameError, WorkersError
from fleet_tools.parallel import cluster, workers
from fleet_tools.parallel.workers import LostJob, Work, WorkerOptions

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not import pytest

J = TypeVar("J")
R = TypeVar("R")

CORES = 3  # of the cluster, whatever this machine has


@pytest.fixture(name="cluster", scope="module")
def _cluster() -> Iterator[Any]:
    """One cluster for all tests, because its start takes seconds."""
    ray = pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "7")  # as a user may have it
        with cluster.connected(CORES, None):
            ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
            yield ray


@pytest.fixture(name="address", params=["local", pytest.param("ray", marks=pytest.mark.slow)])
def _address(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Child processes, and the cluster to which this process is connected, which is slow."""
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    if request.param == "local":
        return "local"
    request.getfixturevalue("cluster")
    return None


def results_of(
    jobs: Iterable[J],
    make_work: Callable[[], Work[J, R]],
    count: int | None,
    address: str | None,
    timeout_s: float = 60.0,
) -> dict[J, R | LostJob]:
    remaining = iter(jobs)
    run = workers.run(
        lambda: next(remaining, None), make_work, count=count, timeout_s=timeout_s, address=address
    )
    with contextlib.closing(run):
        return dict(run)


def make_square() -> Work[int, int]:
    return lambda job: job**2


def make_trouble(folder: Path) -> Work[str, str]:
    """Returns a function that does what a job names; "once": only the first time anywhere."""

    def work(job: str) -> str:
        verb, _, once = job.partition(" ")
        done_before = (folder / job).exists()
        (folder / job).touch()
        if once and done_before:
            return f"{verb}, then well"
        match verb:
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "freeze":
                os.kill(os.getpid(), signal.SIGSTOP)
        return verb

    return work


def make_meeting(folder: Path, members: int) -> Work[int, int]:
    """Returns a function that waits until it is at work in so many workers at the same time."""

    def work(job: int) -> int:
        (folder / str(os.getpid())).touch()
        while len(list(folder.iterdir())) < members:
            time.sleep(0.05)
        return os.getpid()

    return work


def make_visit(folder: Path) -> Work[int, int]:
    """Leaves a mark of each worker."""
    (folder / str(os.getpid())).touch()
    return lambda job: job


def make_reader() -> Work[Path, str]:
    return lambda path: path.read_text()


def make_unsendable() -> Work[str, object]:
    class TwoArgumentsError(Exception):
        def __init__(self, first: str, second: str) -> None:
            super().__init__(f"{first} takes nothing {second}")

    def work(job: str) -> object:
        if job == "error":
            raise TwoArgumentsError("it", "else")
        return (each for each in job)

    return work


def make_unknown() -> NoReturn:
    raise UnknownNameError("tool", "hamer", ["hammer"])


def make_infeasible() -> Work[int, NoReturn]:
    def work(job: int) -> NoReturn:
        raise InfeasibleError(f"No plan for {job}.", {"distance": "1 m"})

    return work


def make_surroundings() -> Work[int, tuple[str | None, int, int, list[str]]]:
    def work(_: int) -> tuple[str | None, int, int, list[str]]:
        started_with = Path("/proc/self/environ").read_text().split("\0")
        return os.environ.get("OMP_NUM_THREADS"), os.getpid(), os.getpgrp(), started_with

    return work


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("it is dead")


@pytest.mark.parametrize(
    ("address", "count"),
    [("local", 0), ("local", 1), ("local", 2), pytest.param("ray", 2, marks=pytest.mark.slow)],
    indirect=["address"],
)
def test_every_job_is_done_once_by_any_number_of_workers(count, address):
    assert results_of(range(20), make_square, count, address) == {k: k**2 for k in range(20)}


def test_options_run_jobs_that_are_listed_or_given_one_by_one():
    jobs = iter(range(3))
    options = WorkerOptions(workers=0)
    expected = {0: 0, 1: 1, 2: 4}
    assert dict(options.run(range(3), make_square)) == expected
    assert dict(options.run(lambda: next(jobs, None), make_square)) == expected


@pytest.mark.parametrize(
    ("address", "cores"),
    [("local", None), pytest.param("ray", CORES, marks=pytest.mark.slow)],
    indirect=["address"],
)
def test_by_default_there_are_as_many_workers_as_there_are_cores(address, cores, tmp_path):
    assert WorkerOptions().workers is None
    count = cluster.default_count() if cores is None else cores
    meeting = partial(make_meeting, tmp_path, count)
    assert len({*results_of(range(count), meeting, None, address).values()}) == count >= 1


@pytest.mark.parametrize("jobs", [0, 2])
def test_there_are_no_more_workers_than_jobs(jobs, address, tmp_path):
    results = results_of(range(jobs), partial(make_visit, tmp_path), CORES, address)
    assert len(results) == jobs
    assert len(list(tmp_path.iterdir())) <= jobs


@pytest.mark.parametrize(
    ("address", "death"),
    [("local", "SIGKILL"), pytest.param("ray", "ActorDiedError", marks=pytest.mark.slow)],
    indirect=["address"],
)
def test_workers_that_die_or_freeze_are_replaced_and_a_job_that_lost_two_is_lost_alone(
    address, death, tmp_path
):
    jobs = ["well", "die once", "freeze", "die", "well again"]
    results = results_of(jobs, partial(make_trouble, tmp_path), 2, address, timeout_s=2.0)
    assert results == {
        "well": "well",
        "well again": "well",
        "die once": "die, then well",
        "die": LostJob(f"its worker died ({death}), 2 times"),
        "freeze": LostJob("it took longer than 2 s, 2 times"),
    }


@pytest.mark.parametrize("tries", [1, 2])
def test_each_start_of_a_job_is_announced(tries, tmp_path):
    jobs, begun = iter(["well", "die"]), []
    run = workers.run(
        lambda: next(jobs, None),
        partial(make_trouble, tmp_path),
        count=1,
        timeout_s=60.0,
        address="local",
        tries=tries,
        before_each=begun.append,
    )
    results = dict(run)
    assert begun == ["well", *["die"] * tries]
    often = ", 2 times" if tries == 2 else ""
    assert results["die"] == LostJob(f"its worker died (SIGKILL){often}")


@pytest.mark.parametrize("count", [0, 1])
def test_typed_errors_are_raised_as_they_are(count, address):
    with pytest.raises(UnknownNameError, match="Did you mean 'hammer'"):
        results_of([1], make_unknown, count, address)
    with pytest.raises(InfeasibleError, match=r"No plan for 7\.") as raised:
        results_of([7], make_infeasible, count, address)
    assert raised.value.violations == {"distance": "1 m"}


def test_unexpected_errors_keep_their_class_and_say_where_they_arose(address):
    with pytest.raises(FileNotFoundError) as raised:
        results_of([Path("absent")], make_reader, 1, address)
    assert "make_reader" in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("result", ["generator", "error"])
def test_what_cannot_be_sent_is_an_error(result):
    with pytest.raises((TypeError, WorkersError), match=r"pickle|takes nothing"):
        results_of([result], make_unsendable, 1, "local")


def test_worker_has_one_thread_its_own_process_group_and_memory_at_hand(address):
    (result,) = results_of([0], make_surroundings, 1, address).values()
    assert not isinstance(result, LostJob)
    threads, process, group, variables = result
    assert threads == "1"
    # When it starts, as the C library reads it once; beside what the user has.
    assert "GLIBC_TUNABLES=glibc.malloc.tcache_count=200" in variables
    assert process != os.getpid()
    assert group != os.getpgrp()  # Ctrl-C at the terminal does not reach it


def test_workers_that_cannot_start_are_an_error_and_not_a_loop(address):
    with pytest.raises(WorkersError, match="Workers do not start: its worker died"):
        results_of([1], die, 1, address)


def test_large_jobs_and_results_arrive():
    content = os.urandom(10_000_000)
    (result,) = results_of([content], lambda: bytes.swapcase, 1, "local").values()
    assert result == content.swapcase()


@pytest.mark.parametrize("count", [0, 1, 3])
def test_each_worker_does_the_last_job_once_and_last(tmp_path, count):
    def make() -> Work[int, tuple[int, int]]:
        done: list[int] = []

        def work(job: int) -> tuple[int, int]:
            time.sleep(0.2)
            done.append(job)
            return os.getpid(), len(done)

        return work

    remaining = iter(range(6))
    run = workers.run(
        lambda: next(remaining, None),
        make,
        count=count,
        timeout_s=60.0,
        address="local",
        last_job=-1,
    )
    with contextlib.closing(run):
        results = [(job, result) for job, result in run if not isinstance(result, LostJob)]
    jobs = [result for job, result in results if job >= 0]
    last = [result for job, result in results if job < 0]
    assert len(jobs) == 6 and len(last) == max(count, 1)
    assert {process for process, _ in jobs} <= {process for process, _ in last}
    assert sum(done for _, done in last) == 6 + len(last)
