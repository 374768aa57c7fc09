"""Datasets observed in another mode are those that a collection in that mode makes."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.collected import (
    ONE_PAIR,
    interrupted_at_each_attempt,
    options,
    without_times,
    write_quick_task,
)
from support.damage import relist
from support.folders import contents

from fleet_tools import collect
from fleet_tools.dataset import Dataset, episode_file
from fleet_tools.dataset.__main__ import main

HERE = ("--quiet", "--workers", "0")
CLOUD = ("--obs-mode", "cloud_and_keypoints")
SEEN = ("cloud_size=[6,5]", "camera_size=[64,48]", "sensors=active_stereo")


def observe(source: Path, output: Path, *more: str) -> int:
    return main(["observe", str(source), "--output", str(output), *more, *HERE])


def labels(folder: Path) -> list[Any]:
    names = ("noise_steps", "learner_steps", "expert_actions")
    return [[record.info.get(name) for name in names] for record in Dataset(folder).manifest()]


@pytest.fixture(name="noisy", scope="module")
def _noisy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two episodes of the expert with noise, in the mode `state`."""
    folder = tmp_path_factory.mktemp("noisy") / "state"
    given = ["--quiet", "--policy", "noisy_expert", *ONE_PAIR]
    assert collect.main(options(folder, *given, episodes=2)) == 0
    return folder


@pytest.fixture(name="quick")
def _quick(tmp_path: Path) -> Path:
    """Three attempts of two steps or more in a user's task, whose file is gone."""
    task = write_quick_task(tmp_path)
    folder = tmp_path / "quick"
    given = ["--quiet", "--policy", "random", "--keep-failures", *ONE_PAIR]
    assert collect.main(options(folder, *given, task=str(task), episodes=3)) == 0
    task.unlink()
    return folder


def test_it_is_the_dataset_that_a_collection_in_that_mode_makes(noisy, tmp_path):
    before = contents(noisy)
    seen, collected = tmp_path / "seen", tmp_path / "collected"
    assert observe(noisy, seen, *CLOUD, "--env", *SEEN) == 0
    given = ["--quiet", "--policy", "noisy_expert", *CLOUD, *ONE_PAIR, *SEEN]
    assert collect.main(options(collected, *given, episodes=2)) == 0
    both = [without_times(folder) for folder in (seen, collected)]
    first, second = (json.loads(each.pop("dataset.json")) for each in both)
    assert first == second
    assert both[0] == both[1]
    assert labels(seen) == labels(collected) == labels(noisy)
    assert labels(noisy)[0][0]
    assert contents(noisy) == before


def test_there_and_back_is_the_same_dataset(quick, tmp_path):
    rows = ("--obs-mode", "multitask_state", "--env", "keypoint_rows=9")
    assert observe(quick, tmp_path / "there", *rows) == 0
    there = Dataset(tmp_path / "there")
    assert {episode.observations["tool_keypoints"].shape[1] for episode in there} == {9}
    assert observe(tmp_path / "there", tmp_path / "back", "--obs-mode", "state") == 0
    back, source = (without_times(folder) for folder in (tmp_path / "back", quick))
    headers = [json.loads(each.pop("dataset.json")) for each in (back, source)]
    assert back == source
    assert headers[0]["observation"] == headers[1]["observation"]
    assert headers[0]["models"] == headers[1]["models"]


def test_interrupted_it_is_completed_by_the_same_command(quick, tmp_path, monkeypatch, capsys):
    state = ("--obs-mode", "multitask_state")
    assert observe(quick, tmp_path / "whole", *state) == 0
    with interrupted_at_each_attempt(monkeypatch):
        assert observe(quick, tmp_path / "cut", *state) == 130
    assert len(Dataset(tmp_path / "cut").manifest()) == 1
    assert "The same command resumes it" in capsys.readouterr().err
    assert observe(quick, tmp_path / "cut", *state) == 0
    assert without_times(tmp_path / "cut") == without_times(tmp_path / "whole")


def test_attempts_without_an_episode_are_copied_after_the_last_success_too(quick, tmp_path):
    last = Dataset(quick).manifest()[-1]
    lost = last.model_copy(
        update={
            "attempt": last.attempt + 1,
            "outcome": "worker_error",
            "success": False,
            "file": None,
            "file_digest": None,
        }
    )
    with (quick / "manifest.jsonl").open("a") as manifest:
        manifest.write(f"{lost.model_dump_json()}\n")
    assert observe(quick, tmp_path / "seen", "--obs-mode", "multitask_state") == 0
    assert Dataset(tmp_path / "seen").manifest()[-1] == lost


@pytest.mark.parametrize("what", ["digests", "actions", "success"])
def test_an_episode_that_takes_another_course_is_recorded_and_not_stored(what, quick, tmp_path):
    dataset = Dataset(quick)
    record = dataset.stored()[1]
    episode, path = dataset.episode(record.attempt), dataset.path(record)
    rows = getattr(episode, what).copy()
    rows[0] = ~rows[0] if what == "success" else (0.5 if what == "actions" else rows[0] + 1)
    path.write_bytes(episode_file.to_bytes(replace(episode, **{what: rows}), record.attempt))
    relist(quick)
    assert observe(quick, tmp_path / "seen", "--obs-mode", "multitask_state") == 1
    seen = {each.attempt: each for each in Dataset(tmp_path / "seen").manifest()}
    refused = seen.pop(record.attempt)
    assert (refused.outcome, refused.success, refused.file) == ("not_reproducible", False, None)
    assert "run again, it differs from step" in str(refused.error)
    assert not (tmp_path / "seen" / str(record.file)).exists()
    assert all(each.success and each.file for each in seen.values())


def test_a_damaged_episode_ends_it(quick, tmp_path, capsys):
    path = Dataset(quick).path(Dataset(quick).stored()[0])
    content = np.frombuffer(path.read_bytes(), np.uint8).copy()
    content[len(content) // 2] ^= 1
    path.write_bytes(content.tobytes())
    assert observe(quick, tmp_path / "seen", "--obs-mode", "multitask_state") == 2
    assert "its digest is" in capsys.readouterr().err
    assert not Dataset(tmp_path / "seen").manifest()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--env", "split=unseen_tools"], "'split'"),
        (["--env", "tool=ball_pein"], "'tool'"),
        (["--env", "keypoint_rows=0"], "keypoint_rows"),
    ],
)
def test_nothing_but_the_observation_can_change(more, message, quick, tmp_path, capsys):
    assert observe(quick, tmp_path / "seen", "--obs-mode", "multitask_state", *more) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "seen").exists()


def test_episodes_of_other_versions_are_refused(quick, tmp_path, capsys):
    path = quick / "dataset.json"
    header = json.loads(path.read_text())
    header["packages"]["drake"] = "1.0.0"
    path.write_text(json.dumps(header))
    assert observe(quick, tmp_path / "seen", "--obs-mode", "multitask_state") == 2
    assert "1.0.0" in capsys.readouterr().err
    assert not (tmp_path / "seen").exists()


def test_another_dataset_in_the_folder_stays(noisy, quick, tmp_path, capsys):
    before = contents(noisy)
    assert observe(quick, noisy, "--obs-mode", "multitask_state") == 2
    assert "already holds a dataset" in capsys.readouterr().err
    assert contents(noisy) == before
