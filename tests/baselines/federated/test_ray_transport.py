"""Robots in Ray actors: the same bits, and actors that really die and really hang."""

import os
import signal
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import psutil
import torch
from support.fleet_cases import (
    RecordingTransport,
    local,
    plan_of,
    run_rounds,
    same,
)

from fleet_tools.baselines.federated.messages import is_request
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.ray_data_holder import RayDataHolder, result_of
from fleet_tools.baselines.federated.transport import LostRobot, RayTransport
from fleet_tools.baselines.merging.errors import MessageError
from fleet_tools.baselines.merging.queries.data_holder import DataHolder, ask
from fleet_tools.baselines.merging.queries.wire import Query, encode_query
from fleet_tools.parallel import cluster

ROBOTS = 2
ALIGNED = {
    "robots": ROBOTS,
    "method": "fleet_merge",
    "options": {"epochs": 1, "steps": 2},
    "merge_every": 1,
}
AT_ONCE, TIMEOUT_S = 1, 30.0  # a busy machine answers late


@pytest.fixture(scope="module", name="plan")
def _plan(data: Path) -> FleetPlan:
    return plan_of(data, **ALIGNED)


@pytest.fixture(scope="module", name="transport")
def _transport(plan: FleetPlan) -> Iterator[RayTransport]:
    """More robots than work at once; actors take seconds to start, and serve all tests."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with cluster.connected(AT_ONCE, None) as ray:
            if ray is None:
                pytest.skip("Ray does not start here")
            transport = RayTransport(plan.assignments, at_once=AT_ONCE, timeout_s=TIMEOUT_S)
            yield transport
            transport.close()


def test_robots_in_actors_compute_the_same_bits(plan: FleetPlan, transport: RayTransport) -> None:
    for one, other in zip(run_rounds(plan), run_rounds(plan, transport), strict=True):
        assert same(one.weights, other.weights) and one.loss == other.loss
        for robot, result in one.robots.items():
            assert result.traffic == other.robots[robot].traffic
    processes = {location.process for location in transport.locations.values()}
    assert len(processes) == ROBOTS and os.getpid() not in processes


def test_an_actor_has_no_methods_but_its_answer_and_its_location(transport: RayTransport) -> None:
    holder = transport.data_holders[0]
    assert [name for name in dir(holder.actor) if not name.startswith("_")] == [
        "answer",
        "location",
    ]
    assert result_of(holder.location()) == transport.locations[0]


def test_an_error_of_a_robot_arrives_with_its_own_message(transport: RayTransport) -> None:
    query = encode_query(Query({"other": torch.ones(1)}, None, False))
    with pytest.raises(MessageError, match=r"^The query is about another architecture"):
        transport.data_holders[0].answer(query)


def kill(transport: RayTransport, robot: int, number: int) -> int:
    """Sends a signal to the process of a robot, and returns its identifier."""
    process = transport.locations[robot].process
    os.kill(process, number)
    return process


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (signal.SIGKILL, "its actor ended"),
        (signal.SIGSTOP, "it took longer than 30 s"),
    ],
)
def test_a_robot_that_dies_or_hangs_while_others_train_is_left_out_and_returns(
    data: Path, transport: RayTransport, number: int, reason: str
) -> None:
    killed: list[int] = []

    def tamper(robot: int, before: int, answer: bytes | LostRobot) -> bytes | LostRobot:
        if not killed:  # robot 0 has answered, and with one at once robot 1 waits for its turn
            killed.append(kill(transport, 1, number))
        return answer

    first, second = run_rounds(plan_of(data, robots=ROBOTS), RecordingTransport(transport, tamper))
    (only,) = (each.merged_update for each in first.robots.values() if each.left_out is None)
    left_out = first.robots[1].left_out
    assert left_out is not None and reason in left_out and "\n" not in left_out
    assert only is not None and same(first.weights, only.weights)
    assert [result.left_out for result in second.robots.values()] == [None] * ROBOTS
    assert transport.locations[1].process != killed[0]
    assert not psutil.pid_exists(killed[0]) or psutil.Process(killed[0]).status() == "zombie"


def test_a_robot_that_dies_during_alignment_is_left_out_of_the_merge_and_returns(
    plan: FleetPlan, transport: RayTransport
) -> None:
    killed: list[int] = []

    class Killing(RecordingTransport):
        def exchange(
            self, messages: Mapping[int, bytes]
        ) -> Iterator[tuple[int, bytes | LostRobot]]:
            queries = sum(not is_request(sent) for _, sent, _ in self.exchanges)
            if queries == 1 and not killed:
                killed.append(kill(transport, 0, signal.SIGKILL))
            yield from super().exchange(messages)

    rounds = run_rounds(plan, Killing(transport), count=2)
    lost = rounds[0].robots[0]
    assert lost.left_out is not None and "its actor ended" in lost.left_out
    assert lost.update is not None  # it had trained
    assert [result.left_out for result in rounds[1].robots.values()] == [None] * ROBOTS

    def lose(robot: int, before: int, answer: bytes | LostRobot) -> bytes | LostRobot:
        return b"" if (robot, before) == (0, 1) else answer  # its first answer to a query

    (expected,) = run_rounds(plan, RecordingTransport(local(plan), lose), count=1)
    assert same(rounds[0].weights, expected.weights)


def test_why_an_actor_ended_is_reported(plan: FleetPlan, transport: RayTransport) -> None:
    def make() -> DataHolder:
        raise FileNotFoundError("no/such/drive")

    holder = RayDataHolder.start(make, num_cpus=0)
    with pytest.raises(MessageError, match=r"(?s)its actor ended.*no/such/drive"):
        ask(holder, plan.blueprint.create().state_dict(), 0)
