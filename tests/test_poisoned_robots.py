"""One of five robots attacks: its false answers pass the checks, and rules do what they promise."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import poisoned_robots
import torch
from poisoned_robots import ATTACKER, ATTACKS, PoisonedRobotsOptions, ruined_data, tap_of
from support.fleet_cases import local, run_rounds, write_data

from fleet_merging.queries.query import MixtureQuery, MomentQuery
from fleet_merging.queries.validity import CHECKS
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.robot import FleetClient
from fleet_tools.dataset import Dataset


@pytest.fixture(scope="module", name="data")
def _data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("poison") / "hammer", [4, 2, 5] * 15)


def options_of(data: Path, output: Path, *more: str) -> list[str]:
    given = ["--data", str(data), "--output", str(output), "--scenes", "0", "--epochs", "1"]
    return [*given, "--json", *more]


def plan_for(data: Path, output: Path, rule: str) -> FleetPlan:
    options = PoisonedRobotsOptions(data=(data,), output=output, epochs=1)
    keys = poisoned_robots.METHODS["naive_average"][rule]
    return FleetPlan.of(poisoned_robots._config(options, keys))


def test_a_false_account_is_of_data_that_could_exist(data, tmp_path):
    plan = plan_for(data, tmp_path, "mean")
    robot = FleetClient(plan.assignments[ATTACKER])
    model, maps = plan.blueprint.create(0).state_dict(), plan.affine_maps
    queries: list[tuple[Any, dict[str, Any]]] = [
        (MomentQuery(model, (maps[0].name,)), {"maps": maps}),
        (MomentQuery(model, (maps[-1].name,), "labels", beside=(model, model)), {"maps": maps}),
        (MixtureQuery(3, 0), {}),
    ]
    for query, known in queries:
        honest = robot.answer(query)
        false = tap_of("false_moments", model)(ATTACKER, query, honest)
        CHECKS[type(query)](false, query, plan.limits(ATTACKER), **known)
        assert tap_of("false_moments", model)(0, query, honest) is honest


def test_only_the_actions_of_the_ruined_tool_change(data, tmp_path):
    first, again = (ruined_data(str(data), tmp_path) for _ in range(2))  # then it is complete
    assert first == again
    copy = Dataset(again)
    assert copy.folder != data
    for one, other in zip(Dataset(data), copy, strict=True):
        np.testing.assert_array_equal(one.actions, -other.actions)
        assert one.final_digest == other.final_digest
        for name, values in one.observations.items():
            np.testing.assert_array_equal(values, other.observations[name])


def test_rules_leave_the_attacker_out_and_the_mean_does_not(data, tmp_path, capsys):
    arguments = options_of(data, tmp_path, "--methods", "naive_average")
    assert poisoned_robots.main(arguments) == 0
    rows = {row["rule"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    plan = plan_for(data, tmp_path, "mean")
    (result,) = run_rounds(plan, local(plan))
    assert rows["none"]["none"]["loss"] == {"hammer": pytest.approx(result.loss)}
    honest = [each for robot, each in result.robot_weights.items() if robot != ATTACKER]
    four = {name: torch.stack([own[name] for own in honest]).mean(0) for name in honest[0]}
    expected = pytest.approx(plan.held_out_loss(four), rel=1e-4)
    for attack in ("scaled", "noise"):
        assert rows["multi_krum"][attack]["loss"] == {"hammer": expected}
        assert rows["none"][attack]["loss"]["hammer"] > result.loss
    same = rows["none"]["false_moments"], rows["none"]["none"]
    assert same[0] == same[1]  # it sends no moments
    assert rows["none"]["ruins_hammer"] != rows["none"]["none"]
    assert poisoned_robots.main(arguments) == 0
    assert {row["rule"]: row for row in json.loads(capsys.readouterr().out)["rows"]} == rows


def test_every_method_has_a_row_for_each_of_its_rules():
    rules = {method: list(rules) for method, rules in poisoned_robots.METHODS.items()}
    assert set(ATTACKS) >= {"none"} and all(rules.values())
    without = [method for method, own in rules.items() if own == [poisoned_robots.NO_RULE]]
    assert len(without) == 4
