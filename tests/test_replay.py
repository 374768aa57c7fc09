"""The program that checks a data set, run for real."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import needs_gl

import fleet_tools
from fleet_tools import collect, replay
from fleet_tools.dataset import Dataset, episode_file
from fleet_tools.utils.resources import task_configs_root

ROOT = Path(fleet_tools.__file__).resolve().parents[1]
HERE = ("--workers", "0")


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "hammer"
    arguments = ["--tool", "hammer", "--episodes", "2", "--output", str(folder), "--quiet", *HERE]
    assert collect.main(arguments) == 0
    return folder


@pytest.fixture(name="altered")
def _altered(folder):
    """Puts an altered episode into the data set, and afterwards the good one back."""
    path = folder / Dataset(folder).stored()[1].file
    good = path.read_bytes()

    def alter(**fields):
        path.write_bytes(episode_file.to_bytes(replace(episode_file.read(path), **fields), 1))

    yield path, alter
    path.write_bytes(good)


def report(capsys):
    return json.loads(capsys.readouterr().out)


def test_good_data_set_is_identical_in_another_process(folder, tmp_path):
    output = tmp_path / "report.jsonl"
    finished = subprocess.run(
        [sys.executable, "-m", "fleet_tools.replay", str(folder), "--json", "--output", output],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr
    summary = json.loads(finished.stdout)
    assert (summary["episodes"], summary["identical"], summary["still_successes"]) == (2, 2, 2)
    assert summary["other_versions"] == {}
    lines = list(map(json.loads, output.read_text().splitlines()))
    assert sorted(line["attempt"] for line in lines) == [0, 1]  # as they ended
    assert all(line["identical"] for line in lines)


@needs_gl
@pytest.mark.parametrize("mode", ["point_cloud", "rgbd"])
def test_what_cameras_saw_is_identical_in_another_process(mode, tmp_path, capsys):
    folder = str(tmp_path / mode)
    arguments = ["--tool", "hammer", "--episodes", "1", "--output", folder, "--obs-mode", mode]
    command = [sys.executable, "-m", "fleet_tools.collect", *arguments, "--quiet", *HERE]
    subprocess.run(command, cwd=ROOT, check=True)
    header = Dataset(Path(folder)).header
    assert ("point_cloud" in header.observation) == (mode == "point_cloud")
    assert ("wrist_depth" in header.observation) == (mode == "rgbd")
    assert replay.main([folder, "--json", *HERE]) == 0
    assert report(capsys)["identical"] == 1


@pytest.mark.parametrize("step", [1, 4])
def test_altered_action_is_found_at_its_step(folder, altered, step, capsys):
    path, alter = altered
    actions = episode_file.read(path).actions
    actions[step - 1, 2] = np.nextafter(actions[step - 1, 2], np.float32(0))
    alter(actions=actions)
    assert replay.main([str(folder), *HERE]) == 1
    out = capsys.readouterr().out
    assert f"episode_000001.hdf5: from step {step} on, digests" in out
    assert "1 of 2 episodes identical" in out


def test_altered_scene_and_outcome_are_found(folder, altered, capsys):
    path, alter = altered
    scene = episode_file.read(path).scene
    alter(outcome="time_limit")
    assert replay.main([str(folder), *HERE]) == 1
    assert ": from step" in capsys.readouterr().out
    joints = (scene.initial_joints_rad[0] + 1e-15, *scene.initial_joints_rad[1:])
    alter(scene=scene.model_copy(update={"initial_joints_rad": joints}), outcome="success")
    assert replay.main([str(folder), *HERE]) == 1
    assert "from step 0 on, digests" in capsys.readouterr().out


def test_truncated_episode_is_named_and_the_others_are_replayed(folder, altered, capsys):
    path, _ = altered
    path.write_bytes(path.read_bytes()[:-1])
    assert replay.main([str(folder), *HERE]) == 1
    out = capsys.readouterr().out
    assert "1 of 2 episodes identical" in out
    assert "episode_000001.hdf5 is damaged" in out
    assert "Copy it here from" in out


def test_some_episodes_are_chosen_by_the_seed(folder, tmp_path):
    def chosen(seed):
        output = tmp_path / "report.jsonl"
        options = ["--episodes", "1", "--seed", str(seed), "--output", str(output), "--quiet"]
        assert replay.main([str(folder), *options, *HERE]) == 0
        return [json.loads(line)["attempt"] for line in output.read_text().splitlines()]

    first, again, other = chosen(0), chosen(0), chosen(1)
    assert first == again != other
    assert len(first) == 1


def test_without_a_data_set_it_exits_with_2(tmp_path, capsys):
    assert replay.main([str(tmp_path), *HERE]) == 2
    message = capsys.readouterr().err
    assert "has no dataset.json" in message
    assert "Traceback" not in message


def test_task_of_ones_own_is_replayed_after_its_file_is_gone(tmp_path, capsys):
    task = tmp_path / "tap.yaml"
    text = (task_configs_root() / "hammer.yaml").read_text()
    task.write_text(text.replace("name: hammer", "name: tap").replace("_steps: 60", "_steps: 2"))
    output = tmp_path / "data"
    arguments = ["--task", str(task), "--output", str(output), "--episodes", "1", "--quiet"]
    assert collect.main([*arguments, "--keep-failures", *HERE]) == 1  # two steps are too few
    task.unlink()
    assert replay.main([str(output), "--json", "--quiet", "--episodes", "2", *HERE]) == 0
    summary = report(capsys)
    assert (summary["identical"], summary["stored_successes"]) == (2, 0)
    assert summary["still_success_share"] is None
    assert Dataset(output).manifest()[0].outcome == "time_limit"
