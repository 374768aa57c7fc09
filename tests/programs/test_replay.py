"""The program that checks a dataset, run for real."""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.collected import ONE_PAIR, options, write_quick_task
from support.damage import rewrite_lines
from support.evaluated import a_result, as_log
from support.processes import run_command

from fleet_tools import collect, evaluate, replay
from fleet_tools.dataset import episode_file
from fleet_tools.dataset.dataset_folder import Dataset
from fleet_tools.dataset.stored_episode import file_digest
from fleet_tools.envs.array_spec import ACTION_STEPS
from fleet_tools.evaluation.result_folder import EvaluationWriter
from fleet_tools.sim.scene import Scene

HERE = ("--workers", "0")


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Episodes of six steps of random motions, which succeed, in a user's task without its file."""
    folder = tmp_path_factory.mktemp("data")
    task, policy = write_quick_task(folder, 1.0), ["--policy", "random", *ONE_PAIR]
    given = options(folder / "data", "--quiet", *policy, task=str(task), episodes=2)
    assert collect.main(given) == 0
    task.unlink()
    return folder / "data"


Altered = tuple[Path, Callable[..., None]]


@pytest.fixture(name="altered")
def _altered(folder: Path) -> Iterator[Altered]:
    """Gives a function that alters a stored episode, and restores the episode at the end."""
    file = Dataset(folder).stored()[1].file
    assert file is not None
    path = folder / file
    manifest = folder / "manifest.jsonl"
    original, listed = path.read_bytes(), manifest.read_bytes()

    def alter(**fields: Any) -> None:
        changed = replace(episode_file.read(path), **fields)
        path.write_bytes(episode_file.to_bytes(changed, 1))
        listing = {"outcome": changed.outcome, "file_digest": file_digest(path)}
        rewrite_lines(manifest, lambda line: line | listing if line["attempt"] == 1 else line)

    yield path, alter
    path.write_bytes(original)
    manifest.write_bytes(listed)


def summary_of(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return json.loads(capsys.readouterr().out)


def rates(summary: dict[str, Any]) -> tuple[float, float, float]:
    """Returns the shares of identical bits, of same outcomes, and of those within a distance."""
    return summary["identical_share"], summary["same_outcome_share"], summary["within_share"]


def test_unchanged_dataset_is_identical_in_another_process(folder, tmp_path):
    output = tmp_path / "report.jsonl"
    options = [str(folder), "--json", "--output", str(output), *HERE]
    finished = run_command(sys.executable, "-m", "fleet_tools.replay", *options)
    assert finished.returncode == 0, finished.stderr
    summary = json.loads(finished.stdout)
    assert (summary["episodes"], summary["identical"], summary["still_successes"]) == (2, 2, 2)
    assert rates(summary) == (1.0, 1.0, 1.0)
    assert (summary["within_m"], summary["largest_distance_m"]) == (0.001, 0.0)
    assert summary["compared_points"] == ["end_effector", "tool_keypoints", "object_keypoints"]
    assert summary["other_versions"] == {}
    lines = list(map(json.loads, output.read_text().splitlines()))
    assert sorted(line["attempt"] for line in lines) == [0, 1]
    assert all(line["identical"] and line["distance_m"] == 0.0 for line in lines)


def test_a_result_is_identical_and_what_was_altered_is_found(tmp_path, capsys):
    task, result = write_quick_task(tmp_path, 1.0), tmp_path / "result"
    given = ["--policy", "random", "--task", str(task), "--split", "train", "--scenes", "2"]
    assert evaluate.main([*given, "--output", str(result), "--quiet", *HERE]) == 0
    capsys.readouterr()
    assert replay.main([str(result), "--json", "--quiet", *HERE]) == 0
    summary = summary_of(capsys)
    assert (summary["episodes"], rates(summary)) == (2, (1.0, 1.0, 1.0))
    assert summary["compared_points"] == ["end_effector", "tool_keypoints", "object_keypoints"]
    as_log(result, lambda lines: lines[1].update(state_digest="0" * 16))
    assert replay.main([str(result), *HERE]) == 1
    out = capsys.readouterr().out
    assert "1 of 2 episodes identical" in out and "train: state_digest: 0000000000000000" in out
    assert replay.main([str(result), "--episodes", "1", "--json", "--quiet", *HERE]) in (0, 1)
    assert summary_of(capsys)["episodes"] == 1


def test_a_result_without_actions_says_how_it_gets_some(tmp_path, capsys):
    EvaluationWriter(tmp_path / "result", a_result()).close()
    assert replay.main([str(tmp_path / "result"), *HERE]) == 2
    assert "no episodes with actions yet" in capsys.readouterr().err


@pytest.mark.parametrize("step", [1, 4])
def test_altered_action_is_found_at_its_step(folder, altered, step, capsys):
    path, alter = altered
    actions = episode_file.read(path).actions
    actions[step - 1, 2] -= np.sign(actions[step - 1, 2]) / ACTION_STEPS
    alter(actions=actions)
    assert replay.main([str(folder), *HERE]) == 1
    out = capsys.readouterr().out
    assert f"episode_000001.hdf5: differs from step {step} on, in digests" in out
    assert "1 of 2 episodes identical" in out
    assert "2 of 2 have the same outcome within 0.001 m" in out


def test_other_bits_of_the_same_motion_have_no_distance(folder, altered, capsys):
    path, alter = altered
    digests = episode_file.read(path).digests
    digests[:-1] ^= np.uint64(1)  # the manifest holds the last one
    alter(digests=digests)
    assert replay.main([str(folder), "--json", "--quiet", "--within", "0", *HERE]) == 1
    summary = summary_of(capsys)
    assert (rates(summary), summary["largest_distance_m"]) == ((0.5, 1.0, 1.0), 0.0)


def test_the_distance_is_how_far_other_actions_lead(folder, altered, tmp_path, capsys):
    path, alter = altered
    actions = episode_file.read(path).actions
    actions[:3, 0] = np.where(actions[:3, 0] < 0, 1, -1)
    alter(actions=actions)
    output = tmp_path / "report.jsonl"
    options = [str(folder), "--json", "--quiet", "--output", str(output), *HERE]
    assert replay.main(options) == 1
    summary = summary_of(capsys)
    lines = {line["attempt"]: line for line in map(json.loads, output.read_text().splitlines())}
    farthest = summary["largest_distance_m"]
    assert (lines[0]["distance_m"], lines[1]["distance_m"]) == (0.0, farthest)
    assert 0.005 < farthest < 1.0  # of three steps, each of at most some centimetres
    same = lines[1]["outcome"] == lines[1]["stored_outcome"]
    assert rates(summary) == (0.5, 1.0 if same else 0.5, 0.5)
    assert replay.main([*options, "--within", str(farthest)]) == 1
    assert rates(summary_of(capsys)) == (0.5, *[1.0 if same else 0.5] * 2)


def test_altered_scene_and_outcome_are_found(folder, altered, capsys):
    path, alter = altered
    scene = episode_file.read(path).scene
    assert isinstance(scene, Scene)
    alter(outcome="time_limit")
    assert replay.main([str(folder), *HERE]) == 1
    out = capsys.readouterr().out
    assert ", in outcome; distance 0 m; outcome success, stored as " in out
    joints = (scene.initial_joints_rad[0] + 1e-15, *scene.initial_joints_rad[1:])
    alter(scene=scene.model_copy(update={"initial_joints_rad": joints}), outcome="success")
    assert replay.main([str(folder), *HERE]) == 1
    assert "differs from step 0 on, in digests" in capsys.readouterr().out


def test_the_seed_selects_the_episodes_and_failures_have_no_share(folder, altered, capsys):
    dataset = Dataset(folder)
    seed = next(k for k in range(99) if dataset.draw(1, k)[0].attempt == 1)
    altered[1](outcome="time_limit")
    more = ["--episodes", "1", "--seed", str(seed), "--json", "--quiet"]
    assert replay.main([str(folder), *more, *HERE]) == 1
    summary = summary_of(capsys)
    assert (summary["episodes"], summary["identical"], summary["stored_successes"]) == (1, 0, 0)
    assert summary["still_success_share"] is None


def test_truncated_episode_is_named_and_the_others_are_replayed(folder, altered, capsys):
    path, _ = altered
    path.write_bytes(path.read_bytes()[:-1])
    assert replay.main([str(folder), *HERE]) == 1
    out = capsys.readouterr().out
    assert "1 of 2 episodes identical" in out
    assert "1 of 2 have the same outcome within 0.001 m (50.0%); the largest distance is 0 m" in out
    assert "episode_000001.hdf5 is damaged" in out
    assert "Copy it here from" in out
