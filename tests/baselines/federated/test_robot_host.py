"""A process that serves many robots: the same bits whatever it has open, and little memory."""

import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import psutil
from support.fleet_cases import plan_of, request, write_data

from fleet_merging.queries.query import LossQuery
from fleet_tools.baselines.federated.messages import encode
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.robot import FleetClient
from fleet_tools.baselines.federated.transport import RobotHost
from fleet_tools.errors import DatasetError

ROBOTS = 4
MEGABYTE = 1e6


@pytest.fixture(scope="module", name="plan")
def _plan(data: Path) -> FleetPlan:
    return plan_of(data, robots=ROBOTS, split={"by": "nothing"})


@pytest.mark.parametrize("memory", [0.0, 2.5 * MEGABYTE, 100 * MEGABYTE])
def test_answers_do_not_depend_on_what_is_open_or_on_the_order(plan: FleetPlan, memory: float):
    messages = (request(plan), LossQuery(plan.blueprint.create(1).state_dict(), 7))
    expected = {
        (robot, number): encode(FleetClient(plan.assignments[robot]).answer(message))
        for robot in range(ROBOTS)
        for number, message in enumerate(messages)
    }
    host = RobotHost(memory)
    for robots in ((0, 1, 2, 3), (3, 3, 0, 2, 1), (1, 0)):
        for robot in robots:
            for number in (1, 0):
                answer = host.answer(plan.assignments[robot].to_json(), messages[number])
                assert encode(answer) == expected[robot, number]


def test_it_drops_the_robots_that_it_has_not_served_for_longest(plan: FleetPlan):
    host = RobotHost(2.5 * MEGABYTE)  # of two robots, as their data are small
    texts = [assignment.to_json() for assignment in plan.assignments]
    for robot in (0, 1, 0, 2):
        host.answer(texts[robot], request(plan))
    assert host.held == [texts[0], texts[2]]
    host.forget(texts[2])
    assert host.held == [texts[0]]
    host = RobotHost(0.0)
    host.answer(texts[1], request(plan))
    assert host.held == [texts[1]]


def test_a_robot_that_raises_is_dropped_and_opens_mended_data(tmp_path: Path):
    folder = write_data(tmp_path / "data")
    plan = plan_of(folder)
    host, text = RobotHost(), plan.assignments[0].to_json()
    good = encode(host.answer(text, request(plan)))
    host.forget(text)
    shutil.move(folder, tmp_path / "elsewhere")
    for _ in range(2):
        with pytest.raises(DatasetError):
            host.answer(text, request(plan))
        assert host.held == []
    shutil.move(tmp_path / "elsewhere", folder)
    assert encode(host.answer(text, request(plan))) == good


def test_many_robots_in_turn_hold_constant_memory(tmp_path: Path):
    # 2.5 MB of data each, read and mapped: all of them would take 150 MB.
    folder = write_data(tmp_path / "data", steps=[4000] * 13)
    plan = plan_of(folder, robots=30, held_out=0.05, split={"by": "nothing"})
    host, process = RobotHost(10 * MEGABYTE), psutil.Process()

    def serve(robots: range) -> int:
        for robot in robots:
            host.answer(plan.assignments[robot].to_json(), query)
        return process.memory_info().rss

    query = LossQuery(plan.blueprint.create(1).state_dict(), 7, False)
    after_ten = serve(range(10))
    assert serve(range(10, 30)) - after_ten < 40 * MEGABYTE
