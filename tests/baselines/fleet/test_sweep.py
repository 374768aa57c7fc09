"""Sweeps run every fleet once, go on where they stopped, and know both kinds of chance."""

import json

import numpy as np
import pytest
import yaml

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from fleet_cases import POLICY, Tapped, local, plan_of, played, same, write_data
from PIL import Image

from fleet_tools.baselines import sweep as program
from fleet_tools.baselines.experiments.sweeps.sweep import Sweep, cells, outcomes, row
from fleet_tools.baselines.federated.reply_cache import RememberedHosts
from fleet_tools.baselines.federated.run import complete
from fleet_tools.baselines.training.loop import train
from fleet_tools.config.values import parse
from fleet_tools.errors import ConfigError
from fleet_tools.utils.statistics import crossed_interval


@pytest.fixture(scope="module", name="data")
def _data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("sweep") / "data")


def sweep_of(data, **changes):
    parts = {
        "vary": "split.alpha",
        "values": [0.1, 10],
        "seeds": 2,
        "base": {
            "data": [str(data)], "policy": POLICY, "robots": 2, "held_out": 0.2,
            "training": {"epochs": 2, "batch_size": 8},
        },
        "arms": {
            "naive": {"method": "naive_average"},
            "common": {"method": "common_init", "initialization": "common"},
        },
        "references": ["single", "joint"],
    }  # fmt: skip
    return parts | changes


def run(folder, data, *more, **changes):
    path = folder / "alphas.yaml"
    path.write_text(yaml.safe_dump(sweep_of(data, **changes)))
    arguments = [str(path), "--output", str(folder / "out"), "--workers", "0", "--quiet", *more]
    return program.main(arguments)


def test_every_cell_is_what_its_arm_its_value_and_its_seed_say(data):
    planned = cells(parse(Sweep, sweep_of(data), "It"))
    assert len(planned) == 2 * 2 * 4
    arms = [cell for cell in planned if cell.arm not in ("single", "joint")]
    for cell in arms:
        assert cell.config.split.alpha == cell.value
        assert cell.config.training.seed == cell.seed
        assert cell.config.initialization == ("common" if cell.arm == "common" else "own")
    # Pooled data are not dealt out, so that one joint training for each seed is enough.
    assert len({cell.folder for cell in planned if cell.arm == "joint"}) == 2
    assert len({cell.folder for cell in arms}) == len(arms)


def test_a_stopped_sweep_goes_on_and_finished_fleets_are_left_alone(data, tmp_path, monkeypatch):
    begun = []

    def complete_some(plan, *rest, **keywords):
        begun.append(plan)
        if len(begun) == 5:
            raise KeyboardInterrupt
        return complete(plan, *rest, **keywords)

    monkeypatch.setattr("fleet_tools.baselines.federated.run.complete", complete_some)
    assert run(tmp_path, data) == 130
    reports = {path: path.stat().st_mtime_ns for path in tmp_path.glob("out/*/report.json")}
    assert len(reports) == 4
    assert run(tmp_path, data) == 0
    assert len(begun) == 5 + 10  # of 14 fleets, four were there
    assert all(path.stat().st_mtime_ns == at for path, at in reports.items())
    told = json.loads((tmp_path / "out" / "alphas.json").read_text())
    assert not told["failed"] and len(told["rows"]) == 2 * 4
    said = (tmp_path / "out" / "alphas.md").read_text()
    for each in told["rows"]:
        assert f"{each['loss']['median']:.4f}" in said and each["arm"] in said
    for name in ("alphas.png", "alphas_bytes.png"):
        with Image.open(tmp_path / "out" / name) as picture:
            assert np.unique(np.asarray(picture)).size > 10


def test_a_cell_is_the_fleet_that_its_config_is(data, tmp_path):
    assert run(tmp_path, data, seeds=1, values=[10], references=[]) == 0
    told = json.loads((tmp_path / "out" / "alphas.json").read_text())
    plan = plan_of(
        data, robots=2, split={"by": "tool", "alpha": 10}, merge_every=None,
        training={"epochs": 2, "batch_size": 8, "seed": 0},
    )  # fmt: skip
    report = complete(plan, local(plan), tmp_path / "apart")
    (naive,) = (each for each in told["rows"] if each["arm"] == "naive")
    assert naive["loss"]["median"] == report["held_out"]["loss"]
    traffic = report["traffic"]
    assert naive["bytes"] == traffic["bytes_to_robots"] + traffic["bytes_from_robots"]


def test_what_fleets_have_in_common_is_learned_once_and_to_the_same_bits(
    data, tmp_path, monkeypatch
):
    learned = []

    def train_and_tell(blueprint, trajectories, *rest, **keywords):
        learned.append(trajectories.steps)
        return train(blueprint, trajectories, *rest, **keywords)

    monkeypatch.setattr("fleet_tools.baselines.federated.robot.train", train_and_tell)
    arms = {name: {"method": name} for name in ("naive_average", "git_rebasin")}
    assert run(tmp_path, data, arms=arms, seeds=1, values=[10], references=["single"]) == 0
    assert len(learned) == 2  # robots, for three fleets
    told = json.loads((tmp_path / "out" / "alphas.json").read_text())
    (matched,) = (each for each in told["rows"] if each["arm"] == "git_rebasin")
    plan = plan_of(
        data, robots=2, split={"by": "tool", "alpha": 10}, merge_every=None, method="git_rebasin",
        training={"epochs": 2, "batch_size": 8, "seed": 0},
    )  # fmt: skip
    report = complete(plan, local(plan), tmp_path / "apart")
    assert matched["loss"]["median"] == report["held_out"]["loss"]
    assert matched["curve"][0]["moved"] == report["curve"][0]["moved"] > 0


def test_only_first_lessons_are_remembered(data, tmp_path):
    plan = plan_of(data, method="fleet_merge", options={"epochs": 1, "steps": 2})
    assignments = [home.assignment for home in plan.homes]

    def rounds():
        tapped = Tapped(local(plan))
        return played(plan, RememberedHosts(tapped, assignments, tmp_path)), tapped.lines

    (first, lines), (second, fewer) = rounds(), rounds()
    assert len(lines) - len(fewer) == 3 == len(list(tmp_path.iterdir()))
    for one, other in zip(first, second, strict=True):
        assert same(one.weights, other.weights) and one.parts.keys() == other.parts.keys()
        assert all(one.parts[k].traffic == other.parts[k].traffic for k in one.parts)


def test_a_fleet_that_fails_is_named_and_the_others_are_drawn(data, tmp_path, capsys):
    wild = {"method": "naive_average", "training.learning_rate": 1e30}
    arms = sweep_of(data)["arms"] | {"wild": wild}
    assert run(tmp_path, data, "--json", arms=arms, seeds=1, values=[10], references=[]) == 1
    told = json.loads(capsys.readouterr().out)
    assert len(told["failed"]) == 1 and "learning rate" in str(told["failed"])
    assert {each["arm"]: each["seeds"] for each in told["rows"]} == {
        "naive": 1, "common": 1, "wild": 0,
    }  # fmt: skip


def a_report(solved, robots=()):
    tried = {"hammer": {"episodes": 4, "successes": len(solved), "solved": solved}}
    return {
        "rollouts": tried,
        "held_out": {"loss": 0.5},
        "robots": list(robots),
        "curve": [{"round": 1, "bytes": 3, "loss": 0.5, "moved": 0.5, "rollouts": tried}],
        "data_at_home": 10,
        "traffic": {"bytes_to_robots": 1, "bytes_from_robots": 2},
    }


def test_success_counts_trainings_and_scenes(data):
    sweep = parse(Sweep, sweep_of(data), "It")
    came = row(sweep, "naive", 10, [a_report([0, 1]), a_report([0, 1, 2])])
    stratum = np.array([[1, 1, 0, 0], [1, 1, 1, 0]], float)
    low, high = crossed_interval([stratum])
    assert came["success"] == {"rate": 0.625, "low": low, "high": high}
    (end,) = came["curve"]
    assert end["success"] == came["success"] and came["fine_tuned"] is None
    assert row(sweep, "naive", 10, [])["success"] is None


def test_who_stays_alone_is_judged_by_the_robots_own_policies():
    def robot(task, **solved):
        tried = {name: {"episodes": 2, "solved": places} for name, places in solved.items()}
        return {"kinds": {f"{task} claw": 3}, "rollouts": tried}

    robots = [robot("hammer", hammer=[0], knife=[]), robot("knife", hammer=[], knife=[0, 1])]
    report = a_report([], robots)
    assert outcomes(report, "single") == {"hammer": [[1, 0], [0, 0]], "knife": [[0, 0], [1, 1]]}
    assert outcomes(report, "task_specific") == {"hammer": [[1, 0]], "knife": [[1, 1]]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"values": []}, "values"),
        ({"vary": "split.alfa"}, r"The arm 'naive' with split.alfa 0.1"),
        ({"arms": {"joint": {"method": "naive_average"}}}, "joint names an arm and a reference"),
        ({"arms": {"git": {"method": "git_rebasn"}}}, "did you mean 'git_rebasin'"),
    ],
)
def test_what_is_no_sweep_is_refused(data, changes, message):
    with pytest.raises(ConfigError, match=message):
        cells(parse(Sweep, sweep_of(data, **changes), "It"))


def test_the_example_is_one(data):
    from conftest import ROOT

    example = yaml.safe_load((ROOT / "examples" / "fleet" / "sweep.yaml").read_text())
    example["base"]["data"] = [str(data)]
    assert len(cells(parse(Sweep, example, "The example"))) == 3 * 3 * 7
