"""Robots served by Ray actors: the same bits, and actors that really die and really hang.

They are slow; of messages, deadlines and memory without Ray, the quick ones are in
`test_transports.py` and `test_robot_host.py`.
"""

import os
import signal
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import psutil
import torch
from support.fleet_cases import (
    RecordingTransport,
    exchanged,
    local,
    plan_of,
    request,
    run_rounds,
    same,
)

from fleet_merging.queries.query import LossQuery
from fleet_tools.baselines.federated import ray_transport
from fleet_tools.baselines.federated.messages import Answer, Message
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.ray_transport import RayTransport
from fleet_tools.baselines.federated.transport import LostClient
from fleet_tools.parallel import cluster

ROBOTS = 5
ALIGNED = {
    "robots": ROBOTS,
    "split": {"by": "nothing"},
    "method": "fleet_merge",
    "options": {"epochs": 1, "steps": 2},
    "merge_every": 1,
}
AT_ONCE, TIMEOUT_S = 2, 120.0  # a busy machine answers late
LONG = 10**6
"""Epochs that no robot completes within a test."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", name="plan")
def _plan(data: Path) -> FleetPlan:
    return plan_of(data, **ALIGNED)


@pytest.fixture(scope="module", name="cluster", autouse=True)
def _cluster() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with cluster.connected(AT_ONCE, None) as ray:
            if ray is None:
                pytest.skip("Ray does not start here")
            yield


@pytest.fixture(scope="module", name="transport")
def _transport(plan: FleetPlan, cluster: None) -> Iterator[RayTransport]:
    """More robots than hosts, which take seconds to start, and serve most tests."""
    with closing(RayTransport(plan.assignments, at_once=AT_ONCE, timeout_s=TIMEOUT_S)) as transport:
        yield transport


def query(plan: FleetPlan, seed: int = 7) -> LossQuery:
    return LossQuery(plan.blueprint.create(1).state_dict(), seed)


def processes(transport: RayTransport) -> set[int]:
    """Returns the processes that served robots last."""
    return {location.process for location in transport.locations.values()}


def all_of(plan: FleetPlan, message: Message) -> dict[int, Message]:
    return dict.fromkeys(range(len(plan.assignments)), message)


def expected(plan: FleetPlan) -> dict[int, bytes | LostClient]:
    """Returns the answers to a request of robots in this process."""
    return exchanged(local(plan).exchange(all_of(plan, request(plan))))


def await_late(transport: RayTransport, count: int) -> list[int]:
    """Returns the robots that are late, once there are so many."""
    late, until = transport.late(), time.monotonic() + TIMEOUT_S
    while len(late) < count and time.monotonic() < until:
        time.sleep(0.1)
        late += transport.late()
    return late


def killed(process: int) -> bool:
    return not psutil.pid_exists(process) or psutil.Process(process).status() == "zombie"


def test_robots_on_hosts_compute_the_same_bits(plan: FleetPlan, transport: RayTransport) -> None:
    for one, other in zip(run_rounds(plan), run_rounds(plan, transport), strict=True):
        assert same(one.weights, other.weights) and one.loss == other.loss
        for robot, result in one.robots.items():
            assert result == other.robots[robot]
    assert len(transport.locations) == ROBOTS
    assert len(processes(transport)) <= AT_ONCE and os.getpid() not in processes(transport)


@pytest.mark.parametrize("at_once", [1, 3])
def test_answers_depend_neither_on_the_number_of_hosts_nor_on_the_order(
    plan: FleetPlan, at_once: int
) -> None:
    def both(transport: RayTransport, robots: Sequence[int]) -> dict[int, bytes | LostClient]:
        answers = exchanged(transport.exchange({robot: request(plan) for robot in robots}))
        queries = {robot: query(plan) for robot in robots[::2]}
        return answers | exchanged(transport.exchange(queries))

    robots = [3, 0, 4, 1, 2]
    correct = exchanged(local(plan).exchange(all_of(plan, request(plan))))
    correct |= exchanged(local(plan).exchange({robot: query(plan) for robot in robots[::2]}))
    transport = RayTransport(plan.assignments, at_once=at_once, timeout_s=TIMEOUT_S, memory=0.0)
    with closing(transport):
        assert both(transport, robots) == correct
        assert len(processes(transport)) <= at_once


def test_the_messages_of_a_robot_go_to_the_host_that_has_it_open(
    plan: FleetPlan, transport: RayTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_transport, "PATIENCE_S", 60.0)  # on a busy machine, too
    exchanged(transport.exchange(all_of(plan, request(plan))))
    homes = dict(transport.locations)
    for seed in range(10):
        for robot in (4, 1, 3):
            exchanged(transport.exchange({robot: query(plan, seed)}))
    assert transport.locations == homes


def test_a_robot_that_raises_is_lost_alone_and_its_host_serves_on(
    plan: FleetPlan, transport: RayTransport
) -> None:
    foreign = LossQuery({"other": torch.ones(1)}, None, False)
    before = set(exchanged(transport.exchange(all_of(plan, request(plan)))).items())
    hosts = processes(transport)
    answers = exchanged(transport.exchange(all_of(plan, request(plan)) | {2: foreign}))
    lost = answers[2]
    assert isinstance(lost, LostClient)
    assert lost.reason.startswith("MessageError: The query has another architecture")
    assert {each for each in before if each[0] != 2} == set(answers.items()) - {(2, lost)}
    assert exchanged(transport.exchange(all_of(plan, request(plan)))) == dict(before)
    assert processes(transport) == hosts


@pytest.mark.parametrize(
    ("number", "reason", "timeout_s"),
    [
        (signal.SIGKILL, "its process ended", TIMEOUT_S),
        (signal.SIGSTOP, "it took longer than 20 s", 20.0),
    ],
)
def test_a_host_that_dies_or_hangs_loses_the_robot_that_it_serves_and_is_replaced(
    plan: FleetPlan, number: int, reason: str, timeout_s: float
) -> None:
    lines: list[str] = []
    with closing(
        RayTransport(plan.assignments, at_once=2, timeout_s=timeout_s, report=lines.append)
    ) as transport:
        answers: dict[int, bytes | LostClient] = {}
        process = 0
        for robot, answer in transport.exchange(
            all_of(plan, request(plan)) | {0: request(plan, LONG)}
        ):
            answers |= exchanged(iter([(robot, answer)]))
            if not process:  # robot 0 was sent its message first, and trains
                process = transport.locations[0].process
                os.kill(process, number)
        lost = answers.pop(0)
        assert isinstance(lost, LostClient) and reason in lost.reason and "\n" not in lost.reason
        assert lines == [f"Robot 0 is lost: {lost.reason}"]
        assert answers == {k: each for k, each in expected(plan).items() if k}
        assert exchanged(transport.exchange(all_of(plan, request(plan)))) == expected(plan)
        assert process not in processes(transport) and killed(process)


def test_a_host_that_dies_without_work_loses_no_robot(
    plan: FleetPlan, transport: RayTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_transport, "CHECK_S", 0.0)
    exchanged(transport.exchange(all_of(plan, request(plan))))
    for process in processes(transport):
        os.kill(process, signal.SIGKILL)
    assert exchanged(transport.exchange(all_of(plan, request(plan)))) == expected(plan)


def test_at_the_deadline_the_iterator_ends_and_late_answers_are_named(
    plan: FleetPlan, transport: RayTransport
) -> None:
    correct = expected(plan)
    exchanged(transport.exchange(all_of(plan, request(plan))))  # both hosts run
    begun = time.monotonic()
    exchanged(transport.exchange({0: request(plan, 200)}))
    epochs = int(12 * 200 / (time.monotonic() - begun))  # of about 12 s
    messages = {0: request(plan, epochs), 1: request(plan)}
    begun = time.monotonic()
    answers = exchanged(transport.exchange(messages, deadline_s=2.0))
    assert time.monotonic() - begun < 6.0
    assert 0 not in answers and answers.items() <= correct.items()
    others = {robot: request(plan) for robot in (2, 3, 4)}
    assert exchanged(transport.exchange(others)) == {robot: correct[robot] for robot in others}
    late = {0, 1} - answers.keys()
    assert sorted(await_late(transport, len(late))) == sorted(late)
    for deadline_s in (0.0, -1.0):
        assert exchanged(transport.exchange({}, deadline_s=deadline_s)) == {}
        assert exchanged(transport.exchange(messages, deadline_s=deadline_s)) == {}
    assert transport.late() == []


def test_after_the_iterator_is_closed_no_message_is_begun(plan: FleetPlan) -> None:
    with closing(RayTransport(plan.assignments, at_once=1, timeout_s=TIMEOUT_S)) as transport:
        with closing(transport.exchange(all_of(plan, request(plan)))) as answers:
            first, _ = next(answers)
        assert first == 0 and transport.late() == [] and list(transport.locations) == [0]
        with closing(transport.exchange(all_of(plan, request(plan, 50)))) as answers:
            next(answers)
            next(answers)
        assert set(transport.locations) == {0, 1}
        assert exchanged(transport.exchange({4: request(plan)})) == {4: expected(plan)[4]}


def test_an_abandoned_message_is_waited_for_no_longer_than_its_limit(plan: FleetPlan) -> None:
    correct = expected(plan)
    with closing(RayTransport(plan.assignments, at_once=2, timeout_s=15.0)) as transport:
        # Robot 0 occupies one host, so that the other one starts, too.
        with closing(transport.exchange({0: request(plan, LONG), 1: request(plan)})) as answers:
            assert exchanged(islice(answers, 1)) == {1: correct[1]}
        process = transport.locations[0].process
        others = {robot: request(plan) for robot in (1, 2, 3, 4)}
        assert exchanged(transport.exchange(others)) == {robot: correct[robot] for robot in others}
        until = time.monotonic() + TIMEOUT_S
        while not killed(process) and time.monotonic() < until:
            assert transport.late() == []
            time.sleep(0.2)
        assert exchanged(transport.exchange(all_of(plan, request(plan)))) == correct
        assert process not in processes(transport)


def test_a_robot_that_is_lost_during_alignment_is_left_out_and_returns(
    plan: FleetPlan, transport: RayTransport
) -> None:
    def lose(robot: int, before: int, answer: Answer | LostClient) -> Answer | LostClient:
        return {} if (robot, before) == (0, 1) else answer  # its first answer to a query

    rounds = run_rounds(plan, RecordingTransport(transport, lose), count=2)
    lost = rounds[0].robots[0]
    assert lost.left_out is not None and lost.steps is not None  # it had trained
    assert [result.left_out for result in rounds[1].robots.values()] == [None] * ROBOTS
    (other,) = run_rounds(plan, RecordingTransport(local(plan), lose), count=1)
    assert same(rounds[0].weights, other.weights)


def test_a_robot_that_is_ended_is_lost_and_returns(plan: FleetPlan) -> None:
    with closing(RayTransport(plan.assignments, at_once=2, timeout_s=TIMEOUT_S)) as transport:
        answers: dict[int, bytes | LostClient] = {}
        for robot, answer in transport.exchange({0: request(plan, LONG), 1: request(plan)}):
            answers |= exchanged(iter([(robot, answer)]))
            transport.end(0)  # it trains
            transport.end(1)  # it has answered
        assert answers == {0: LostClient("it was ended"), 1: expected(plan)[1]}
        assert exchanged(transport.exchange(all_of(plan, request(plan)))) == expected(plan)


def test_many_robots_on_two_hosts_take_the_memory_of_two(data: Path) -> None:
    plan = plan_of(data, robots=200, split={"by": "nothing"})
    transport = RayTransport(plan.assignments, at_once=2, timeout_s=TIMEOUT_S, memory=10e6)
    with closing(transport):
        some = dict.fromkeys(range(20), request(plan))
        answers = exchanged(transport.exchange(some))
        before = {each: psutil.Process(each).memory_info().rss for each in processes(transport)}
        answers |= exchanged(transport.exchange(all_of(plan, request(plan))))
        assert len(answers) == 200 and not any(isinstance(a, LostClient) for a in answers.values())
        assert processes(transport) == before.keys() and len(before) <= 2
        for process, held in before.items():
            assert psutil.Process(process).memory_info().rss - held < 50e6
