"""Robots on a cluster of several Ray nodes, of which one really ends."""

import contextlib
import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

from support.fleet_cases import exchanged, local, plan_of, request
from support.processes import run_python

from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.ray_transport import RayTransport
from fleet_tools.baselines.federated.transport import LostClient
from fleet_tools.parallel import cluster

pytestmark = pytest.mark.slow

ROBOTS = 4


def test_robots_of_a_lost_machine_are_lost_in_its_round_alone(data: Path) -> None:
    """In a process of its own, since Ray decides when it is imported where it listens to whom.

    Clusters of this machine alone, which other tests start, listen on 127.0.0.1 and want tokens.
    """
    pytest.importorskip("ray")
    run = f"import {__name__} as test; test.act(sys.argv[1])"
    code = f"import sys; sys.path[:] = {sys.path!r}; {run}"
    variables = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1", "RAY_AUTH_MODE": "disabled"}
    assert run_python(code, str(data), **variables) == "done"


@contextlib.contextmanager
def running_nodes() -> Iterator[tuple[Any, list[Any]]]:
    """A cluster, and its nodes besides the head."""
    from ray import cluster_utils

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nodes = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        try:
            others = [nodes.add_node(num_cpus=1) for _ in range(2)]
            nodes.wait_for_nodes()
            with cluster.connected(1, nodes.address):
                yield nodes, others
        finally:
            nodes.shutdown()


def act(data: str) -> None:
    """Serves robots on machines of which one is lost on the way."""
    plan = plan_of(Path(data), robots=ROBOTS, split={"by": "nothing"})
    with running_nodes() as nodes:
        serve_and_lose(plan, *nodes)
    print(json.dumps("done"))


def serve_and_lose(plan: FleetPlan, nodes: Any, others: list[Any]) -> None:
    lines: list[str] = []
    messages = dict.fromkeys(range(ROBOTS), request(plan))
    expected = exchanged(local(plan).exchange(messages))
    with closing(
        RayTransport(plan.assignments, at_once=ROBOTS, timeout_s=100.0, report=lines.append)
    ) as transport:
        assert exchanged(transport.exchange(messages)) == expected
        where = {robot: location.node for robot, location in transport.locations.items()}
        ending = next(each for each in others if each.node_id in where.values())
        there = {robot for robot, node in where.items() if node == ending.node_id}
        assert there < where.keys()

        long = messages | dict.fromkeys(there, request(plan, 10**6))
        answers = {}
        for robot, answer in transport.exchange(long):
            answers |= exchanged([(robot, answer)])
            if answers.keys() == messages.keys() - there:
                nodes.remove_node(ending, allow_graceful=False)
        for robot in there:
            lost = answers.pop(robot)
            assert isinstance(lost, LostClient)
            assert f"Robot {robot} is lost: {lost.reason}" in lines
        assert answers == {robot: expected[robot] for robot in answers}
        assert sum(line.startswith("Machine ") for line in lines) == 1, lines
        assert exchanged(transport.exchange(messages)) == expected  # elsewhere
