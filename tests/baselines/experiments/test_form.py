"""The form of experiments: what is planned, in which order, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.processes import ROOT

from fleet_tools.baselines.experiments.arena import make_arena
from fleet_tools.baselines.experiments.form import (
    Experiment,
    expanded,
    load_experiment,
    merged,
    planned_runs,
)
from fleet_tools.baselines.experiments.result import changes
from fleet_tools.config.values import parse
from fleet_tools.errors import ConfigError


def experiment(**content: Any) -> Experiment:
    base = {"arms": {"a": {"x": 1}, "b": {"part.y": 2}}, "vary": "part.z", "values": [1, None]}
    return parse(Experiment, base | content, "The test")


def test_a_run_has_the_keys_of_base_value_and_arm():
    runs = planned_runs(experiment(base={"x": 0, "part": {"y": 0}}, references=["r"], seeds=2))
    assert len(runs) == 2 * 2 * 3
    keys = {(run.arm, run.value, run.seed): run.keys for run in runs}
    assert keys["a", "1", 0] == {"data": [], "x": 1, "part": {"y": 0, "z": 1}}
    assert keys["b", "none", 1] == {"data": [], "x": 0, "part": {"y": 2, "z": None}}
    assert keys["r", "1", 1] == {"data": [], "x": 0, "part": {"y": 0, "z": 1}}
    assert [run.arm for run in runs if run.is_reference] == ["r"] * 4


def test_values_may_be_named_cases():
    cases = {"small": {"data": "d/1"}, "large": {"part": {"z": 5}}}
    runs = planned_runs(experiment(values=cases, vary=None, data="d/2", seeds=1))
    assert [(run.value, run.keys["data"]) for run in runs[:2]] == [
        ("small", ["d/1"]),
        ("large", ["d/2"]),
    ]


@given(st.permutations(["b", "a10", "a9", "c.d"]))
def test_wildcards_are_sorted_whatever_the_order_on_disk(tmp_path_factory, names):
    folder = tmp_path_factory.mktemp("globs")
    for name in names:
        (folder / name).mkdir()
    found = expanded([f"{folder}/*", "given/as/it/is"])
    assert found == [*(f"{folder}/{name}" for name in sorted(names)), "given/as/it/is"]


def test_a_wildcard_without_matches_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="matches nothing"):
        planned_runs(experiment(data=f"{tmp_path}/*"))


def test_files_extend_others_and_null_leaves_an_arm_out_or_is_a_value(tmp_path: Path):
    (tmp_path / "common").mkdir()
    base = {
        "base": {"x": 1, "part": {"y": 1}, "gone": {"y": 1}},
        "arms": {"a": {"x": 2}, "b": {"x": 3}},
    }
    (tmp_path / "common" / "base.yaml").write_text(yaml.safe_dump(base))
    own = {
        "extends": "common/base.yaml",
        "arms": {"a": None, "c": {"x": None}},
        "base": {"part": {"z": 2}, "gone": {}},
    }
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(own))
    found = load_experiment(tmp_path / "own.yaml")
    assert found.arms == {"b": {"x": 3}, "c": {"x": None}}
    assert found.base == {"x": 1, "part": {"y": 1, "z": 2}, "gone": {}}
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(own | {"sed": 2}))
    with pytest.raises(ConfigError, match=r"own\.yaml, line \d+: sed.*Did you mean 'seeds'"):
        load_experiment(tmp_path / "own.yaml")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"values": []}, "values"),
        ({"vary": None}, "`values` needs the key `vary`"),
        ({"references": ["a"]}, "a names both an arm and"),
        ({"controls": ["joint"]}, "joint, which is not an arm"),
        ({"lines": {"points": 4}}, "odd number"),
        ({"lines": {"rollout_points": 1}}, "odd number"),
        ({"seeds": 0}, "seeds"),
    ],
)
def test_an_invalid_form_is_refused(content, message):
    with pytest.raises(ConfigError, match=message):
        experiment(**content)


def test_keys_nested_in_a_number_are_refused():
    with pytest.raises(ConfigError, match="nested in 'robots', which is 2"):
        merged({"robots": 2}, {"robots.count": 3})


def test_more_of_the_same_is_no_change_and_anything_else_is_named():
    before = experiment(base={"x": 0}, references=["r"])
    more = {"arms": {**before.arms, "c": {}}, "values": [1, None, 3], "seeds": 5}
    grown = experiment(base={"x": 0}, references=["r", "s"], controls=["b"], **more)
    assert changes(before, grown) == [] == changes(before, before)
    assert changes(grown, before) != []
    arms = {"a": {"x": 1, "new": 1}, "b": {"part.y": 2}}
    for other, named in (
        ({"base": {"x": 1}}, "base.x was 0 and is 1"),
        ({"base": {"x": 0, "y": 1}}, "base.y was 'left out' and is 1"),
        ({"arms": arms}, "arms.a.new was 'left out' and is 1"),
        ({"seeds": 2}, "seeds was 3 and is 2"),
        ({"values": [1]}, "cases.none"),
        ({"own_scenes": False}, "own_scenes was True and is False"),
        ({"validation": True}, "validation was False and is True"),
    ):
        now = experiment(**({"base": {"x": 0}, "references": ["r"]} | other))
        assert named in "; ".join(changes(before, now))


@given(st.permutations(["a", "b"]))
def test_the_order_of_arms_is_no_change(names):
    arms: dict[str, Any] = {"a": {"x": 1}, "b": {"part.y": 2}}
    assert changes(experiment(), experiment(arms={name: arms[name] for name in names})) == []


@pytest.mark.parametrize(
    "path", [*ROOT.glob("examples/*/*.yaml"), *ROOT.glob("experiments/**/*.yaml")]
)
def test_examples_and_experiments_can_be_planned(path, tmp_path, monkeypatch):
    content = yaml.safe_load(path.read_text())
    if "common" in path.parts or "leaderboard" in path.parts or "arms" not in content:
        return  # parts of others, and fleets
    found = load_experiment(path)
    without_data = found.model_copy(update={"data": ("data/x",)})
    runs = planned_runs(without_data)
    assert len(runs) == len(found.compared) * len(found.cases) * found.seeds
    if found.arena in ("tool_use", "metaworld"):
        arena = make_arena(without_data)
        first = [run for run in runs if run.seed == runs[0].seed and not run.is_reference]
        assert all(arena.plan(run).config.robots for run in first)
