"""The expert's trial: the stage at which it fails, and the program's report and exit codes."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.families import BAD_MODELS
from support.processes import ROOT

from fleet_tools.assets.__main__ import main
from fleet_tools.assets.model_folder import write_model
from fleet_tools.config.file_access import assets_root
from fleet_tools.envs.outcomes import POLICY_ERROR, SIMULATION_ERROR, SUCCESS, TIME_LIMIT
from fleet_tools.studio.checking.expert_trials import ExpertTrial, counted, failing_stage

SHIPPED = sorted(path.parent for path in assets_root().glob("*/*/*/keypoints.yaml"))
FIRST = [next(path for path in SHIPPED if path.parent.name == "nut")]
OTHERS = [path for path in SHIPPED if path not in FIRST]


def check(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, Any]:
    capsys.readouterr()
    code = main(["check", *map(str, arguments), "--json"])
    printed = capsys.readouterr()
    return code, json.loads(printed.out) if printed.out else printed.err


def bad_model(name: str, folder: Path) -> Path:
    (bad,) = [bad for bad in BAD_MODELS if bad.name == name]
    model = bad.make()
    write_model(model, model.folder(folder))
    return model.folder(folder)


def broken(report: dict[str, Any]) -> set[str]:
    return {each["name"] for each in report["measurements"] if not each["holds"]}


@pytest.mark.parametrize(
    ("folder", "scenes"),
    [
        *((folder, 1) for folder in FIRST),
        *(pytest.param(folder, 4, marks=pytest.mark.slow) for folder in OTHERS),
    ],
    ids=lambda value: value.name if isinstance(value, Path) else str(value),
)
def test_a_model_that_ships_is_fine(folder, scenes, capsys):
    code, report = check(capsys, folder, "--scenes", str(scenes))
    assert broken(report) == set()
    assert (code, report["fine"]) == (0, True), report["trials"]
    (tried,) = report["trials"]
    assert tried["successes"] == tried["scenes"] == scenes


@pytest.mark.slow  # quick: what fails at loading, and which stage a record names
@pytest.mark.parametrize(
    ("name", "rule", "stage"),
    [
        ("blunt", "edge thickness", "expectation at keyframe after[1]"),
        ("round", "width across corners by that across flats", "expectation at keyframe after[0]"),
    ],
)
def test_a_bad_model_fails_where_its_defect_matters(name, rule, stage, tmp_path, capsys):
    folder = bad_model(name, tmp_path)
    code, report = check(capsys, folder, "--scenes", "1")
    assert code == 1 and broken(report) == {rule}
    (tried,) = report["trials"]
    assert tried["successes"] == 0
    (found,) = tried["failures"]
    assert found == stage
    assert tried["failures"][stage]["count"] == 1
    assert "attempts; " in tried["failures"][stage]["example"]["why"]


def test_what_is_measured_needed_and_to_be_done_is_said(tmp_path, capsys):
    code, report = check(capsys, bad_model("light", tmp_path), "--scenes", "0")
    assert code == 1 and broken(report) == {"density"} and report["trials"] == []
    (density,) = [each for each in report["measurements"] if each["name"] == "density"]
    assert density["value"] == pytest.approx(0.0034, rel=0.01) and density["unit"] == "g/cm^3"
    assert main(["check", str(bad_model("blunt", tmp_path)), "--scenes", "0"]) == 1
    out = capsys.readouterr().out
    assert "FAILED  edge thickness 1.42 mm; needed: at most 0.7 mm" in out
    assert "mend: Sharpen the blade" in out and "ok      mass" in out


def test_what_a_scene_cannot_begin_with_fails_at_loading(tmp_path, capsys):
    code, report = check(capsys, bad_model("no_jaw", tmp_path), "--scenes", "2")
    assert code == 1 and "opening between the pads" in broken(report)
    failures = report["trials"][0]["failures"]
    assert failures["loading"]["count"] == 2
    assert "jaw" in failures["loading"]["example"]["why"]

    file = bad_model("light", tmp_path) / "model.sdf"
    file.write_text(re.sub("<inertial>.*?</inertial>", "", file.read_text(), flags=re.S))
    code, report = check(capsys, file.parent, "--scenes", "1")
    assert code == 1 and "lacks <inertial>" in report["error"]
    assert list(report["trials"][0]["failures"]) == ["loading"]


def test_a_family_of_ones_own_is_tried_in_its_task(capsys):
    gaff, task = ROOT / "examples/basket/tools/hook/gaff", ROOT / "examples/basket/task.yaml"
    code, report = check(capsys, gaff, "--task", str(task), "--scenes", "1")
    assert (code, report["trials"][0]["successes"]) == (0, 1)


@pytest.mark.slow
def test_a_family_of_ones_own_without_its_task_is_not_tried(capsys):
    code, report = check(capsys, ROOT / "examples/basket/tools/hook/gaff")
    assert (code, report["trials"]) == (0, [])  # no task of the package uses it


def info(stage: str, *keyframes: str) -> dict[str, Any]:
    return {"stage": stage, "failed_attempts": [{"keyframe": name} for name in keyframes]}


@pytest.mark.parametrize(
    ("outcome", "info", "stage"),
    [
        (SUCCESS, info("after[1]", "after[0]"), None),
        (SIMULATION_ERROR, info("after[1]"), "simulation"),
        (POLICY_ERROR, info("planning"), "planning"),
        (TIME_LIMIT, info("before[0]"), "approach"),
        (TIME_LIMIT, info("actuation"), "actuation"),
        (TIME_LIMIT, info("after[3]"), "motion to keyframe after[3]"),
        (TIME_LIMIT, info("retreat", "after[1]"), "expectation at keyframe after[1]"),
        (
            TIME_LIMIT,
            info("before[0]", "after[0]", "after[1]", "after[1]"),
            "expectation at keyframe after[1]",
        ),
    ],
)
def test_the_stage_follows_from_what_the_expert_recorded(outcome, info, stage):
    assert failing_stage(outcome, info) == stage


def test_failures_are_counted_by_stage():
    trials = [
        ExpertTrial("spatula", "puck", seed, TIME_LIMIT, "approach", "why") for seed in range(3)
    ]
    trials += [
        ExpertTrial("spatula", "puck", 3, SUCCESS),
        ExpertTrial("spatula", None, 4, "loading", "loading"),
    ]
    stages = counted(trials)
    assert {stage: found["count"] for stage, found in stages.items()} == {
        "approach": 3,
        "loading": 1,
    }
    assert stages["approach"]["example"]["seed"] == 0
