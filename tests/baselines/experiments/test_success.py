"""Success rates and comparisons of arms: what is paired, what is refused, what pages say."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_tools.baselines import experiment as program
from fleet_tools.baselines.experiments.form import Experiment
from fleet_tools.baselines.experiments.page import markdown_page
from fleet_tools.baselines.experiments.result import as_json, changes, make_result, read_result
from fleet_tools.baselines.experiments.success import compared, success_rate, with_comparisons
from fleet_tools.config.values import parse
from fleet_tools.errors import ConfigError
from fleet_tools.utils.crossed_statistics import crossed_paired_interval, crossed_paired_p_value
from fleet_tools.utils.statistics import paired_interval


def an_experiment(**content: Any) -> Experiment:
    base = {"arms": {"a": {}, "b": {}}, "references": ["joint"], "against": {"joint": 0.1}}
    return parse(Experiment, base | content, "The test")


def cells_of(chances: dict[str, float], seeds: int = 3, scenes: int = 10) -> list[dict[str, Any]]:
    generator = np.random.default_rng(0)
    return [
        {
            "arm": arm,
            "value": "",
            "seed": seed,
            "success": {
                task: [(generator.random(scenes) < chance).astype(int).tolist()]
                for task in ("hammer", "knife")
            },
        }
        for arm, chance in chances.items()
        for seed in range(seeds)
    ]


CHANCES = {"a": 0.05, "b": 0.9, "joint": 0.9}


@pytest.mark.parametrize("own_scenes", [False, True])
def test_rows_have_the_difference_to_the_reference_by_seed_and_scene(own_scenes):
    experiment = an_experiment(own_scenes=own_scenes)
    cells = cells_of(CHANCES)
    (a, b, joint) = make_result(experiment, cells)["rows"]
    assert joint["against"] == {} and b["against"]["joint"]["verdict"] == "not told apart"
    found = a["against"]["joint"]
    by_arm = {
        arm: [
            np.array([c["success"][task][0] for c in cells if c["arm"] == arm], float)
            for task in ("hammer", "knife")
        ]
        for arm in ("a", "joint")
    }
    strata = [one - other for one, other in zip(*by_arm.values(), strict=True)]
    assert (found["low"], found["high"]) == crossed_paired_interval(strata, own_scenes)
    p_value = crossed_paired_p_value(strata, own_scenes=own_scenes)
    assert found["p"] == pytest.approx(p_value, rel=1e-3)
    rates = a["success"]["rate"] - joint["success"]["rate"]
    assert found["difference"] == pytest.approx(rates, abs=2e-6)
    assert found["verdict"] == "lower" and found["seeds"] == 3


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_exchanged_arms_have_mirrored_differences(seed, own_scenes):
    generator = np.random.default_rng(seed)
    one, other = (
        {k: {"hammer": generator.integers(0, 2, (1, 8)).tolist()} for k in range(3)}
        for _ in range(2)
    )
    found, mirrored = (
        compared(*pair, own_scenes, 0.1) or {} for pair in ((one, other), (other, one))
    )
    assert mirrored["p"] == pytest.approx(found["p"], rel=1e-3)
    assert mirrored["difference"] == -found["difference"]
    np.testing.assert_allclose(mirrored["low"], -found["high"], atol=1e-9)


def test_only_seeds_of_both_and_the_same_scenes_and_tasks_are_compared():
    one = {0: {"hammer": [[1, 0, 1]]}, 1: {"hammer": [[1, 1, 1]]}}
    found = (
        compared(one, {1: {"hammer": [[0, 1, 1]]}, 2: {"hammer": [[0, 0, 0]]}}, True, None) or {}
    )
    assert found["seeds"] == 1
    assert (found["low"], found["high"]) == paired_interval([(1, 0, 3)])
    assert compared(one, {1: {"hammer": [[0, 1]]}}, True, None) is None
    assert compared(one, {1: {"knife": [[0, 1, 1]]}}, True, None) is None
    assert compared(one, {2: {"hammer": [[0, 1, 1]]}}, True, None) is None
    assert compared({}, {}, False, 0.1) is None


def test_several_policies_of_a_seed_count_by_their_mean():
    """Robots alone, of which not every seed has as many, nor one for each task."""
    robots = [
        {"hammer": [[1, 0, 0, 0], [1, 1, 0, 0]], "knife": [[1, 1, 1, 1]]},
        {"hammer": [[1, 1, 1, 0]]},
    ]
    rate = success_rate(robots, own_scenes=True)
    assert rate is not None
    assert rate["rate"] == pytest.approx((np.mean([0.375, 0.75]) + 1.0) / 2)
    one = {seed: {"hammer": [[1, 1, 1, 1]], "knife": [[1, 0, 1, 1]]} for seed in range(2)}
    found = compared(one, dict(enumerate(robots)), True, None) or {}
    assert found["difference"] == pytest.approx((1 - 0.5625 - 0.25) / 2)


def test_an_equivalent_arm_is_told_and_may_be_higher_too():
    same = {seed: {"hammer": [[1, 0] * 60]} for seed in range(5)}
    assert (compared(same, same, True, 0.1) or {})["verdict"] == "equivalent within 10 points"
    assert (compared(same, same, True, None) or {})["verdict"] == "not told apart"
    better = {seed: {"hammer": [[1, 0] * 56 + [1, 1] * 4]} for seed in range(5)}
    found = compared(better, same, True, 0.125) or {}
    assert found["verdict"] == "higher, equivalent within 12.5 points"


def test_comparisons_are_of_the_page_and_nothing_is_run_for_them(tmp_path, capsys):
    """A stored result is shown with comparisons that its experiment did not ask for."""
    before, now = an_experiment(against={}), an_experiment()
    assert not changes(before, now) and not changes(now, before)
    result = make_result(before, cells_of(CHANCES))
    assert all("against" not in row for row in result["rows"])
    assert "Difference" not in markdown_page(before, result, "p", ())
    (tmp_path / "p.json").write_text(as_json(result))
    (tmp_path / "p.yaml").write_text(json.dumps(now.model_dump(mode="json")))
    arguments = [str(tmp_path / "p.yaml"), "--render", "--output", str(tmp_path / "out")]
    assert program.main([*arguments, "--quiet", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["experiments"]["p"]["rows"]
    assert rows == json.loads(json.dumps(make_result(now, result["cells"])["rows"]))
    page = (tmp_path / "out" / "p.md").read_text()
    assert "## Difference of success rates to joint, in points" in page
    assert "±10 points" in page and "lower |" in page and "not told apart |" in page
    stored = read_result(tmp_path / "p.json")[1]["rows"]
    assert with_comparisons(before, rows, result["cells"]) == stored


def test_a_loss_on_one_arm_does_not_hide_behind_the_other():
    panda, ur5e = [[1] * 20], [[0] * 20]
    cells = [
        {"arm": arm, "value": "", "seed": seed, "success": {"hammer": one, "hammer@ur5e": other}}
        for arm, (one, other) in {"a": (panda, ur5e), "joint": (ur5e, panda)}.items()
        for seed in range(3)
    ]
    result = make_result(an_experiment(), cells)
    found = {name: each["difference"] for name, each in result["rows"][0]["against"].items()}
    assert found == {"joint": 0, "joint on panda": 1, "joint on ur5e": -1}
    page = markdown_page(an_experiment(), result, "p", ())
    table = page[page.index("success rates to joint on ur5e, in points") :].splitlines()
    assert table[6].startswith("| a | -100.0 (")


def test_a_result_without_single_runs_says_that_nothing_is_compared():
    experiment = an_experiment()
    rows = make_result(an_experiment(against={}), cells_of(CHANCES))["rows"]
    page = markdown_page(experiment, {"rows": rows, "cells": [], "failed": []}, "p", ())
    assert "No runs of both in the same scenes" in page


@pytest.mark.parametrize("against", [{"c": 0.1}, {"joint": 0.0}, {"joint": 1}, {"joint": "near"}])
def test_unknown_arms_and_impossible_margins_are_refused(against):
    with pytest.raises(ConfigError, match="against"):
        an_experiment(against=against)
