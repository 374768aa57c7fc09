"""Fleets of an experiment: each is trained once, resumes, and is judged in scenes of its seed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from support.experiment_cases import content_of, result_in, run
from support.fleet_cases import RecordingTransport, local, plan_of, run_rounds, same, write_data

from fleet_tools.baselines.experiments import fleets
from fleet_tools.baselines.experiments.fleets import ToolUse, measured, scene_successes
from fleet_tools.baselines.experiments.form import Experiment, planned_runs
from fleet_tools.baselines.federated import robot as robots
from fleet_tools.baselines.federated.record import FleetWriter
from fleet_tools.baselines.federated.run import complete
from fleet_tools.baselines.federated.transport import CachingTransport
from fleet_tools.baselines.training.loop import train
from fleet_tools.config.values import parse
from fleet_tools.sim.splits import VALIDATION


@pytest.fixture(scope="module", name="data")
def _data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("fleets") / "data")


def planned(data: Path, **changes: Any) -> list[Any]:
    """Returns the runs of a small experiment and their fleets."""
    experiment = parse(Experiment, content_of(data, **changes), "The test")
    arena = ToolUse(experiment)
    return [(run, arena.plan(run)) for run in planned_runs(experiment)]


def test_every_run_has_the_configuration_of_its_arm_its_value_and_its_seed(data):
    runs = planned(data)
    assert len(runs) == 2 * 2 * 4
    of_arms = [(run, plan) for run, plan in runs if not run.is_reference]
    for each, plan in of_arms:
        assert plan.config.split.alpha == float(each.value)
        assert plan.config.training.seed == each.seed and plan.config.training.epochs == 2
        assert plan.config.initialization == ("common" if each.arm == "common" else "own")
    # Pooled data are not partitioned, so that one joint training run for each seed is enough.
    assert len({plan.folder for run, plan in runs if run.arm == "joint"}) == 2
    assert len({plan.folder for _, plan in of_arms}) == len(of_arms)


def test_each_seed_has_scenes_of_its_own_unless_all_share_them(data):
    base = content_of(data)["base"] | {"rollouts": 3}
    arms = {"naive": {"method": "naive_average"}}
    for own, expected in ((True, [0, 3, 6]), (False, [0, 0, 0])):
        runs = planned(data, base=base, arms=arms, values=[1], seeds=3, own_scenes=own)
        found = {run.seed: plan for run, plan in runs if run.arm == "naive"}
        assert [found[seed].first_scene for seed in range(3)] == expected
        assert len({plan.folder for plan in found.values()}) == 3


@given(
    seeds=st.integers(1, 1000),
    scenes=st.integers(1, 10_000),
    others=st.integers(1, 10_000),
    own=st.booleans(),
)
def test_settings_are_chosen_in_scenes_and_seeds_that_nothing_reports(seeds, scenes, others, own):
    def judged(validation: bool, count: int, own_scenes: bool) -> tuple[set[int], range]:
        """Returns the seeds of an experiment, and all scenes between its first and its last."""
        form = {"arms": ONE_ARM, "values": {"": {}}, "seeds": seeds, "own_scenes": own_scenes}
        base = {"data": ["x"], "policy": "mlp", "rollouts": count}
        content = form | {"base": base, "validation": validation}
        experiment = parse(Experiment, content, "The test")
        arena, runs = ToolUse(experiment), planned_runs(experiment)
        ends = [arena.plan(each) for each in (runs[0], runs[-1])]
        last = max(end.first_scene for end in ends) + count
        return {run.seed for run in runs}, range(min(end.first_scene for end in ends), last)

    (reported, shown), (chosen, tried) = judged(False, scenes, own), judged(True, others, not own)
    assert len(reported) == len(chosen) == seeds and not reported & chosen
    assert shown.stop <= tried.start and tried.stop <= len(VALIDATION)


@pytest.mark.parametrize("stop", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_an_interrupted_experiment_resumes_to_the_same_bits(data, tmp_path, monkeypatch, stop):
    begun = []

    def complete_some(*arguments: Any, **keywords: Any) -> dict[str, Any]:
        begun.append(arguments)
        if len(begun) == stop:
            raise KeyboardInterrupt
        return complete(*arguments, **keywords)

    small = {"seeds": 1, "values": [10]}
    for folder in ("whole", "stopped"):
        (tmp_path / folder).mkdir()
    assert run(tmp_path / "whole", data, **small) == 0
    monkeypatch.setattr(fleets, "complete", complete_some)
    assert run(tmp_path / "stopped", data, **small) == 130
    reports = {path: path.stat().st_mtime_ns for path in tmp_path.glob("stopped/out/*/report.json")}
    assert len(reports) == stop - 1 and result_in(tmp_path / "stopped")["cells"] == []
    # The order of arms changes nothing but that of the rows.
    arms = dict(reversed(content_of(data)["arms"].items()))
    assert run(tmp_path / "stopped", data, arms=arms, **small) == 0
    assert len(begun) == stop + 4 - (stop - 1)
    assert all(path.stat().st_mtime_ns == then for path, then in reports.items())
    assert run(tmp_path / "stopped", data, **small) == 0
    one, other = (result_in(tmp_path / name) for name in ("whole", "stopped"))
    assert one == other and not one["failed"] and len(one["rows"]) == 4
    page = (tmp_path / "stopped" / "out" / "small.md").read_text()
    assert all(f"{row['loss']['median']:.4f}" in page for row in one["rows"])
    for name in ("small.png", "small_bytes.png"):
        with Image.open(tmp_path / "stopped" / "out" / name) as image:
            assert np.unique(np.asarray(image)).size > 10


def test_a_changed_experiment_and_changed_data_are_refused(data, tmp_path, capsys):
    own = write_data(tmp_path / "data", seed=1)
    small = {"seeds": 1, "values": [10], "references": []}
    assert run(tmp_path, own, **small) == 0
    before = (tmp_path / "out" / "small.json").read_bytes()
    changed = content_of(own)["base"] | {"robots": 3}
    assert run(tmp_path, own, base=changed, **small) == 2
    assert "base.robots was 2 and is 3" in capsys.readouterr().err
    own.rename(tmp_path / "old")
    write_data(own, steps=(5, 4, 6, 3, 9, 9), seed=2)
    assert run(tmp_path, own, **small) == 2
    assert "already holds a fleet with other options" in capsys.readouterr().err
    assert (tmp_path / "out" / "small.json").read_bytes() == before


def test_datasets_of_another_arena_are_refused(data, tmp_path, capsys):
    assert run(tmp_path, data, arena="metaworld", seeds=1) == 2
    assert "is a dataset of FleetTools, and not of MetaWorld" in capsys.readouterr().err


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
    rows = {row["arm"]: row for row in result_in(tmp_path)["rows"]}
    for method in arms:
        plan = plan_of(
            data,
            robots=2,
            split={"by": "tool", "alpha": 10},
            merge_every=None,
            method=method,
            training={"epochs": 2, "batch_size": 8, "seed": 0},
        )
        with FleetWriter(tmp_path / method, plan) as writer:
            report, row = complete(writer, local(plan)), rows[method]
        assert row["loss"]["median"] == report["held_out"]["loss"]
        assert row["curve"][0]["moved"] == report["curve"][0]["moved"]
        traffic = report["traffic"]
        assert row["bytes"] == traffic["downloaded_bytes"] + traffic["uploaded_bytes"]
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
        assert one.robots == other.robots  # and the bytes that were exchanged with them


def test_a_fleet_that_fails_is_named_and_the_others_are_plotted(data, tmp_path):
    wild = {"method": "naive_average", "training.learning_rate": 1e30}
    arms = content_of(data)["arms"] | {"wild": wild}
    assert run(tmp_path, data, arms=arms, seeds=1, values=[10], references=[]) == 1
    result = result_in(tmp_path)
    (failed,) = result["failed"]
    assert failed["arm"] == "wild" and "learning rate" in failed["why"]
    assert {row["arm"]: row["seeds"] for row in result["rows"]} == {
        "naive": 1,
        "common": 1,
        "wild": 0,
    }
    assert failed["why"] in (tmp_path / "out" / "small.md").read_text()


def a_report(solved: Sequence[int], robots: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """Returns a fleet's report on rollouts in four scenes."""
    rollouts = {"hammer": {"episodes": 4, "successes": len(solved), "solved": list(solved)}}
    return {
        "rollouts": rollouts,
        "held_out": {"loss": 0.5},
        "robots": list(robots),
        "curve": [{"round": 1, "bytes": 3, "loss": 0.5, "moved": 0.5, "rollouts": rollouts}],
        "data_at_home": 10,
        "traffic": {"downloaded_bytes": 1, "uploaded_bytes": 2},
    }


@pytest.mark.parametrize("final", ["combined", "distilled"])
def test_the_final_policy_counts_and_ends_the_curve(final):
    more = {"downloaded_bytes": 10, "uploaded_bytes": 20}
    merged, larger = a_report([]), a_report([0, 1, 2])["rollouts"]
    merged["combined"] = {"loss": 0.25, "rollouts": larger, "traffic": more}
    if final == "distilled":
        merged["combined"]["rollouts"] = None
        merged["distilled"] = {"loss": 0.25, "rollouts": larger}
    value = measured(merged, "naive")
    (end,) = value["curve"]
    assert value["success"] == end["success"] == {"hammer": [[1, 1, 1, 0]]}
    assert value["bytes"] == end["bytes"] == 33 and end["loss"] == value["loss"] == 0.25


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


def drawn_report(draw: Any) -> dict[str, Any]:
    """Draws a report of robots that solve some scenes of some tasks, or answered nothing."""
    tasks, scenes = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    robots = []
    for number in range(draw(st.integers(1, 4))):
        counts = [draw(st.integers(0, 3)) for _ in range(tasks)]
        solved = [draw(st.sets(st.integers(0, scenes - 1))) for _ in range(tasks)]
        rollouts = {
            f"t{task}": {"episodes": scenes, "successes": len(each), "solved": sorted(each)}
            for task, each in enumerate(solved)
        }
        robots.append(
            {
                "robot": number,
                "kinds": {f"t{task} claw": count for task, count in enumerate(counts) if count},
                "held_out_loss": float(number),
                "rollouts": rollouts if draw(st.integers(0, 3)) else None,
            }
        )
    return a_report([], robots)


@given(data=st.data())
def test_the_best_robot_and_the_routing_are_rows_of_the_robots_alone(data):
    """Both are found here from the rows of all robots, and from the episodes."""
    report = drawn_report(data.draw)
    robots = [robot for robot in report["robots"] if robot["rollouts"]]
    alone, best, routed = (
        scene_successes(report, arm) for arm in ("single", "best_single", "oracle_routing")
    )
    assert alone.keys() == best.keys() == routed.keys()
    assert all(len(rows) == 1 for rows in (*best.values(), *routed.values()))
    if not robots:
        assert not alone and measured(report, "best_single").get("loss") is None
        return
    sums = [sum(sum(rows[k]) for rows in alone.values()) for k in range(len(robots))]
    first = sums.index(max(sums))
    assert best == {task: [rows[first]] for task, rows in alone.items()}
    assert measured(report, "best_single")["loss"] == robots[first]["held_out_loss"]
    for task, rows in alone.items():
        counts = [robot["kinds"].get(f"{task} claw", 0) for robot in robots]
        assert routed[task] == [rows[counts.index(max(counts))]]
    assert "loss" not in measured(report, "oracle_routing")


def test_readings_of_robots_alone_train_and_run_nothing(data, tmp_path, monkeypatch):
    """For each seed and value, one fleet gives three rows."""
    runs = planned(data, references=["single", "best_single", "oracle_routing"], arms=ONE_ARM)
    folders = {
        arm: [plan.folder for run, plan in runs if run.arm == arm]
        for arm in ("single", "best_single", "oracle_routing")
    }
    assert folders["single"] == folders["best_single"] == folders["oracle_routing"]
    assert len(set(folders["single"])) == 4  # two seeds and two values
    begun = []

    def counted(*arguments: Any, **keywords: Any) -> dict[str, Any]:
        begun.append(arguments)
        report = complete(*arguments, **keywords)
        for robot in report["robots"]:  # as rollouts would give; random data have no environment
            solved = [0] if robot["robot"] == 1 else []
            robot["rollouts"] = {"hammer": {"episodes": 2, "successes": 1, "solved": solved}}
        return report

    monkeypatch.setattr(fleets, "complete", counted)
    alone = {"references": ["single", "best_single", "oracle_routing"], "arms": ONE_ARM}
    assert run(tmp_path, data, seeds=1, values=[10], **alone) == 0
    assert len(begun) == 2  # of the arm, and of the three


ONE_ARM = {"naive": {"method": "naive_average"}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vary": "split.alfa"}, r"The arm 'naive' with 0.1"),
        ({"vary": "robots.count"}, "nested in 'robots', which is 2"),
        ({"arms": {"git": {"method": "git_rebasn"}}}, "Did you mean 'git_rebasin'"),
        ({"references": ["jont"]}, "Did you mean 'joint'"),
    ],
)
def test_what_is_not_possible_is_refused_first(data, tmp_path, capsys, changes, message):
    assert run(tmp_path, data, **changes) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "out").exists()
