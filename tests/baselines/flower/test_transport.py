"""Messages to robots on nodes: what is lost, late, or never sent."""

import time
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("flwr", reason="runs in an environment with Flower, see test_network")

from flwr.app import ConfigRecord, RecordDict  # pyright: ignore[reportMissingImports]
from support.fleet_cases import local, plan_of, run_rounds, same, write_data
from support.flower_grid import GridHere, Node

from fleet_merging.errors import MessageError
from fleet_tools.baselines.federated.messages import Answer, LocalUpdate, TrainRequest
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.record import FleetWriter, load_progress
from fleet_tools.baselines.federated.run import run
from fleet_tools.baselines.federated.transport import LostClient
from fleet_tools.baselines.flower.records import DataQuestion, NodeReport, read_value
from fleet_tools.baselines.flower.roster import Roster
from fleet_tools.baselines.flower.transport import FlowerTransport
from fleet_tools.errors import ConfigError

REQUEST = TrainRequest(1, 0, 1, None)


@pytest.fixture(scope="module", name="plan")
def _plan(tmp_path_factory: pytest.TempPathFactory) -> FleetPlan:
    return plan_of(write_data(tmp_path_factory.mktemp("fleet") / "data"))


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleet_tools.baselines.flower.roster.POLL_S", 0.01)


def nodes(count: int) -> dict[int, Node]:
    """Returns nodes; Flower draws their ids."""
    return {100 + k: {"partition-id": k, "num-partitions": count} for k in range(count)}


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_fleet_has_the_bits_that_it_has_in_one_process(plan: FleetPlan, count: int) -> None:
    grid = GridHere(nodes(count))
    expected = run_rounds(plan, local(plan))
    found = run_rounds(plan, FlowerTransport(grid, plan.assignments))
    for ours, theirs in zip(found, expected, strict=True):
        assert same(ours.weights, theirs.weights) and ours.loss == theirs.loss
    trained = [node for node, kind in grid.sent if kind == "train"]
    assert sorted(trained) == sorted(100 + robot % count for robot in (0, 1, 2) for _ in found)
    assert len(grid.sent) - len(trained) == count  # each node is asked once what it has


def test_methods_that_ask_robots_run_unchanged(plan: FleetPlan) -> None:
    changed = plan.config.model_copy(
        update={"method": "fleet_merge", "options": {"epochs": 1, "steps": 1}, "merge_every": None}
    )
    plan = FleetPlan.of(changed)
    (expected,) = run_rounds(plan, local(plan))
    (found,) = run_rounds(plan, FlowerTransport(GridHere(nodes(3)), plan.assignments))
    assert same(found.weights, expected.weights)


@pytest.mark.parametrize("streaming", [{}, {"bits": 8}])
def test_a_streaming_fleet_runs_unchanged(plan: FleetPlan, streaming: dict, tmp_path: Path) -> None:
    changes = {"streaming": streaming, "method": "git_rebasin", "initialization": "common"}
    plan = plan_of(Path(plan.config.data[0]), **changes)
    grid = GridHere(nodes(3))
    transports = {"here": local(plan), "flower": FlowerTransport(grid, plan.assignments)}
    for name, transport in transports.items():
        with FleetWriter(tmp_path / name, plan) as writer:
            run(writer, transport)
    one, other = (load_progress(tmp_path / name) for name in transports)
    assert same(one.weights, other.weights)
    messages = [kind for _, kind in grid.sent].count("train")
    assert messages == 3 * plan.config.rounds


def test_after_the_deadline_answers_are_late(plan: FleetPlan) -> None:
    grid = GridHere(nodes(3), delays={101: 20, 102: None})
    transport = FlowerTransport(grid, plan.assignments)
    answers = dict(transport.exchange(dict.fromkeys(range(3), REQUEST), deadline_s=0.1))
    assert list(answers) == [0] and isinstance(answers[0], LocalUpdate)
    late: list[int] = []
    for _ in range(30):
        late += transport.late()
    assert late == [1] and transport.late() == []


def test_without_a_deadline_silent_robots_are_lost(plan: FleetPlan) -> None:
    grid = GridHere(nodes(3), delays={101: None})
    lines: list[str] = []
    transport = FlowerTransport(grid, plan.assignments, timeout_s=0.1, report=lines.append)
    answers = dict(transport.exchange(dict.fromkeys(range(3), REQUEST)))
    assert answers.keys() == {0, 1, 2}
    assert answers[1] == LostClient("it took longer than 0.1 s") and transport.late() == []
    assert lines == ["Robot 1 is lost: it took longer than 0.1 s"]


def test_a_round_that_has_enough_answers_is_closed(plan: FleetPlan) -> None:
    transport = FlowerTransport(GridHere(nodes(3), delays={102: 3}), plan.assignments)
    exchange = transport.exchange(dict.fromkeys(range(3), REQUEST), deadline_s=60)
    assert {next(exchange)[0], next(exchange)[0]} == {0, 1}
    exchange.close()
    late = [robot for _ in range(5) for robot in transport.late()]
    assert late == [2]


def test_robots_of_absent_and_failing_nodes_are_lost_and_return(plan: FleetPlan) -> None:
    failing = {101}
    there = nodes(3)
    gone = there.pop(102)
    grid = GridHere(there, fails=lambda node, message: node in failing and len(grid.sent) > 2)
    transport = FlowerTransport(grid, plan.assignments)
    answers = dict(transport.exchange(dict.fromkeys(range(3), REQUEST), deadline_s=30))
    assert isinstance(answers[0], LocalUpdate)
    assert answers[1] == LostClient("the process ended")
    assert answers[2] == LostClient("its node is not online, or did not report")
    failing.clear()
    grid.nodes[205] = gone  # a SuperNode without a key has another id when it returns
    answers = dict(transport.exchange(dict.fromkeys(range(3), REQUEST), deadline_s=30))
    assert all(isinstance(each, LocalUpdate) for each in answers.values())


def test_a_node_that_was_started_again_takes_over(plan: FleetPlan) -> None:
    grid = GridHere(nodes(3))
    transport = FlowerTransport(grid, plan.assignments)
    list(transport.exchange({0: REQUEST}))
    grid.nodes[300] = grid.nodes[100]
    transport.roster.refresh(time.monotonic() + 1, ())
    transport.roster.refresh(time.monotonic() + 1, ())
    list(transport.exchange({0: REQUEST}))
    assert grid.sent[-1] == (300, "train")


def test_a_node_that_cannot_say_what_it_has_is_named(plan: FleetPlan) -> None:
    grid = GridHere({7: {"partition-id": 5, "num-partitions": 2}})
    roster = Roster(grid, DataQuestion())
    with pytest.raises(ConfigError, match=r"(?s)No node.*node 7:.*partition-id"):
        roster.await_all(0.1)
    assert len(grid.sent) == 1  # it is not asked again and again


def test_nodes_that_disagree_about_their_number_are_refused(plan: FleetPlan) -> None:
    grid = GridHere({1: nodes(2)[100], 2: nodes(3)[101]})
    with pytest.raises(ConfigError, match=r"\[2, 3\]"):
        Roster(grid, DataQuestion()).await_all(1)


def test_what_a_node_answers_is_read_strictly() -> None:
    class Reply:
        content = RecordDict({"value": ConfigRecord({"value": '{"partition": -1}'})})

    with pytest.raises(MessageError, match="partition"):
        read_value(NodeReport, Reply)
    Reply.content = RecordDict({"other": ConfigRecord({"bytes": b""})})
    with pytest.raises(MessageError, match="same version"):
        read_value(NodeReport, Reply)
    deep = "[" * 100_000
    Reply.content = RecordDict({"value": ConfigRecord({"value": deep})})
    with pytest.raises(MessageError):
        read_value(NodeReport, Reply)


def test_the_path_of_data_on_the_server_does_not_matter_to_nodes_with_their_own(
    plan: FleetPlan,
) -> None:
    def answer(**data: str) -> Answer | LostClient:
        grid = GridHere({1: {"partition-id": 0, "num-partitions": 1, **data}})
        away = [each.model_copy(update={"data": ("/nowhere",)}) for each in plan.assignments]
        return dict(FlowerTransport(grid, away).exchange({0: REQUEST}))[0]

    assert isinstance(answer(data=plan.config.data[0]), LocalUpdate)
    lost = answer()
    assert isinstance(lost, LostClient) and "DatasetError" in lost.reason
