"""Actors that Ray does not reach for a moment, made by Ray's own injection of lost messages."""

import contextlib
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

JOBS, LOST = 12, 12
"""Numbers of jobs, and of messages to actors, or of their answers, that are lost on the way."""


def square(job: int) -> int:
    return job**2


def results_of_workers() -> list[int]:
    from fleet_tools.parallel import workers

    jobs = iter(range(JOBS))
    with contextlib.closing(
        workers.run(lambda: next(jobs, None), partial(make, square), count=1, timeout_s=100.0)
    ) as results:
        return [result for _, result in sorted(results) if isinstance(result, int)]


def make(work: Callable[[int], int]) -> Callable[[int], int]:
    return work


def results_of_robots(folder: Path) -> list[int]:
    """Returns 0 for each robot that answers on a host as it does in this process."""
    from support.fleet_cases import exchanged, local, plan_of, request, write_data

    from fleet_tools.baselines.federated.ray_transport import RayTransport

    plan = plan_of(write_data(folder / "data"), robots=JOBS, split={"by": "nothing"})
    messages = dict.fromkeys(range(JOBS), request(plan))
    expected = exchanged(local(plan).exchange(messages))
    with contextlib.closing(
        RayTransport(plan.assignments, at_once=1, timeout_s=100.0)
    ) as transport:
        answers = exchanged(transport.exchange(messages))
    return [int(answers[robot] != expected[robot]) for robot in range(JOBS)]


def main() -> None:
    """Prints what jobs and robots answer."""
    from fleet_tools.parallel import cluster

    with cluster.connected(1, None) as ray:
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
        results = [results_of_workers(), results_of_robots(Path(sys.argv[1]))]
    print(json.dumps(results))


@pytest.mark.parametrize("lost", ["req_failure_prob", "resp_failure_prob"])
def test_an_actor_that_ray_does_not_reach_for_a_moment_is_asked_again(lost, tmp_path):
    for library in ("ray", "torch", "safetensors"):
        pytest.importorskip(library)
    failures = {"num_failures": LOST, "req_failure_prob": 0, "resp_failure_prob": 0, lost: 25}
    chaos = json.dumps({"CoreWorkerService.grpc_client.PushTask": failures})
    tests = Path(__file__).parents[1]
    path = os.pathsep.join([str(tests), *sys.path])
    from support.processes import run_command

    variables = {"RAY_testing_rpc_failure": chaos, "PYTHONPATH": path}
    done = run_command(sys.executable, __file__, str(tmp_path), **variables)
    assert done.returncode == 0, done.stderr[-3000:]
    squares = [job**2 for job in range(JOBS)]
    assert json.loads(done.stdout) == [squares, [0] * JOBS]


if __name__ == "__main__":
    main()
