"""The program `fleet-tools new-task`: a task that works at once, and what it refuses."""

import json
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import fleet_tools
from fleet_tools.config.tasks import TaskConfig, load_task
from fleet_tools.new_task import main
from fleet_tools.studio.checking.program import CheckOptions, make_report


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("new") / "press"
    assert main(["press", "--output", str(folder), "--quiet"]) == 0
    return folder


def test_an_empty_working_directory_may_be_the_folder(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["press", "--output", ".", "--quiet"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in folder.iterdir()}
    assert (tmp_path / "task.yaml").read_bytes() == (folder / "task.yaml").read_bytes()


def test_what_does_not_fit_on_the_disk_leaves_nothing(disk):
    with disk.room(0):
        assert main(["press", "--output", str(disk.folder / "press"), "--quiet"]) == 1
    assert not list(disk.folder.rglob("*.*"))
    assert main(["press", "--output", str(disk.folder / "press"), "--quiet"]) == 0


def test_the_expert_solves_it_and_doing_nothing_does_not(folder):
    env = gym.make("FleetTools/Custom-v0", task=str(folder / "task.yaml"))
    expert = fleet_tools.ExpertPolicy(env)
    outcomes = [fleet_tools.rollout(env, expert, seed=seed).outcome for seed in range(4)]
    assert outcomes == ["success"] * 4
    _, info = env.reset(seed=0)
    while info["outcome"] == "running":
        *_, info = env.step(np.zeros(6, np.float32))
    assert info["outcome"] == "time_limit"
    env.close()


@pytest.mark.parametrize(
    "model",
    ["tools/presser/first", pytest.param("objects/button/first", marks=pytest.mark.slow)],
)
def test_its_models_are_what_a_family_needs(folder, model):
    report = make_report(
        CheckOptions(folder=folder / model, task=str(folder / "task.yaml"), scenes=0)
    )
    assert report["fine"], report


def test_its_file_relies_on_defaults(folder):
    task = load_task(str(folder / "task.yaml"))
    given = {"name", "description", "tool_family", "object_family", "assets", "object_mount"}
    given |= {"keypoints", "tool_parts", "time_limit_s", "randomization", "success", "expert"}
    assert task.model_fields_set == given
    assert task.randomization.model_fields_set == {"joint_resistance"}
    assert given < TaskConfig.model_fields.keys()


def test_it_says_what_it_wrote_and_names_are_those_given(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    families = ["--tool-family", "stick", "--object-family", "key_7"]
    assert main(["Play_1", *families, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["task"] == "Play_1/task.yaml"
    written = {p.relative_to("Play_1").as_posix() for p in Path("Play_1").rglob("*") if p.is_file()}
    assert written == set(summary["files"])
    task = load_task(summary["task"])
    assert (task.name, task.tool_family, task.object_family) == ("Play_1", "stick", "key_7")
    env = gym.make("FleetTools/Custom-v0", task=summary["task"])
    env.reset(seed=0)
    env.close()


def test_a_folder_that_holds_something_is_left_as_it_is(tmp_path, capsys):
    (tmp_path / "press").mkdir()
    (tmp_path / "press" / "task.yaml").write_text("mine")
    assert main(["press", "--output", str(tmp_path / "press")]) == 1
    assert "was left unchanged" in capsys.readouterr().err
    assert main(["press", "--output", str(tmp_path / "press" / "task.yaml")]) == 1
    assert main(["press", "--output", str(tmp_path / "press" / "task.yaml" / "inside")]) == 1
    assert [p.read_text() for p in tmp_path.rglob("*") if p.is_file()] == ["mine"]
    (tmp_path / "empty").mkdir()
    assert main(["press", "--output", str(tmp_path / "empty"), "--quiet"]) == 0
