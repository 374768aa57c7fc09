"""An experiment with an upload budget: every control is in its table, and what is too large is not.

The task is one in which every policy succeeds at once, so that rollouts are real and quick.
"""

import runpy
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from support.collected import ONE_PAIR, options, write_quick_task
from support.experiment_cases import content_of, result_in, run
from support.fleet_cases import config_of, write_data
from support.processes import ROOT

from fleet_tools import collect
from fleet_tools.baselines.experiments.fleets import ToolUse
from fleet_tools.baselines.experiments.form import Experiment, load_experiment, planned_runs
from fleet_tools.baselines.experiments.result import read_result
from fleet_tools.baselines.federated import central
from fleet_tools.baselines.federated.plan import FleetPlan, server_samples
from fleet_tools.baselines.federated.references import reference
from fleet_tools.baselines.training.demonstrations import content_digest
from fleet_tools.config.values import parse
from fleet_tools.dataset.samples import Samples
from fleet_tools.dataset.uploads import RawDataConfig
from fleet_tools.errors import ConfigError

RAW = {"raw": {"raw_data": {}}}
MERGES = {
    "average": {"method": "naive_average"},
    "ensemble": {"method": "naive_average", "last_method": "ensemble"},
}
CONTROLS = ["joint", "joint_all_steps", "server", "single", "best_single"]
BUDGETS = [600, 100_000]


@pytest.fixture(scope="module", name="folders")
def _folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of the robots' data, and of the server's public data."""
    root = tmp_path_factory.mktemp("budget")
    task, found = str(write_quick_task(root, 0.5)), {}
    for name, seed in (("private", "0"), ("public", "1")):
        found[name] = root / name
        given = ["--policy", "random", "--seed", seed, "--quiet", *ONE_PAIR]
        assert collect.main(options(found[name], *given, task=task, episodes=8)) == 0
    return found


def base_of(folders: dict[str, Path], **changes: Any) -> dict[str, Any]:
    """Returns the keys of all runs of a small experiment."""
    base = {
        "public": [str(folders["public"])],
        "policy": {"body": {"type": "mlp", "layers": 2, "width": 8}},
        "robots": 2,
        "held_out": 0.25,
        "server_blind": True,
        "split": {"by": "nothing"},
        "uploads": {"bits": 8},
        "training": {"epochs": 2, "batch_size": 8},
        "rollouts": 1,
    }
    return base | changes


def test_every_control_is_in_the_table_and_an_upload_that_is_too_large_is_refused(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    changes = {
        "vary": "upload_budget",
        "values": BUDGETS,
        "seeds": 1,
        "base": base_of(folders),
        "arms": {**RAW, **MERGES},
        "references": CONTROLS,
    }
    assert run(tmp_path, folders["private"], **changes) == 0
    result = result_in(tmp_path)
    assert not result["failed"]
    cells = {(each["arm"], each["value"]): each for each in result["cells"]}
    for arm in (*RAW, *MERGES):
        small, large = (cells[arm, str(budget)] for budget in BUDGETS)
        assert large["success"] == {"quick": [[1]]} and large["loss"] > 0
        assert 0 < large["uploaded"] <= BUDGETS[1]
        if arm in RAW:
            assert small["uploaded"] <= BUDGETS[0] and small["downloaded"] == 0
        else:
            assert small["uploaded"] == large["uploaded"] > BUDGETS[0] and "success" not in small
    for arm in CONTROLS:
        small, large = (cells[arm, str(budget)] for budget in BUDGETS)
        assert {**small, "value": ""} == {**large, "value": ""} and small["success"]
    page = (tmp_path / "out" / "small.md").read_text()
    assert all(f"| {arm} | " in page for arm in (*RAW, *MERGES, *CONTROLS))
    assert page.count("(refused)") == len(MERGES)
    script = runpy.run_path(str(ROOT / "docs/images/findings_images.py"))
    panels = {"Quick": script["Panel"](*read_result(tmp_path / "out" / "small.json"), ["raw"])}
    table = script["table"](panels, {})  # one policy solved what the other did
    assert table.count("| 0 (-100 to 100), p = 1 | 0 (-100 to 100), p = 1 |") == len(MERGES), table
    assert len(script["figure"](panels).axes) == 1
    before = (tmp_path / "out" / "small.json").read_bytes()
    reports = {each: each.stat().st_mtime_ns for each in tmp_path.glob("out/*/report.json")}
    assert run(tmp_path, folders["private"], **changes) == 0  # nothing is learned again
    assert (tmp_path / "out" / "small.json").read_bytes() == before
    assert all(each.stat().st_mtime_ns == then for each, then in reports.items())
    # Merges are made once for all budgets, and raw data sent for each.
    assert len(reports) == 2 * len(RAW) + len(MERGES) + len(CONTROLS) - 1


def test_what_a_server_learned_from_other_data_is_not_taken_for_its_own(folders, tmp_path, capsys):
    data = tmp_path / "data"
    changes = {"seeds": 1, "base": base_of(folders, rollouts=0), "arms": RAW, "references": []}
    shutil.copytree(folders["private"], data)
    assert run(tmp_path, data, **changes) == 0
    shutil.rmtree(data)
    shutil.copytree(folders["public"], data)
    assert run(tmp_path, data, **changes) == 2
    assert "content_digest" in capsys.readouterr().err


def test_raw_data_without_a_budget_are_those_of_all_robots(folders, tmp_path):
    config = parse_config(folders)
    plan = FleetPlan.of(config)
    report = central.learn(plan, RawDataConfig(), None, tmp_path / "all")
    sizes = [(tmp_path / f"all/uploads/{robot}.upload").stat().st_size for robot in range(2)]
    assert [each["uploaded_bytes"] for each in report["robots"]] == sizes
    assert report["traffic"]["uploaded_bytes"] == sum(sizes)
    counts = [len(each.episodes) for each in plan.assignments]
    assert [each["episodes"] for each in report["robots"]] == counts
    alone = central.learn(plan, None, None, tmp_path / "alone")
    assert alone["robots"] == [] and alone["traffic"]["uploaded_bytes"] == 0
    # The policy takes no fewer steps than joint training on the data of all.
    joint = FleetPlan.of(reference(config, "joint"))
    steps = int(Samples(config.data).subset(joint.assignments[0].episodes).imitate.sum())
    for run_of, uploads in ((report, tmp_path / "all/decoded"), (alone, None)):
        has = server_samples(config, [] if uploads is None else sorted(uploads.glob("*/*")))
        batches = -(-int(has.imitate.sum()) // 8)
        assert run_of["epochs"] * batches >= 2 * -(-steps // 8)


def parse_config(folders: dict[str, Path], **changes: Any) -> Any:
    """Returns the configuration of a fleet of these data, without rollouts."""
    base = base_of(folders, rollouts=0, **changes)
    return config_of(folders["private"], **base, merge_every=None)


def test_the_server_has_what_it_is_said_to_have(folders):
    """No episode of a robot is among it, and held-out ones only if it is not blind."""
    blind, seeing = (FleetPlan.of(parse_config(folders, server_blind=b)) for b in (True, False))
    public = Samples(folders["public"])
    assert content_digest(blind.server) == content_digest(public)
    held_out = {each.record.seed for each in blind.held_out.episodes}
    has = [each.record.seed for each in seeing.server.episodes]
    assert set(has) == held_out | {each.record.seed for each in public.episodes}
    assert len(has) == len(set(has)) == len(held_out) + 8
    for plan in (blind, seeing):
        own = Samples(plan.config.data)
        robots = {own.episodes[k].record.seed for each in plan.assignments for k in each.episodes}
        assert not robots & {each.record.seed for each in plan.server.episodes}
        assert not robots & held_out
    assert blind.blueprint.scaling != seeing.blueprint.scaling
    assert blind.assignments[0].episodes == seeing.assignments[0].episodes
    joint = FleetPlan.of(reference(blind.config, "joint"))  # which has all data, and scales by them
    assert content_digest(joint.server) == content_digest(joint.held_out)
    assert content_digest(joint.held_out) == content_digest(blind.held_out)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"public": []}, "needs `public` data"),
        ({"public": None}, "is both in `data` and in `public`"),
        ({"episodes": 7}, r"`episodes: 7` exceed the 6 that are not held out"),
    ],
)
def test_servers_without_data_and_robots_with_too_much_are_refused(folders, changes, message):
    if changes.get("public", 0) is None:
        changes = {"public": [str(folders["private"])]}
    with pytest.raises(ConfigError, match=message):
        FleetPlan.of(parse_config(folders, **changes))


def test_robots_have_together_as_many_episodes_as_are_asked_for(tmp_path):
    data = write_data(tmp_path / "data")
    held_out, owned = set(), {}
    for count in (3, 7, None):
        plan = FleetPlan.of(config_of(data, episodes=count))
        owned[count] = [k for each in plan.assignments for k in each.episodes]
        assert len(owned[count]) == len(set(owned[count]))
        held_out.add(content_digest(plan.held_out))
        (joint,) = FleetPlan.of(reference(plan.config, "joint")).assignments
        assert sorted(owned[count]) == list(joint.episodes)
    assert [len(each) for each in owned.values()][:2] == [3, 7] and len(held_out) == 1


def test_joint_training_with_all_steps_takes_those_of_all_robots(tmp_path):
    config = config_of(write_data(tmp_path / "data"), merge_every=None, equal_steps=True)
    longer = reference(config, "joint_all_steps")
    assert longer.robots == 1 and longer.training.epochs == 3 * config.training.epochs
    (joint,) = FleetPlan.of(longer).assignments
    fleet = FleetPlan.of(config)
    steps = [Samples(config.data).subset(a.episodes).lengths.sum() for a in fleet.assignments]
    together = sum(
        a.training.epochs * max(1, int(np.ceil(own / 8)))
        for a, own in zip(fleet.assignments, steps, strict=True)
    )
    own = Samples(config.data).subset(joint.episodes).lengths.sum()
    taken = joint.training.epochs * int(np.ceil(own / 8))
    assert 0.6 * together <= taken <= together  # whole epochs of few batches


def test_a_budget_changes_no_fleet_and_no_reference(folders):
    content = content_of(folders["private"], base=base_of(folders), references=["joint", "server"])
    content |= {"arms": {**RAW, **MERGES}, "vary": "upload_budget", "values": BUDGETS, "seeds": 1}
    experiment = parse(Experiment, content, "The test")
    arena, places = ToolUse(experiment), {}
    for each in planned_runs(experiment):
        places.setdefault(each.arm, set()).add(arena.learns(arena.plan(each)))
    assert {arm: len(found) for arm, found in places.items()} == {
        **dict.fromkeys(RAW, 2),
        **dict.fromkeys((*MERGES, "joint", "server"), 1),
    }


@pytest.mark.parametrize("name", ["states", "clouds", "gate_states", "gate_clouds", "gate_images"])
def test_every_run_of_the_stored_experiments_is_possible(name: str) -> None:
    experiment = load_experiment(ROOT / "experiments" / "budget" / f"{name}.yaml")
    arena = ToolUse(experiment)
    plans = [arena.plan(each) for each in planned_runs(experiment) if not each.is_reference]
    assert any(each.raw for each in plans) and 100_000 in {each.budget for each in plans}
