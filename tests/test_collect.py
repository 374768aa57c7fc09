"""The program that collects, without workers; test_collect_workers.py has them."""

import json
import subprocess
import sys

import pytest
from collected import COMMAND, EPISODES, ROOT, options, timeless

from fleet_tools import collect
from fleet_tools.dataset import Dataset

# --- The data set ---------------------------------------------------------------------------


def test_same_seed_same_bytes(uninterrupted, tmp_path):
    assert collect.main(options(tmp_path, "--quiet")) == 0
    assert timeless(tmp_path) == timeless(uninterrupted)


def test_full_disk_loses_nothing_that_was_finished(uninterrupted, tmp_path):
    limited = (  # a file that may not grow stands for a disk that is full
        "import resource, sys; from fleet_tools import collect; "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192)); "
        "sys.exit(collect.main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", limited, *options(tmp_path)]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert finished.returncode == 1
    assert "File too large. The same command goes on" in finished.stderr
    assert not list(tmp_path.rglob("*.aside*"))
    assert len(Dataset(tmp_path)) == 0
    assert collect.main(options(tmp_path, "--quiet")) == 0
    assert timeless(tmp_path) == timeless(uninterrupted)


def test_more_episodes_are_added_to_what_is_there(uninterrupted, tmp_path, capsys):
    for episodes in (2, EPISODES):
        assert collect.main(options(tmp_path, "--quiet", "--json", episodes=episodes)) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["attempts_now"] == EPISODES - 2
    assert timeless(tmp_path) == timeless(uninterrupted)


def test_other_options_leave_the_folder_as_it_was(uninterrupted, capsys):
    before = timeless(uninterrupted)
    for more in (["--seed", "1"], ["--keep-failures"]):
        assert collect.main(options(uninterrupted, *more)) == 2
        message = capsys.readouterr().err
        assert "already holds another data set" in message
        assert "Traceback" not in message
    assert timeless(uninterrupted) == before


def test_gives_up_and_says_why(tmp_path, capsys):
    policy = "collected:Reluctant"
    arguments = options(tmp_path, "--policy", policy, "--keep-failures", episodes=1)
    assert collect.main(arguments) == 1
    out, err = capsys.readouterr()
    assert "0 of 20 attempts succeeded: 0.0%" in out
    assert "20 ended as policy_error, such as attempt 0" in out
    assert "point_to_point(head, head): 0.12 m" in out
    assert "Gave up after 20 attempts" in err
    dataset = Dataset(tmp_path)
    assert len(dataset) == len(dataset.manifest()) == 20
    assert {episode.outcome for episode in dataset} == {"policy_error"}


# --- The command line -----------------------------------------------------------------------


def test_json_is_one_object_and_nothing_else(tmp_path):
    finished = subprocess.run(
        [*COMMAND, *options(tmp_path, "--json", episodes=1)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    summary = json.loads(finished.stdout)
    assert finished.returncode == 0
    assert summary["successes"] == 1 <= summary["attempts"]
    assert summary["complete"]
    assert summary["output"] == str(tmp_path)
    assert summary["bytes"] == sum(p.stat().st_size for p in tmp_path.rglob("*") if p.is_file())
    assert "episode/s" in finished.stderr  # the progress bar


def test_keywords_of_the_environment_are_passed_on(tmp_path, capsys):
    keywords = ["--env", "tool=claw", 'randomization={"object_pose": false}']
    assert collect.main(options(tmp_path / "claw", "--quiet", *keywords, episodes=1)) == 0
    dataset = Dataset(tmp_path / "claw")
    assert dataset.header.environment.kwargs["randomization"] == {"object_pose": False}
    assert dataset.stored()[0].tool == "claw"
    assert collect.main(options(tmp_path / "none", "--env", "tol=claw")) == 2
    assert "did you mean 'tool'?" in capsys.readouterr().err
    assert collect.main(options(tmp_path / "none", "--env", "task=knife")) == 2
    assert "--tool or --task does" in capsys.readouterr().err


def test_unknown_tool_names_the_nearest(tmp_path):
    finished = subprocess.run(
        [*COMMAND, "--tool", "hamer", "--episodes", "1", "--output", str(tmp_path / "none")],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 2
    assert "did you mean 'hammer'?" in finished.stderr
    assert "Traceback" not in finished.stderr
    assert finished.stdout == ""
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--episodes", "1"],
        ["--tool", "hammer", "--task", "hammer", "--episodes", "1"],
        ["--tool", "hammer", "--episodes", "0"],
        ["--tool", "hammer", "--episodes", "some"],
        ["--tool", "hammer", "--episodes", "1", "--seed", "-1"],
        ["--tool", "hammer"],
        ["--tool", "hammer", "--episodes", "1", "--workers", "-1"],
        ["--tool", "hammer", "--episodes", "1", "--env", "split"],
        ["--tool", "hammer", "--episodes", "1", "--timeout", "0"],
        ["--tool", "hammer", "--episodes", "1", "--timeout", "nan"],
    ],
)
def test_bad_usage_exits_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as exit:
        collect.main(arguments)
    assert exit.value.code == 2
    assert "usage:" in capsys.readouterr().err


@pytest.mark.parametrize("program", ["collect", "doctor", "evaluate", "replay", "view"])
def test_help_answers_before_anything_heavy_is_imported(program):
    code = f"""
import sys
from fleet_tools import {program}
try:
    {program}.main(["--help"])
except SystemExit as exit:
    assert exit.code == 0
heavy = {{"pydrake", "h5py", "pydantic", "ray", "scipy", "tqdm", "trimesh"}} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)
