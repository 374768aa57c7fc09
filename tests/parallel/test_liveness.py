"""Processes of Ray that die: when that counts, and what happens after real kills."""

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.processes import ROOT

from fleet_tools.errors import LostClusterError, WorkersError
from fleet_tools.parallel.ray_workers import EVERY_S, GRACE_S, Liveness
from fleet_tools.utils import cli


class Clock:
    """Time that passes only when someone waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def silent_between(clock: Clock, begin: float, end: float) -> Liveness:
    """Returns a cluster whose raylet does not answer for a while."""
    probes: dict[str, Callable[[], bool]] = {
        "control store": lambda: True,
        "raylet": lambda: not begin <= clock.now < end,
    }
    return Liveness(probes, clock, clock.sleep)


times = st.floats(0, 100)


@given(times, st.floats(0, 60), st.floats(0.1, 3))
def test_death_is_noticed_after_the_grace_and_never_before(begin, length, poll_s):
    clock = Clock()
    liveness = silent_between(clock, begin, begin + length)
    try:
        while clock.now < begin + length + 10:
            liveness.require()
            clock.sleep(poll_s)
    except LostClusterError as error:
        assert "raylet" in str(error)
        silent_s = clock.now - begin
        assert GRACE_S - EVERY_S - poll_s <= silent_s <= GRACE_S + EVERY_S + poll_s
    else:
        assert length <= GRACE_S + EVERY_S + poll_s


@given(st.floats(0, 60))
def test_a_lost_worker_waits_for_its_raylet(length):
    clock = Clock()
    liveness = silent_between(clock, 0.0, length)
    try:
        at_once = liveness.await_answers()
    except LostClusterError:
        assert length > GRACE_S and clock.now <= GRACE_S + EVERY_S
    else:
        assert at_once == (length == 0) and clock.now >= length


def test_programs_end_as_after_a_full_disk(capsys):
    error = LostClusterError("Ray's raylet has not answered for 15 s")
    assert isinstance(error, OSError) and isinstance(error, WorkersError)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert cli.stopped(error) == cli.FAILED
    assert "raylet has not answered for 15 s. The same command" in capsys.readouterr().err


JOBS = """
    import contextlib, sys
    from pathlib import Path
    from fleet_tools.parallel import cluster, workers

    def make():
        import time
        return lambda job: (time.sleep(0.3), job)[1]

    jobs = iter(range(10**6))
    with cluster.connected(2, None) as ray:
        address = ray.get_runtime_context().gcs_address
        run = workers.run(lambda: next(jobs, None), make, count=2, timeout_s=60, address=address)
        with contextlib.closing(run):
            for job, result in run:
                print(job, result, flush=True)
"""


_PATIENT = {"RAY_raylet_start_wait_time_s": "240", "RAY_agent_register_timeout_ms": "240000"}
"""Variables with which Ray starts on a busy machine, too."""


@contextmanager
def working(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Runs short jobs in workers of a process of its own, once it has done some."""
    output = folder / "output"
    with (
        output.open("wb") as file,
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(JOBS)],
            cwd=ROOT,
            env=os.environ | _PATIENT,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        deadline = time.monotonic() + 300
        while output.read_bytes().count(b"\n") < 2:
            assert process.poll() is None and time.monotonic() < deadline, output.read_text()
            time.sleep(0.05)
        family = psutil.Process(process.pid).children(recursive=True)
        try:
            yield process, output
        finally:
            for each in (process, *family):
                if each.is_running() if isinstance(each, psutil.Process) else True:
                    each.kill()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["raylet", "gcs_server"])
def test_a_killed_process_of_ray_ends_the_work_within_a_minute(tmp_path, name):
    pytest.importorskip("ray")
    with working(tmp_path) as (process, output):
        family = psutil.Process(process.pid).children(recursive=True)
        (victim,) = (each for each in family if each.name() == name)
        os.kill(victim.pid, signal.SIGKILL)
        began = time.monotonic()
        process.wait(timeout=120)
        assert time.monotonic() - began < 60
        assert "LostClusterError" in output.read_text()
        psutil.wait_procs(family, timeout=30)
        assert not [each for each in family if each.is_running()]


@pytest.mark.slow
def test_a_cluster_of_our_own_listens_on_this_machine_alone(tmp_path):
    pytest.importorskip("ray")
    with working(tmp_path) as (process, _):
        family = psutil.Process(process.pid).children(recursive=True)
        names = {each.name() for each in family}
        assert {"raylet", "gcs_server"} <= names
        listening = {
            (each.name(), connection.laddr.ip)
            for each in (*family, psutil.Process(process.pid))
            for connection in each.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        }
        assert listening, "nothing listens at all"
        here = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
        assert {ip for _, ip in listening} <= here, listening
        raylet = next(each for each in family if each.name() == "raylet")
        environment = raylet.environ()
        assert environment["RAY_AUTH_MODE"] == "token" and len(environment["RAY_AUTH_TOKEN"]) == 64
