"""The program that collects, without workers; test_collect_workers.py has them."""

import json
import os
import signal
import termios

import pytest
from support.collected import (
    EPISODES,
    ONE_PAIR,
    interrupted_at_each_attempt,
    lines_of,
    options,
    running,
    wait_until,
    without_times,
)

from fleet_tools import collect
from fleet_tools.dataset import Dataset

# --- The dataset ----------------------------------------------------------------------------


def test_other_options_leave_the_folder_as_it_was(uninterrupted, capsys):
    before = without_times(uninterrupted)
    for more in (["--seed", "1"], ["--keep-failures"]):
        assert collect.main(options(uninterrupted, *more)) == 2
        message = capsys.readouterr().err
        assert "already holds a dataset with other options" in message
        assert "Traceback" not in message
    assert without_times(uninterrupted) == before


def test_gives_up_and_reports_why(tmp_path, capsys):
    policy = "support.collected:InfeasiblePolicy"
    more = ["--policy", policy, "--keep-failures", *ONE_PAIR]
    assert collect.main(options(tmp_path, *more, episodes=1)) == 1
    out, err = capsys.readouterr()
    assert "0 of 20 attempts succeeded: 0.0%" in out
    assert "20 ended as policy_error, such as attempt 0" in out
    assert "point_to_point(head, head): 0.12 m" in out
    assert "Gave up after 20 attempts" in err
    dataset = Dataset(tmp_path)
    assert len(dataset) == len(dataset.manifest()) == 20
    assert {episode.outcome for episode in dataset} == {"policy_error"}


# --- Interruptions --------------------------------------------------------------------------


@pytest.mark.slow  # in any order of attempts: tests/dataset/test_attempts.py
def test_killed_it_keeps_finished_episodes_and_resumes(uninterrupted, tmp_path):
    terminal, stderr = os.openpty()
    termios.tcsetwinsize(stderr, (24, 100))
    with running(*options(tmp_path), stderr=stderr) as process:
        wait_until(lambda: lines_of(tmp_path) >= 1, process)
        os.kill(process.pid, signal.SIGKILL)
    assert b"episode/s" in os.read(terminal, 4096)  # the progress bar
    os.close(stderr)
    os.close(terminal)
    assert 1 <= len(Dataset(tmp_path).manifest()) < EPISODES
    assert collect.main(options(tmp_path, "--quiet")) == 0
    assert without_times(tmp_path) == without_times(uninterrupted)


def test_ctrl_c_waits_for_the_episode_in_progress_and_more_may_be_asked_for_afterwards(
    uninterrupted, tmp_path, capsys, monkeypatch
):
    with interrupted_at_each_attempt(monkeypatch):
        assert collect.main(options(tmp_path, episodes=2)) == 130
    out, err = capsys.readouterr()
    assert "1 of 1 attempts succeeded" in out
    assert "The same command resumes it" in err
    assert collect.main(options(tmp_path, "--quiet", "--json")) == 0
    assert json.loads(capsys.readouterr().out)["attempts_now"] == EPISODES - 1
    assert without_times(tmp_path) == without_times(uninterrupted)


# --- The command line -----------------------------------------------------------------------


def test_json_is_one_object_and_nothing_else(tmp_path, capfd):
    assert collect.main(options(tmp_path, "--json", episodes=1)) == 0
    summary = json.loads(capfd.readouterr().out)
    assert summary["successes"] == 1 <= summary["attempts"]
    assert summary["complete"]
    assert summary["output"] == str(tmp_path)
    assert summary["bytes"] == sum(p.stat().st_size for p in tmp_path.rglob("*") if p.is_file())


def test_keyword_arguments_of_the_environment_are_passed_on(tmp_path):
    env_kwargs = ["--env", "tool=claw", 'randomization={"object_pose": false}']
    assert collect.main(options(tmp_path / "claw", "--quiet", *env_kwargs, episodes=1)) == 0
    dataset = Dataset(tmp_path / "claw")
    assert dataset.header.env_spec.kwargs["randomization"] == {"object_pose": False}
    assert dataset.stored()[0].tool == "claw"
