"""Sweeps train every fleet once, resume, and account for chance in training runs and scenes."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from PIL import Image
from support.fleet_cases import (
    POLICY,
    RecordingTransport,
    local,
    plan_of,
    run_rounds,
    same,
    write_data,
)
from support.processes import ROOT

from fleet_tools.baselines import sweep as program
from fleet_tools.baselines.experiments.sweeps import fleet_runner
from fleet_tools.baselines.experiments.sweeps.markdown_page import markdown_page
from fleet_tools.baselines.experiments.sweeps.summary import scene_successes, summarize_arm
from fleet_tools.baselines.experiments.sweeps.sweep import Sweep, planned_runs
from fleet_tools.baselines.federated import robot as robots
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.record import FleetWriter
from fleet_tools.baselines.federated.run import complete
from fleet_tools.baselines.federated.transport import CachingTransport
from fleet_tools.baselines.training.loop import train
from fleet_tools.config.values import parse
from fleet_tools.errors import ConfigError
from fleet_tools.utils.statistics import crossed_interval


@pytest.fixture(scope="module", name="data")
def _data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("sweep") / "data")


def content_of(data: Path, **changes: Any) -> dict[str, Any]:
    """Returns the content of a small sweep's YAML."""
    content = {
        "vary": "split.alpha",
        "values": [0.1, 10],
        "seeds": 2,
        "base": {
            "data": [str(data)],
            "policy": POLICY,
            "robots": 2,
            "held_out": 0.2,
            "training": {"epochs": 2, "batch_size": 8},
        },
        "arms": {
            "naive": {"method": "naive_average"},
            "common": {"method": "common_init", "initialization": "common"},
        },
        "references": ["single", "joint"],
    }
    return content | changes


def sweep_of(data: Path, **changes: Any) -> Sweep:
    """Returns a small sweep."""
    return parse(Sweep, content_of(data, **changes), "The test")


def run(folder: Path, data: Path, *more: str, **changes: Any) -> int:
    """Runs the program on a small sweep."""
    path = folder / "alphas.yaml"
    path.write_text(yaml.safe_dump(content_of(data, **changes)))
    arguments = [str(path), "--output", str(folder / "out"), "--workers", "0", "--quiet", *more]
    return program.main(arguments)


def results_in(folder: Path) -> dict[str, Any]:
    """Returns the results that the program stored."""
    return json.loads((folder / "out" / "alphas.json").read_text())


def train_alone(plan: FleetPlan, folder: Path) -> dict[str, Any]:
    """Returns the report of a fleet that is trained without the sweep."""
    with FleetWriter(folder, plan) as writer:
        return complete(writer, local(plan))


def test_every_run_has_the_configuration_of_its_arm_its_value_and_its_seed(data):
    runs = planned_runs(sweep_of(data))
    assert len(runs) == 2 * 2 * 4
    of_arms = [run for run in runs if run.arm not in ("single", "joint")]
    for each in of_arms:
        assert each.config.split.alpha == each.value
        assert each.config.training.seed == each.seed
        assert each.config.initialization == ("common" if each.arm == "common" else "own")
    # Pooled data are not partitioned, so that one joint training run for each seed is enough.
    assert len({run.folder for run in runs if run.arm == "joint"}) == 2
    assert len({run.folder for run in of_arms}) == len(of_arms)


def test_a_stopped_sweep_resumes_and_does_not_touch_finished_fleets(data, tmp_path, monkeypatch):
    begun = []

    def complete_two(*arguments: Any, **keywords: Any) -> dict[str, Any]:
        begun.append(arguments)
        if len(begun) == 3:
            raise KeyboardInterrupt
        return complete(*arguments, **keywords)

    monkeypatch.setattr(fleet_runner, "complete", complete_two)
    assert run(tmp_path, data, seeds=1) == 130
    reports = {path: path.stat().st_mtime_ns for path in tmp_path.glob("out/*/report.json")}
    assert len(reports) == 2
    assert run(tmp_path, data, seeds=1) == 0
    assert len(begun) == 3 + 5  # of 7 fleets, two were finished
    assert all(path.stat().st_mtime_ns == then for path, then in reports.items())
    results = results_in(tmp_path)
    assert not results["failed"] and len(results["rows"]) == 2 * 4
    page = (tmp_path / "out" / "alphas.md").read_text()
    for row in results["rows"]:
        assert f"{row['loss']['median']:.4f}" in page and row["arm"] in page
    for name in ("alphas.png", "alphas_bytes.png"):
        with Image.open(tmp_path / "out" / name) as image:
            assert np.unique(np.asarray(image)).size > 10


def test_a_run_is_the_fleet_of_its_configuration_and_first_updates_are_shared(
    data, tmp_path, monkeypatch
):
    updates = []

    def counted_train(*arguments: Any, **keywords: Any) -> Any:
        updates.append(arguments)
        return train(*arguments, **keywords)

    with monkeypatch.context() as patched:
        patched.setattr(robots, "train", counted_train)
        arms = {name: {"method": name} for name in ("naive_average", "git_rebasin")}
        assert run(tmp_path, data, arms=arms, seeds=1, values=[10], references=["single"]) == 0
    assert len(updates) == 2  # of two robots, for three fleets
    rows = {row["arm"]: row for row in results_in(tmp_path)["rows"]}
    for method in arms:
        plan = plan_of(
            data,
            robots=2,
            split={"by": "tool", "alpha": 10},
            merge_every=None,
            method=method,
            training={"epochs": 2, "batch_size": 8, "seed": 0},
        )
        report, row = train_alone(plan, tmp_path / method), rows[method]
        assert row["loss"]["median"] == report["held_out"]["loss"]
        assert row["curve"][0]["moved"] == report["curve"][0]["moved"]
        traffic = report["traffic"]
        assert row["bytes"] == traffic["bytes_to_robots"] + traffic["bytes_from_robots"]
    assert rows["git_rebasin"]["curve"][0]["moved"] > 0


def test_only_replies_to_the_first_round_are_cached(data, tmp_path):
    plan = plan_of(data, method="fleet_merge", options={"epochs": 1, "steps": 2})
    results, exchanges = [], []
    for _ in range(2):
        inner = RecordingTransport(local(plan))
        results.append(run_rounds(plan, CachingTransport(inner, plan.assignments, tmp_path)))
        exchanges.append(len(inner.exchanges))
    assert exchanges[0] - exchanges[1] == 3 == len(list(tmp_path.iterdir()))
    for one, other in zip(*results, strict=True):
        assert same(one.weights, other.weights) and one.robots.keys() == other.robots.keys()
        assert all(one.robots[k].traffic == other.robots[k].traffic for k in one.robots)


def test_a_fleet_that_fails_is_named_and_the_others_are_plotted(data, tmp_path, capsys):
    wild = {"method": "naive_average", "training.learning_rate": 1e30}
    arms = content_of(data)["arms"] | {"wild": wild}
    assert run(tmp_path, data, "--json", arms=arms, seeds=1, values=[10], references=[]) == 1
    results = json.loads(capsys.readouterr().out)
    assert len(results["failed"]) == 1 and "learning rate" in str(results["failed"])
    assert {row["arm"]: row["seeds"] for row in results["rows"]} == {
        "naive": 1,
        "common": 1,
        "wild": 0,
    }


def a_report(solved: Sequence[int], robots: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """Returns a fleet's report on rollouts in four scenes."""
    rollouts = {"hammer": {"episodes": 4, "successes": len(solved), "solved": list(solved)}}
    return {
        "rollouts": rollouts,
        "held_out": {"loss": 0.5},
        "robots": list(robots),
        "curve": [{"round": 1, "bytes": 3, "loss": 0.5, "moved": 0.5, "rollouts": rollouts}],
        "data_at_home": 10,
        "traffic": {"bytes_to_robots": 1, "bytes_from_robots": 2},
    }


def test_the_success_rate_is_over_training_runs_and_scenes(data):
    sweep = sweep_of(data)
    row = summarize_arm(sweep, "naive", 10, [a_report([0, 1]), a_report([0, 1, 2])])
    stratum = np.array([[1, 1, 0, 0], [1, 1, 1, 0]], float)
    low, high = crossed_interval([stratum])
    assert row["success"] == {"rate": 0.625, "low": low, "high": high}
    (end,) = row["curve"]
    assert end["success"] == row["success"] and row["fine_tuned"] is None
    assert row["tasks"] == {"hammer": (5, 8)}  # of both seeds
    assert summarize_arm(sweep, "naive", 10, [])["success"] is None


def test_the_page_lists_more_tasks_downwards_and_fewer_sideways(data):
    sweep = sweep_of(data, values=[10])
    rows = [
        {
            **summarize_arm(sweep, arm, 10, [a_report([0])]),
            "tasks": {"push": (3, 4), "pull": [0, 4]},
        }
        for arm in sweep.arms
    ]
    assert len(sweep.arms) == 2
    page = markdown_page(sweep, rows, "page")
    assert "|  | pull | push |" in page and "| naive | 0 of 4 | 3 of 4 |" in page
    wide = [{**row, "tasks": {**row["tasks"], "reach": (1, 4)}} for row in rows]
    page = markdown_page(sweep, wide, "page")
    assert f"|  | {' | '.join(sweep.arms)} |" in page and "| reach | 1 of 4 | 1 of 4 |" in page
    former = [{key: row[key] for key in row if key != "tasks"} for row in rows]
    assert "by task" not in markdown_page(sweep, former, "page")


@pytest.mark.parametrize("final", ["combined", "distilled"])
def test_the_final_policy_counts_and_ends_the_curve(data, final):
    more = {"bytes_to_robots": 10, "bytes_from_robots": 20}
    merged, larger = a_report([]), a_report([0, 1, 2])["rollouts"]
    merged["combined"] = {"loss": 0.25, "rollouts": larger, "traffic": more}
    if final == "distilled":
        merged["combined"]["rollouts"] = None
        merged["distilled"] = {"loss": 0.25, "rollouts": larger}
    row = summarize_arm(sweep_of(data), "naive", 10, [merged])
    (end,) = row["curve"]
    assert row["success"]["rate"] == end["success"]["rate"] == 0.75
    assert row["bytes"] == end["bytes"] == 33 and end["loss"] == row["loss"]["median"] == 0.25


def test_references_without_a_merge_are_evaluated_by_the_robots_own_policies():
    def robot(task: str, **solved: list[int]) -> dict[str, Any]:
        rollouts = {name: {"episodes": 2, "solved": scenes} for name, scenes in solved.items()}
        return {"kinds": {f"{task} claw": 3}, "rollouts": rollouts}

    report = a_report(
        [], [robot("hammer", hammer=[0], knife=[]), robot("knife", hammer=[], knife=[0, 1])]
    )
    assert scene_successes(report, "single") == {
        "hammer": [[1, 0], [0, 0]],
        "knife": [[0, 0], [1, 1]],
    }
    assert scene_successes(report, "task_specific") == {"hammer": [[1, 0]], "knife": [[1, 1]]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"values": []}, "values"),
        ({"vary": "split.alfa"}, r"The arm 'naive' with split.alfa 0.1"),
        ({"vary": "robots.count"}, "nested in 'robots', which is 2"),
        ({"arms": {"joint": {"method": "naive_average"}}}, "joint names both an arm and"),
        ({"arms": {"git": {"method": "git_rebasn"}}}, "Did you mean 'git_rebasin'"),
    ],
)
def test_an_invalid_sweep_is_refused(data, changes: dict[str, Any], message):
    with pytest.raises(ConfigError, match=message):
        planned_runs(sweep_of(data, **changes))


def test_the_example_is_valid(data):
    example = yaml.safe_load((ROOT / "examples" / "fleet" / "sweep.yaml").read_text())
    example["base"]["data"] = [str(data)]
    assert len(planned_runs(parse(Sweep, example, "The example"))) == 3 * 3 * 7
