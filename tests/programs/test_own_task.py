"""A task of one's own is scored, compared and ranked, and its results outlive its folder."""

import json
import shutil
from pathlib import Path

import pytest
import yaml
from support.processes import ROOT
from support.submitted import write_entry

from fleet_tools import evaluate
from fleet_tools.config.tasks import task_path
from fleet_tools.evaluation.protocol_file import load_protocol
from fleet_tools.evaluation.result_folder import RESULT, load_evaluation
from fleet_tools.leaderboard.__main__ import main as rank

PRESENT = load_protocol("v1").splits["train"].first_seed
PROTOCOL = f"""
name: lifting
version: 1
description: Baskets.
tasks: [task/task.yaml]
splits: {{train: {{scenes: 1, first_seed: {PRESENT}}}}}
"""

Capture = pytest.CaptureFixture[str]


@pytest.fixture(name="mine", scope="module")
def _mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example's task, a protocol over it, and results of two policies."""
    folder = tmp_path_factory.mktemp("own") / "mine"
    shutil.copytree(ROOT / "examples" / "basket", folder / "task")
    (folder / "protocol.yaml").write_text(PROTOCOL)
    for policy in ("expert", "zero"):
        assert evaluate.main(options(folder, policy, "--quiet")) == 0
    return folder


@pytest.fixture(name="moved")
def _moved(mine: Path, tmp_path: Path) -> Path:
    """This folder at another place, as if the first one were gone."""
    moved = Path(shutil.copytree(mine, tmp_path / "moved"))
    for file in moved.glob(f"results/*/{RESULT}"):
        file.write_text(file.read_text().replace(str(mine), str(mine.with_name("gone"))))
    return moved


def options(folder: Path, policy: str, *more: str, output: str = "results") -> list[str]:
    given = ["--policy", policy, "--output", str(folder / output / policy), "--workers", "0"]
    return [*given, "--protocol", str(folder / "protocol.yaml"), *more]


def test_policies_are_scored_and_compared(mine, capsys):
    compared = ["--json", "--against", str(mine / "results" / "zero")]
    assert evaluate.main(options(mine, "expert", *compared)) == 0
    printed = capsys.readouterr()
    summary = json.loads(printed.out)
    assert summary["complete"] and summary["done_now"] == 0
    assert summary["scores"]["tasks"]["basket"]["success"]["rate"] == 1
    assert summary["comparison"]["tasks"]["basket"]["only_first"] == 1
    assert not summary["leaderboard"]["can_enter"]
    assert "leaderboard page DIR --protocol FILE" in printed.err


def test_the_file_alone_is_a_protocol(mine, tmp_path, capsys):
    task = str(mine / "task" / "task.yaml")
    command = ["--policy", "expert", "--task", task, "--scenes", "1", "--workers", "0"]
    assert evaluate.main([*command, "--output", str(tmp_path / "expert"), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["protocol"], summary["outcomes"]) == ("basket v1", {"success": 1})
    ours = load_evaluation(tmp_path / "expert").episodes
    assert ours[0].state_digest == load_evaluation(mine / "results/expert").episodes[0].state_digest


def test_entries_are_ranked_over_ones_own_protocol(moved, capsys):
    """Results were made where the host has no folder, so its own task file and models are used."""
    root, protocol = moved / "board", ["--protocol", str(moved / "protocol.yaml")]
    for name, track in (("expert", "privileged"), ("zero", "keypoints")):
        entry = write_entry(root, name, {"policy": name}, track=track)
        shutil.copytree(moved / "results" / name, entry.folder / "results" / "nominal")
    for name, seed in (("expert", ["--seed", "1"]), ("zero", [])):  # scenes of one round
        verified = ["verify", str(root / "entries" / name), "--workers", "0", "--scenes", "1"]
        assert rank([*verified, *protocol, *seed, "--quiet"]) == 0
    assert rank(["page", str(root), *protocol, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert {m["name"]: m["score"]["rate"] for m in summary["methods"]} == {"expert": 1, "zero": 0}
    assert {m["name"]: m["levels"]["nominal"]["rate"] for m in summary["methods"]} == {
        "expert": 1,
        "zero": 0,
    }
    assert rank(["page", str(root)]) == 1  # the package's leaderboard
    assert "it follows 'lifting v1'" in capsys.readouterr().err


def test_a_moved_task_resumes_where_it_was(moved, capsys):
    assert evaluate.main(options(moved, "zero", "--json", "--quiet")) == 0
    assert json.loads(capsys.readouterr().out)["done_now"] == 0
    file = load_evaluation(moved / "results" / "zero").result.protocol.task_files["basket"]
    assert file.folder == str(moved / "task")
    edited = moved / "task" / "task.yaml"
    edited.write_text(
        edited.read_text().replace("success_duration_s: 0.5", "success_duration_s: 0.3")
    )
    assert evaluate.main(options(moved, "zero")) == 2
    assert "already holds an evaluation with other options" in capsys.readouterr().err


def test_a_result_alone_is_enough_to_score_and_compare(mine, tmp_path, capsys):
    results = Path(shutil.copytree(mine / "results", tmp_path / "results"))
    alone = ["--workers", "0", "--json", "--quiet", "--protocol", str(results / "expert")]
    again = ["--policy", "zero", "--output", str(results / "zero"), *alone]
    assert evaluate.main([*again, "--against", str(results / "expert")]) == 0
    assert json.loads(capsys.readouterr().out)["comparison"]["total"]["only_second"] == 1


def test_a_result_carries_the_models_of_its_task(moved, capsys):
    """The task's own folder is gone; the models of another result are the same, once each."""
    shutil.rmtree(moved / "task")
    expert = moved / "results" / "expert"
    command = ["--policy", "zero", "--workers", "0", "--quiet", "--json", "--protocol", str(expert)]
    assert evaluate.main([*command, "--output", str(moved / "new")]) == 0
    assert json.loads(capsys.readouterr().out)["done_now"] == 1
    old, new = (load_evaluation(folder).result for folder in (expert, moved / "new"))
    assert old.models == new.models and len(old.models) == 6
    labels = next((expert / "models").rglob("tools/**/keypoints.yaml"))
    labels.write_text(labels.read_text() + "# edited\n")
    assert evaluate.main([*command, "--output", str(moved / "newer")]) == 2
    assert "is damaged, or not the tool" in capsys.readouterr().err
    shutil.rmtree(labels.parent)
    assert evaluate.main([*command, "--output", str(moved / "newer")]) == 2
    assert "cannot be used" in capsys.readouterr().err
    assert not (moved / "newer").exists()


def test_results_with_other_models_are_not_compared(moved, capsys):
    """A lighter basket under the same name would make another task of it."""
    model = next((moved / "task" / "objects").rglob("model.sdf"))
    model.write_text(model.read_text() + "\n")
    other = options(moved, "zero", "--quiet", output="others")
    assert evaluate.main([*other, "--against", str(moved / "results" / "expert")]) == 2
    assert "evaluated with different models: the object" in capsys.readouterr().err
    assert evaluate.main(options(moved, "zero", "--quiet")) == 2  # resumes with the former ones
    entry = write_entry(moved / "board", "zero", {"policy": "zero"})
    shutil.copytree(moved / "results" / "zero", entry.folder / "results" / "nominal")
    ranked = ["page", str(moved / "board"), "--protocol", str(moved / "protocol.yaml")]
    assert rank([*ranked, "--quiet"]) == 1
    assert "it was made with other models than those here" in capsys.readouterr().err


def test_a_policy_that_solves_only_an_easy_task_of_its_own_stays_off_the_leaderboard(
    tmp_path, capsys
):
    task, results = tmp_path / "hammer.yaml", tmp_path / "results"
    content = yaml.safe_load(task_path("hammer").read_text())
    near = {"type": "keypoints_near", "tool": "head", "object": "head", "within_m": 100}
    task.write_text(yaml.safe_dump({**content, "success": [near]}))
    command = ["--policy", "zero", "--output", str(results / "zero"), "--workers", "0"]
    assert evaluate.main([*command, "--task", str(task)]) == 2
    assert "has the name of a task of the package, 'hammer'" in capsys.readouterr().err
    assert not results.exists()
    task.write_text(yaml.safe_dump({**content, "name": "nails", "success": [near]}))
    command += ["--scenes", "1", "--split", "train", "--json", "--quiet"]
    assert evaluate.main([*command, "--task", str(task)]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["outcomes"] == {"success": 1}
    assert not summary["leaderboard"]["can_enter"]
    entry = write_entry(tmp_path / "board", "zero", {"policy": "zero"})
    shutil.copytree(results / "zero", entry.folder / "results" / "nominal")
    assert rank(["page", str(tmp_path / "board"), "--quiet", "--json"]) == 1
    board = json.loads(capsys.readouterr().out)
    assert board["methods"][0]["levels"]["nominal"] is None
    assert "it follows 'nails v1'" in board["rejections"][0]["reason"]
