"""Nodes own robots by their number, and data of their own make the robots' assignments."""

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

from hypothesis import given
from hypothesis import strategies as st
from support.fleet_cases import plan_of, run_rounds, same, write_data

from fleet_tools.baselines.federated.messages import TrainRequest
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.robot import FleetClient
from fleet_tools.baselines.federated.transport import LocalTransport
from fleet_tools.baselines.flower.node import Node
from fleet_tools.baselines.flower.nodes_plan import report_of, with_data_of_nodes
from fleet_tools.baselines.flower.records import DataQuestion, NodeReport
from fleet_tools.baselines.training.demonstrations import Trajectories
from fleet_tools.baselines.training.loop import train
from fleet_tools.baselines.training.state import TrainingState
from fleet_tools.dataset.samples import Samples
from fleet_tools.errors import ConfigError, DatasetError


@pytest.fixture(scope="module", name="own")
def _own(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Datasets of the server and of two nodes."""
    folder = tmp_path_factory.mktemp("own")
    steps = ((5, 1, 7, 3, 4), (4, 6, 2), (3, 5, 2, 4))
    return [write_data(folder / str(k), each, seed=k) for k, each in enumerate(steps)]


def nodes_of(own: list[Path]) -> list[Node]:
    return [Node(k, len(own) - 1, (str(data),)) for k, data in enumerate(own[1:])]


def planned(own: list[Path], **changes: object) -> tuple[FleetPlan, FleetPlan]:
    """Returns the plan of the server's data, and that of the nodes'."""
    plan = plan_of(own[0], robots=2, split={"by": "nothing"}, **changes)
    question = DataQuestion(blueprint=plan.blueprint, by="tool")
    reports = {node.partition: report_of(node, question) for node in nodes_of(own)}
    return plan, with_data_of_nodes(plan, reports)


@given(partitions=st.integers(1, 20), robot=st.integers(0, 10**6))
def test_each_robot_has_one_node(partitions: int, robot: int) -> None:
    assert sum(Node(k, partitions).owns(robot) for k in range(partitions)) == 1


def test_a_node_reads_its_configuration() -> None:
    config = {"partition-id": 1, "num-partitions": 2, "data": "/data/one:/data/two"}
    assert Node.of(config) == Node(1, 2, ("/data/one", "/data/two"))
    assert Node.of({"partition-id": 0, "num-partitions": 1}).data == ()


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"partition-id": 0},
        {"partition-id": 2, "num-partitions": 2},
        {"partition-id": -1, "num-partitions": 2},
        {"partition-id": True, "num-partitions": 2},
        {"partition-id": "0", "num-partitions": 2},
        {"partition-id": 0, "num-partitions": 2, "data": 3},
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(config: dict) -> None:
    with pytest.raises(ConfigError, match=r"[Tt]his node"):
        Node.of(config)


def test_robots_train_on_their_nodes_data_alone(own: list[Path]) -> None:
    before, plan = planned(own, merge_every=None)
    assert [len(each.assignment.episodes) for each in plan.clients] == [3, 4]
    assert [sum(each.episode_counts.values()) for each in plan.clients] == [3, 4]
    assert plan.blueprint == before.blueprint and plan.held_out is before.held_out
    assert plan.content_digest != before.content_digest
    home = [
        node.localized(each) for node, each in zip(nodes_of(own), plan.assignments, strict=True)
    ]
    (result,) = run_rounds(plan, LocalTransport(home))
    for robot, data in enumerate(own[1:]):
        assignment, samples = before.assignments[robot], Samples(data)
        initial = before.blueprint.create(assignment.initialization).state_dict()
        state = train(
            before.blueprint,
            Trajectories(samples, before.blueprint),
            assignment.training,
            TrainingState.initial(initial),
            epochs=4,
        )
        assert same(result.robot_weights[robot], state.weights)
        steps = sum(each.record.steps for each in samples.episodes)
        assert result.robots[robot].steps == steps


def test_the_folders_of_a_node_are_never_the_servers_choice(own: list[Path]) -> None:
    _, plan = planned(own)
    node = nodes_of(own)[1]
    assert node.localized(plan.assignments[1]).data == (str(own[2]),)
    with pytest.raises(ConfigError, match="Robot 0 is not one of the node"):
        node.localized(plan.assignments[0])


def test_data_that_changed_since_the_report_are_refused(own: list[Path]) -> None:
    _, plan = planned(own)
    other = Node(0, 2, (str(own[2]),)).localized(plan.assignments[0])
    with pytest.raises(DatasetError, match="differ from the assigned ones"):
        FleetClient(other).answer(TrainRequest(1, 0, 1, None))


def test_without_data_of_nodes_the_plan_stays(own: list[Path]) -> None:
    plan = plan_of(own[0], robots=2, split={"by": "nothing"})
    reports = {k: NodeReport(partition=k, partitions=2) for k in range(2)}
    assert with_data_of_nodes(plan, reports) is plan


def test_missing_and_superfluous_nodes_are_named(own: list[Path]) -> None:
    plan, _ = planned(own)
    question = DataQuestion(blueprint=plan.blueprint)
    one = {0: report_of(nodes_of(own)[0], question)}
    with pytest.raises(ConfigError, match=r"offline: \[1\]"):
        with_data_of_nodes(plan, one)
    with pytest.raises(ConfigError, match=r"offline: \[1\]"):
        with_data_of_nodes(plan, {**one, 1: NodeReport(partition=1, partitions=2)})
    with pytest.raises(ConfigError, match="robots: 3"):
        with_data_of_nodes(plan, {k: one[0] for k in range(3)})


def test_nodes_with_data_of_their_own_have_no_life(own: list[Path]) -> None:
    arrival = {"month": 1, "robot": "ann", "type": "arrives", "task": "hammer", "episodes": 2}
    with pytest.raises(ConfigError, match="In a life, the events say which episodes"):
        planned(own, life={"months": 1, "events": [arrival]}, merge_every=None)
