"""Datasets of Meta-World, and that the learners and fleets of tool use serve them unchanged."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from support.rendering import needs_gl

pytest.importorskip("metaworld")
pytest.importorskip("torch")
pytest.importorskip("safetensors")


from fleet_tools import replay, view
from fleet_tools.baselines import fleet, train
from fleet_tools.baselines.experiments.fleets import scene_successes
from fleet_tools.baselines.metaworld import __main__ as program
from fleet_tools.baselines.metaworld.expert import EXPERT
from fleet_tools.baselines.policies.checkpoint import load_checkpoint
from fleet_tools.dataset import collection as collection_run
from fleet_tools.dataset.dataset_folder import Dataset
from fleet_tools.dataset.samples import Samples
from fleet_tools.errors import ConfigError, DatasetError
from fleet_tools.studio.pictures.recording import dataset_source

TASKS = "reach-v3,drawer-close-v3"
pytestmark = pytest.mark.filterwarnings("error::UserWarning")


def collect(folder: Path, *options: str) -> int:
    """Runs the program in this process."""
    return program.main(
        ["collect", "--tasks", TASKS, "--workers", "0", "--output", str(folder), *options]
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Datasets of six episodes of each task."""
    folder = tmp_path_factory.mktemp("metaworld")
    assert collect(folder, "--episodes", "6", "--quiet") == 0
    return folder


@pytest.mark.slow
def test_a_dataset_is_resumed_and_does_not_depend_on_workers(folder, tmp_path, capsys):
    assert collect(tmp_path, "--episodes", "2", "--only", "reach-v3", "--json") == 0
    (summary,) = json.loads(capsys.readouterr().out)["tasks"]
    assert summary["complete"] and summary["stored_episodes"] == 2
    options = ["--episodes", "6", "--workers", "1", "--verify"]
    assert collect(tmp_path, *options) == 0
    out = capsys.readouterr().out
    assert "reach-v3" in out and "6 of        6" in out
    for task in TASKS.split(","):
        one, other = (Dataset(each / task) for each in (folder, tmp_path))
        assert [r.file_digest for r in one.stored()] == [r.file_digest for r in other.stored()]
        assert one.header == other.header and one.header.packages["metaworld"] == "3.1.1"
        assert one.header.action.shape == (4,) and one.header.control_rate_hz == 80


def test_after_a_full_disk_no_other_task_is_begun(tmp_path, capsys, monkeypatch):
    """The next one would meet the same disk."""

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(collection_run, "fill_with_bar", full)
    assert collect(tmp_path, "--episodes", "1", "--json") == 1
    printed = capsys.readouterr()
    assert len(json.loads(printed.out)["tasks"]) == 1 and "no space is left" in printed.err
    assert [path.name for path in tmp_path.iterdir()] == ["reach-v3"]


def test_stored_episodes_replay(folder, capsys):
    assert replay.main([str(folder / "reach-v3"), "--workers", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["identical"] == 6
    assert replay.main([str(folder / "reach-v3"), "--workers", "0"]) == 0
    out = capsys.readouterr().out
    assert "6 of 6 episodes identical bit for bit" in out and "unknown" not in out


def test_a_policy_is_trained_and_evaluated(folder, tmp_path, capsys):
    datasets = [str(folder / task) for task in TASKS.split(",")]
    options = ["--architecture", "mlp", "--set", "body.layers=2", "--set", "body.width=64"]
    sizes = ["--epochs", "30", "--batch-size", "64"]  # rollouts: of the fleet below
    output = tmp_path / "run"
    arguments = ["--dataset", *datasets, *options, *sizes, "--output", str(output)]
    assert train.main([*arguments, "--quiet"]) == 0
    checkpoint = output / "last.safetensors"
    assert load_checkpoint(checkpoint).blueprint.action.shape == (4,)
    capsys.readouterr()
    command = ["evaluate", "--policy", str(checkpoint), "--scenes", "1", "--workers", "0"]
    assert program.main([*command, "--tasks", TASKS, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["packages"]["mujoco"] == "3.3.0"
    assert "reward: v2" in summary["task_files"]["reach-v3"]
    assert summary["tasks"]["drawer-close-v3"]["successes"] == 1
    # Of another set, the one-hot has another meaning.
    assert program.main([*command, "--tasks", "drawer-close-v3,reach-v3"]) == 2
    assert "entries" in capsys.readouterr().err
    assert program.main([*command, "--tasks", "mt10"]) == 2


def test_a_fleet_is_trained_and_merged(folder, tmp_path, capsys):
    config = {
        "data": [str(folder / task) for task in TASKS.split(",")],
        "policy": {"body": {"type": "elman", "layers": 1, "width": 16}},
        "method": "least_squares",
        "options": {"alignment": "activations"},
        "robots": 2,
        "split": {"by": "task", "alpha": 1.0},
        "training": {"epochs": 2},
        "rollouts": 1,
    }
    path = tmp_path / "fleet.yaml"
    path.write_text(json.dumps(config))
    assert fleet.main([str(path), "--output", str(tmp_path / "out"), "--workers", "0"]) == 0
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert set(report["rollouts"]) == set(TASKS.split(","))
    assert "merged policy, reach-v3" in capsys.readouterr().out


@pytest.mark.slow  # a fleet and its rollouts: above
def test_policies_of_a_task_are_evaluated_in_their_own_alone(folder, tmp_path, capsys):
    config = {
        "data": [str(folder / task) for task in TASKS.split(",")],
        "policy": {"body": {"type": "mlp", "layers": 1, "width": 8}},
        "method": "naive_average",
        "rollouts": 1,
        "training": {"epochs": 1, "batch_size": 256},
    }
    path, output = tmp_path / "fleet.json", tmp_path / "out"
    path.write_text(json.dumps(config))
    options = ["--reference", "task_specific", "--output", str(output), "--workers", "0", "--json"]
    assert fleet.main([str(path), *options]) == 0
    report = json.loads(capsys.readouterr().out)
    tried = {task: robot["robot"] for robot in report["robots"] for task in robot["rollouts"]}
    assert tried.keys() == set(TASKS.split(",")) and set(tried.values()) == {0, 1}
    assert all(len(robot["rollouts"]) == 1 for robot in report["robots"])
    assert {task: len(rows) for task, rows in scene_successes(report, "task_specific").items()} == {
        task: 1 for task in TASKS.split(",")
    }


def test_the_expert_is_evaluated_and_failures_are_counted(capsys):
    command = ["evaluate", "--scenes", "1", "--workers", "0", "--tasks", "reach-v3"]
    assert program.main([*command, "--policy", EXPERT]) == 0
    assert "1 of    1: 100.0%" in capsys.readouterr().out
    assert program.main([*command, "--policy", f"{__name__}:broken"]) == 1
    assert "1 errors" in capsys.readouterr().out


@needs_gl
def test_a_video_shows_the_expert(tmp_path, capsys):
    av = pytest.importorskip("av")
    path = tmp_path / "reach.mp4"
    assert program.main(["view", "--task", "reach-v3", "--output", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outcomes"] == ["success"]
    with av.open(str(path)) as video:
        frames = [frame.to_ndarray(format="rgb24") for frame in video.decode(video=0)]
        rate = float(video.streams.video[0].average_rate)
    assert rate == 20 and 5 < len(frames) < 40 and frames[0].shape == (480, 640, 3)


def broken(env: object) -> "Broken":
    """Returns a policy that acts with NaN."""
    return Broken()


class Broken:
    """Acts with NaN."""

    def reset(self) -> None:
        """Does nothing."""

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns NaN."""
        return np.full(4, np.nan)


def test_sets_of_tasks_and_arenas_do_not_mix(folder, tmp_path):
    assert program.main(
        ["collect", "--tasks", "reach-v3", "--episodes", "1", "--workers", "0", "--quiet",
         "--output", str(tmp_path)]
    ) == 0  # fmt: skip
    with pytest.raises(DatasetError, match="does not fit"):
        Samples([folder / "reach-v3", tmp_path / "reach-v3"])
    with pytest.raises(ConfigError, match="tool-use environments"):
        dataset_source(folder / "reach-v3", 0, 1, "rgb_array")


@needs_gl
def test_programs_with_pictures_of_tools_refuse_it(folder, tmp_path, capsys):
    data = str(folder / "reach-v3")
    assert view.main(["--dataset", data, "--output", str(tmp_path / "video.mp4")]) == 2
    assert "tool-use environments" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_task_of_another_version_is_not_made(folder):
    header = Dataset(folder / "reach-v3").header
    older = header.task.model_copy(
        update={"content_digest": "0", "text": header.task.text.replace("3.1.1", "2.0.0")}
    )
    with pytest.raises(DatasetError, match=r"(?s)2\.0\.0.*3\.1\.1"):
        header.model_copy(update={"task": older}).make_env()


@pytest.mark.parametrize(
    "options",
    [
        ["--tasks", "mt11"],
        ["--tasks", "mt10", "--only", "basketball-v3"],
        ["--tasks", "mt10", "--policy", "expert"],
    ],
)
def test_bad_usage_is_refused_before_anything_is_stored(options, tmp_path, capsys):
    command = ["collect", "--episodes", "1", "--output", str(tmp_path / "new"), *options]
    assert program.main(command) == 2
    assert capsys.readouterr().err and not (tmp_path / "new").exists()


def test_absent_meta_world_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "metaworld", None)
    assert collect(tmp_path / "new", "--episodes", "1") == 2
    assert "[metaworld]" in capsys.readouterr().err and not (tmp_path / "new").exists()
