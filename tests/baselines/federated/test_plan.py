"""Episodes are partitioned among robots, participants are drawn, and references are fleets."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.fleet_cases import config_of, plan_of, same

from fleet_tools.baselines.federated import REFERENCES
from fleet_tools.baselines.federated.config import PartitionConfig
from fleet_tools.baselines.federated.plan import FleetPlan, draw_participants, partition
from fleet_tools.baselines.federated.references import reference
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.config import PolicyConfig
from fleet_tools.dataset import Dataset
from fleet_tools.errors import ConfigError, UnknownNameError


@given(
    robots=st.integers(1, 7),
    participation=st.floats(0.01, 1),
    seed=st.integers(0, 99),
    number=st.integers(1, 9),
)
def test_participants_are_drawn_anew_in_each_round(
    robots: int, participation: float, seed: int, number: int
) -> None:
    drawn = draw_participants(robots, participation, seed, number)
    assert drawn == sorted(set(drawn)) == draw_participants(robots, participation, seed, number)
    assert set(drawn) <= set(range(robots))
    assert abs(len(drawn) - participation * robots) <= max(0.5, 1 - participation)
    assert participation < 1 or drawn == list(range(robots))


def test_all_take_part_about_equally_often() -> None:
    drawn = [robot for number in range(1, 501) for robot in draw_participants(5, 0.4, 5, number)]
    counts = np.bincount(drawn)
    assert counts.sum() == 1000 and np.abs(counts - 200).max() < 45  # four standard deviations


def test_a_plan_draws_participants_by_its_configuration(data: Path) -> None:
    plan = plan_of(data, participation=0.7)
    for number in range(1, 5):
        assert plan.participants(number) == draw_participants(3, 0.7, 5, number)


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
    plans = {name: FleetPlan.of(reference(config, name)) for name in REFERENCES}
    joint, single = plans["joint"], plans["single"]
    pooled = [index for each in single.assignments for index in each.episodes]
    assert list(joint.assignments[0].episodes) == sorted(pooled)
    robots = {name: len(plan.clients) for name, plan in plans.items()}
    assert robots == {
        "joint": 1,
        "joint_wide": 1,
        "joint_ensemble": 3,
        "single": 3,
        "task_specific": 1,
    }
    assert all(plan.config.rounds == 1 for plan in plans.values())
    held_out = [[each.record.seed for each in plan.held_out.episodes] for plan in plans.values()]
    assert all(each == held_out[0] for each in held_out)
    assert FleetPlan.of(config).assignments == single.assignments
    with pytest.raises(UnknownNameError, match="Did you mean 'joint'"):
        reference(config, "jont")


def test_an_ensemble_of_joint_networks_has_all_data_and_nothing_else_in_common(data: Path) -> None:
    given = config_of(data, initialization="common", last_method="density_gate", method="regmean")
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
@given(robots=st.integers(1, 9))
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
