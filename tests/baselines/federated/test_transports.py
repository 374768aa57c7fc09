"""Deadlines, closed iterators and lost robots of the transports that need no Ray."""

import shutil
import time
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

from support.fleet_cases import exchanged, local, plan_of, request, write_data

from fleet_tools.baselines.federated.messages import Message, TrainRequest
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.transport import (
    Answers,
    CachingTransport,
    LocalTransport,
    LostClient,
)

ROBOTS = 4


@pytest.fixture(scope="module", name="plan")
def _plan(data: Path) -> FleetPlan:
    return plan_of(data, robots=ROBOTS, split={"by": "nothing"})


def first_request(epochs: int = 1) -> TrainRequest:
    """Returns a request of the first round, whose replies are cached."""
    return TrainRequest(1, 0, epochs, None)


def epochs_of(seconds: float, plan: FleetPlan) -> int:
    """Returns for how many epochs a robot trains in about a time."""
    begun = time.monotonic()
    exchanged(local(plan).exchange({0: request(plan, 50)}))
    return int(seconds * 50 / (time.monotonic() - begun))


def test_a_robot_that_ends_after_the_deadline_is_late_and_none_begins_then(plan: FleetPlan):
    transport = local(plan)
    slow = request(plan, epochs_of(3.0, plan))
    exchanged(transport.exchange({0: request(plan)}))  # its data are open
    answers = exchanged(transport.exchange({0: request(plan), 1: slow, 2: slow}, deadline_s=0.6))
    assert list(answers) == [0]
    assert transport.late() == [1] and transport.late() == []


@pytest.mark.parametrize("deadline_s", [0.0, 1e-9])
def test_nothing_is_sent_after_the_deadline(plan: FleetPlan, deadline_s: float):
    transport = local(plan)
    answers = transport.exchange({0: request(plan)}, deadline_s=deadline_s)
    assert dict(answers) == {} or transport.late() == [0]


def test_the_time_before_the_first_answer_is_asked_for_does_not_count(plan: FleetPlan):
    transport = local(plan)
    answers = transport.exchange({0: request(plan)}, deadline_s=20.0)
    time.sleep(0.5)
    assert list(dict(answers)) == [0] and transport.late() == []


def test_a_closed_iterator_sends_nothing_more(plan: FleetPlan):
    begun = []

    class Messages(dict[int, Message]):
        def __getitem__(self, robot: int) -> Message:
            begun.append(robot)
            return super().__getitem__(robot)

    transport = local(plan)
    with closing(transport.exchange(Messages(dict.fromkeys(range(ROBOTS), request(plan))))) as it:
        next(it)
    assert begun == [0] and transport.late() == []


def test_a_lost_robot_is_reported_in_one_line(tmp_path: Path):
    folder = write_data(tmp_path / "data")
    plan = plan_of(folder)
    lines: list[str] = []
    transport = LocalTransport(plan.assignments, report=lines.append)
    good = exchanged(transport.exchange({0: request(plan)}))
    shutil.rmtree(folder)
    assert exchanged(transport.exchange({0: request(plan)})) == good  # its data are open
    lost = exchanged(transport.exchange({1: request(plan)}))[1]
    assert isinstance(lost, LostClient) and lost.reason.startswith("DatasetError: ")
    assert lines == [f"Robot 1 is lost: {lost.reason}"] and "\n" not in lines[0]
    transport.end(0)
    assert isinstance(exchanged(transport.exchange({0: request(plan)}))[0], LostClient)


def test_a_cache_passes_deadlines_and_late_robots_on(plan: FleetPlan, tmp_path: Path):
    transport = CachingTransport(local(plan), plan.assignments, tmp_path)
    known = exchanged(transport.exchange({0: first_request()}))
    slow = first_request(epochs_of(3.0, plan))
    assert exchanged(transport.exchange({1: slow, 0: first_request()}, deadline_s=0.6)) == known
    assert transport.late() == [1]
    assert exchanged(transport.exchange({0: first_request()}, deadline_s=0.0)) == {}


def test_a_closed_cache_closes_what_it_wraps(plan: FleetPlan, tmp_path: Path):
    closed = []

    class Watched(LocalTransport):
        def exchange(self, messages, *, deadline_s=None) -> Answers:
            try:
                yield from super().exchange(messages, deadline_s=deadline_s)
            finally:
                closed.append(deadline_s)

    transport = CachingTransport(Watched(plan.assignments), plan.assignments, tmp_path)
    answers = transport.exchange(dict.fromkeys(range(ROBOTS), first_request()))
    assert next(answers)[0] == 0
    answers.close()
    assert closed == [None]
    assert len(list(tmp_path.iterdir())) == 1
