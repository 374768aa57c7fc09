"""Episodes are partitioned among robots, participants are drawn, and references are fleets."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.fleet_cases import (
    LAYOUT,
    POLICY,
    RecordingTransport,
    config_of,
    local,
    plan_of,
    run_rounds,
    same,
    write_data,
)
from support.small_datasets import Drawn, a_header, write

from fleet_tools.baselines.federated import REFERENCES
from fleet_tools.baselines.federated.config import FleetConfig, PartitionConfig
from fleet_tools.baselines.federated.messages import Assignment, TrainRequest
from fleet_tools.baselines.federated.plan import FleetPlan, partition
from fleet_tools.baselines.federated.references import reference
from fleet_tools.baselines.federated.robot import FleetClient
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.config import PolicyConfig
from fleet_tools.baselines.training.loop import batches_of
from fleet_tools.dataset import Dataset
from fleet_tools.errors import ConfigError, DatasetError, UnknownNameError


def participants(
    plan: FleetPlan, robots: int, participation: float, seed: int, number: int
) -> list[int]:
    training = plan.config.training.model_copy(update={"seed": seed})
    config = plan.config.model_copy(update={"participation": participation, "training": training})
    fleet = replace(plan, config=config, clients=plan.clients[:1] * robots)
    return fleet.participants(number)


def test_participants_are_drawn_anew_in_each_round(data: Path) -> None:
    plan = plan_of(data)

    @given(
        robots=st.integers(1, 7),
        participation=st.floats(0.01, 1),
        seed=st.integers(0, 99),
        number=st.integers(1, 9),
    )
    def drawn_anew(robots: int, participation: float, seed: int, number: int) -> None:
        drawn = participants(plan, robots, participation, seed, number)
        assert (
            drawn == sorted(set(drawn)) == participants(plan, robots, participation, seed, number)
        )
        assert set(drawn) <= set(range(robots))
        assert abs(len(drawn) - participation * robots) <= max(0.5, 1 - participation)
        assert participation < 1 or drawn == list(range(robots))

    drawn_anew()


def test_all_take_part_about_equally_often(data: Path) -> None:
    plan = plan_of(data)
    drawn = [robot for number in range(1, 501) for robot in participants(plan, 5, 0.4, 5, number)]
    counts = np.bincount(drawn)
    assert counts.sum() == 1000 and np.abs(counts - 200).max() < 45  # four standard deviations


@given(
    kinds=st.lists(st.sampled_from("abcd"), min_size=4, max_size=30),
    robots=st.integers(1, 4),
    alpha=st.sampled_from([None, 0.1, 10.0]),
)
def test_every_episode_belongs_to_one_robot(
    kinds: list[str], robots: int, alpha: float | None
) -> None:
    config = PartitionConfig(by="tool", alpha=alpha)
    if alpha is None and robots > len(set(kinds)):
        with pytest.raises(ConfigError, match="Give fewer robots, or an alpha"):
            partition(kinds, robots, config, 0)
        return
    parts = partition(kinds, robots, config, 0)
    assert len(parts) == robots
    assert sorted(index for part in parts for index in part) == list(range(len(kinds)))
    if alpha is None:
        owners = {(kinds[index], robot) for robot, part in enumerate(parts) for index in part}
        assert len(owners) == len(set(kinds))


def test_a_robot_without_a_step_to_imitate_is_named_before_the_first_round(tmp_path: Path) -> None:
    write(tmp_path / "data", Drawn([4, 4, 4, 0, 4, 0], [True] * 6, 0), a_header(LAYOUT))
    with pytest.raises(
        DatasetError, match=r"The part of robot [01] holds no step to .*fewer robots"
    ):
        plan_of(tmp_path / "data", robots=2, split={"by": "tool", "alpha": None}, held_out=0.2)


def test_a_fleet_with_a_common_initialization_has_a_base_before_its_first_round(data: Path) -> None:
    assert plan_of(data).first_base() is None
    plan = plan_of(data, initialization="common")
    base = plan.first_base()
    assert base is not None
    for assignment in plan.assignments:
        begin = assignment.blueprint.create(assignment.initialization).state_dict()
        assert same(base, begin)


def test_references_are_fleets_too(data: Path) -> None:
    config = config_of(data, split={"by": "tool"}, method="git_rebasin", options={"rounds": 3})
    of_lives = ("last_month", "sequential")
    names = [name for name in REFERENCES if name not in of_lives]
    plans = {name: FleetPlan.of(reference(config, name)) for name in names}
    for name in of_lives:
        with pytest.raises(ConfigError, match=f"without a life is not compared with {name}"):
            reference(config, name)
    joint, single = plans["joint"], plans["single"]
    pooled = [index for each in single.assignments for index in each.episodes]
    assert list(joint.assignments[0].episodes) == sorted(pooled)
    robots = {name: len(plan.clients) for name, plan in plans.items()}
    assert robots == {
        "joint": 1,
        "joint_all_steps": 1,
        "joint_wide": 1,
        "joint_ensemble": 3,
        "single": 3,
        "task_specific": 1,
        "task_specific_equal_steps": 1,
    }
    assert all(plan.config.rounds == 1 for plan in plans.values())
    held_out = [[each.record.seed for each in plan.held_out.episodes] for plan in plans.values()]
    assert all(each == held_out[0] for each in held_out)
    assert FleetPlan.of(config).assignments == single.assignments
    with pytest.raises(UnknownNameError, match="Did you mean 'joint'"):
        reference(config, "jont")


def test_an_ensemble_of_joint_networks_has_all_data_and_nothing_else_in_common(data: Path) -> None:
    given = config_of(
        data, initialization="common", last_method="density_gated_ensemble", method="regmean"
    )
    plan = FleetPlan.of(reference(given, "joint_ensemble"))
    (joint,) = FleetPlan.of(reference(given, "joint")).assignments
    assert plan.assignments[0] == joint  # so that one of its networks is that of joint training
    assert {each.episodes for each in plan.assignments} == {joint.episodes}
    assert len({each.initialization for each in plan.assignments}) == given.robots
    assert len({each.training.seed for each in plan.assignments}) == given.robots
    assert plan.config.last_method == "ensemble" and not plan.config.last_options


BODIES = (
    {"type": "mlp", "layers": 2, "width": 7},
    {"type": "elman", "layers": 2, "width": 6},
    {"type": "lstm", "layers": 1, "width": 5},
    {"type": "transformer", "layers": 1, "width": 8, "heads": 4, "feedforward": 12},
)


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body["type"])
@pytest.mark.parametrize("robots", [1, 2, 7])
def test_a_wide_network_has_the_most_parameters_that_robots_have_together(
    data: Path, body: dict, robots: int
) -> None:
    """Counted here on networks with numbers, by their state dicts."""
    config = config_of(data, policy={"body": body}, robots=robots)
    header = Dataset(data).header

    def count(policy: PolicyConfig) -> int:
        weights = Blueprint.of(policy, header.observation, header.action).create().state_dict()
        return sum(each.numel() for each in weights.values())

    found = reference(config, "joint_wide").policy
    wider: Any = found.body
    next_width = wider.width + body.get("heads", 1)
    above = found.model_copy(update={"body": wider.model_copy(update={"width": next_width})})
    assert count(found) <= robots * count(config.policy) < count(above)
    narrow = wider.model_copy(update={"width": body["width"]})
    assert found.model_copy(update={"body": narrow}) == config.policy  # nothing else differs


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"type": "mlp", "layers": 0}, "has no width"),
        ({"type": "elman", "layers": 1, "width": 90_000}, "wider than a body may be"),
    ],
)
def test_what_cannot_be_widened_is_refused(data: Path, body: dict, message: str) -> None:
    config = config_of(data, policy={"body": body})
    with pytest.raises(ConfigError, match=message):
        reference(config, "joint_wide")


UNEVEN = (3, 9, 1, 12, 2, 10, 3, 9, 2, 11, 1, 9, 3, 10)
"""Numbers of steps of episodes of two tools in turn, of which one has a fifth of the other's."""


@pytest.fixture(scope="module", name="uneven")
def _uneven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("uneven") / "data", UNEVEN)


@pytest.mark.parametrize("merge_every", [None, 2])
@pytest.mark.parametrize("body", ["mlp", "elman"])
def test_robots_with_equal_steps_take_as_many_as_joint_training(
    uneven: Path, body: str, merge_every: int | None
) -> None:
    """Counted here on the batches of each robot's episodes."""
    config = config_of(
        uneven,
        policy={"body": {"type": body, "layers": 1, "width": 4}},
        robots=2,
        split={"by": "tool", "alpha": None},
        merge_every=merge_every,
        equal_steps=True,
    )

    def steps(assignment: Assignment) -> list[int]:
        trajectories = FleetClient(assignment)._trajectories
        training = assignment.training
        return [len(batches_of(trajectories, training, k)) for k in range(training.epochs)]

    plan = FleetPlan.of(config)
    (joint,) = FleetPlan.of(reference(config, "joint")).assignments
    expected = sum(steps(joint))
    for each in map(steps, plan.assignments):
        slack = 1 if body == "mlp" else 1.3  # episodes are not cut, so that batches vary
        assert slack * sum(each) >= expected > (sum(each) - plan.config.rounds * max(each)) / slack
    alone = FleetPlan.of(reference(config, "single")).assignments
    assert [each.training for each in alone] == [each.training for each in plan.assignments]
    counts = [each.training.epochs for each in plan.assignments]
    assert min(counts) >= config.training.epochs and max(counts) > 2 * config.training.epochs


def test_requests_are_for_the_epochs_of_each_robot_and_these_are_trained(uneven: Path) -> None:
    split = {"by": "tool", "alpha": None}
    plan = plan_of(uneven, robots=2, split=split, equal_steps=True)
    transport = RecordingTransport(local(plan))
    run_rounds(plan, transport)
    asked = {robot: [] for robot in range(2)}
    for robot, message, _ in transport.exchanges:
        assert isinstance(message, TrainRequest)
        asked[robot].append((message.round, message.epoch, message.epochs))
    for robot, assignment in enumerate(plan.assignments):
        half = assignment.training.epochs // 2
        assert asked[robot] == [(1, 0, half), (2, half, half)]
    assert asked[0] != asked[1]


def test_equal_epochs_are_written_as_before_there_were_equal_steps(data: Path) -> None:
    """Names of fleets' folders are hashes of this."""
    plain, equal = config_of(data), config_of(data, equal_steps=True)
    assert "equal_steps" not in plain.to_json() and "equal_steps" in equal.to_json()
    for each in (plain, equal):
        assert FleetConfig.model_validate_json(each.to_json()) == each
        assert FleetPlan.of(each).clients[0].assignment.training.epochs >= each.training.epochs
    with pytest.raises(ConfigError, match="train for equally many epochs"):
        config_of(data, equal_steps=True, streaming={})


def test_a_driver_that_does_not_know_every_task_hides_none(data: Path, tmp_path: Path) -> None:
    header = a_header(LAYOUT)
    other = header.model_copy(update={"task": header.task.model_copy(update={"name": "knife"})})
    write(tmp_path / "knife", Drawn([4], [True], 3), other)
    both = {"data": (str(data), str(tmp_path / "knife"))}
    known, hidden = (
        config_of(data, robots=1, held_out=0.1, policy=policy).model_copy(update=both)
        for policy in (POLICY, POLICY | {"task_hidden": True})
    )
    assert FleetPlan.of(known).clients[0].tasks == ("hammer", "knife")
    with pytest.raises(
        ConfigError, match="all 2 tasks on the server, but it has only 1, without knife"
    ):
        FleetPlan.of(hidden)
