"""Robots that live at places of a cluster of several Ray nodes, of which one really ends."""

import contextlib
import json
import os
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
from fleet_tools.baselines.federated.ray_host import place_cores
from fleet_tools.baselines.federated.ray_transport import RayTransport
from fleet_tools.baselines.federated.transport import LostClient
from fleet_tools.errors import UnknownNameError
from fleet_tools.parallel import cluster

pytestmark = pytest.mark.slow

ROBOTS, PLACES = 4, ["lab_a", "lab_b"]


def test_each_robot_is_served_at_its_place_until_its_machine_is_lost(data: Path) -> None:
    """In a process of its own, since Ray decides when it is imported where it listens to whom.

    Clusters of this machine alone, which other tests start, listen on 127.0.0.1 and want tokens.
    """
    pytest.importorskip("ray")
    run = f"import {__name__} as test; test.act(sys.argv[1])"
    code = f"import sys; sys.path[:] = {sys.path!r}; {run}"
    variables = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1", "RAY_AUTH_MODE": "disabled"}
    assert run_python(code, str(data), **variables) == "done"


@contextlib.contextmanager
def running_nodes() -> Iterator[tuple[Any, dict[str, Any]]]:
    """A cluster whose head is at no place, and its nodes by their place."""
    from ray import cluster_utils

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nodes = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        try:
            places = {
                place: nodes.add_node(num_cpus=count, resources={place: 1})
                for place, count in zip(PLACES, (2, 1), strict=True)
            }
            nodes.wait_for_nodes()
            with cluster.connected(1, nodes.address):
                yield nodes, places
        finally:
            nodes.shutdown()


def act(data: str) -> None:
    """Serves robots at two places, of which one is lost on the way."""
    plan = plan_of(Path(data), robots=ROBOTS, split={"by": "nothing"})
    with running_nodes() as nodes:
        serve_and_lose(plan, nodes)
    print(json.dumps("done"))


def serve_and_lose(plan: FleetPlan, nodes: tuple[Any, dict[str, Any]]) -> None:
    lines: list[str] = []
    messages = dict.fromkeys(range(ROBOTS), request(plan))
    expected = exchanged(local(plan).exchange(messages))
    assert place_cores().items() >= {"lab_a": 2, "lab_b": 1}.items()
    with pytest.raises(UnknownNameError, match=r"'lab_c'.*Did you mean.*lab_a, lab_b"):
        RayTransport(plan.assignments, at_once=9, timeout_s=100.0, places=["lab_a", "lab_c"])
    with closing(
        RayTransport(
            plan.assignments, at_once=9, timeout_s=100.0, places=PLACES, report=lines.append
        )
    ) as transport:
        assert exchanged(transport.exchange(messages)) == expected
        where = {robot: location.node for robot, location in transport.locations.items()}
        cluster_, places = nodes
        assert [where[robot] for robot in range(ROBOTS)] == [
            places[PLACES[robot % 2]].node_id for robot in range(ROBOTS)
        ]
        at_a = {
            location.process for robot, location in transport.locations.items() if not robot % 2
        }
        assert len(at_a) <= 2 and os.getpid() not in at_a  # as many as it has cores

        long = messages | {1: request(plan, 10**6)}
        answers = {}
        for robot, answer in transport.exchange(long):
            answers |= exchanged([(robot, answer)])
            if robot == 0:
                cluster_.remove_node(places["lab_b"], allow_graceful=False)
        for robot in (1, 3):
            lost = answers.pop(robot)
            assert isinstance(lost, LostClient)
            assert f"Robot {robot} is lost: {lost.reason}" in lines
        assert answers == {0: expected[0], 2: expected[2]}
        assert sum(line.startswith("Machine ") for line in lines) == 1, lines
        again = exchanged(transport.exchange(messages))
        assert {0: again[0], 2: again[2]} == answers
        assert again[1] == again[3] == LostClient("no machine has its place 'lab_b'")
