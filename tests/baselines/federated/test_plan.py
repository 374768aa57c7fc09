"""Episodes are partitioned among robots, participants are drawn, and references are fleets."""

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.fleet_cases import config_of, plan_of, same

from fleet_tools.baselines.federated import REFERENCES
from fleet_tools.baselines.federated.config import PartitionConfig, reference
from fleet_tools.baselines.federated.plan import FleetPlan, draw_participants, partition
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
    assert robots == {"joint": 1, "single": 3, "task_specific": 1}
    assert all(plan.config.rounds == 1 for plan in plans.values())
    held_out = [[each.record.seed for each in plan.held_out.episodes] for plan in plans.values()]
    assert held_out[0] == held_out[1] == held_out[2]
    assert FleetPlan.of(config).assignments == single.assignments
    with pytest.raises(UnknownNameError, match="Did you mean 'joint'"):
        reference(config, "jont")
