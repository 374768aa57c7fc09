"""The program that collects, run for real."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fleet_tools
from fleet_tools import collect
from fleet_tools.dataset import Dataset
from fleet_tools.dataset.writer import DatasetWriter
from fleet_tools.episode import first_difference
from fleet_tools.errors import InfeasibleError, SimulationError, UnknownNameError

ROOT = Path(fleet_tools.__file__).resolve().parents[1]
COMMAND = [sys.executable, "-m", "fleet_tools.collect"]
EPISODES = 4


def options(folder, *more, episodes=EPISODES):
    return ["--tool", "hammer", "--episodes", str(episodes), "--output", str(folder), *more]


def begin(*arguments):
    """Starts the program in a process group of its own."""
    return subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for_lines(folder, process, count):
    deadline = time.monotonic() + 60
    manifest = folder / "manifest.jsonl"
    while not (manifest.exists() and manifest.read_bytes().count(b"\n") >= count):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def timeless(folder):
    """Every file's content, apart from how long it took."""

    def content(path):
        if path.name != "manifest.jsonl":
            return path.read_bytes()
        lines = map(json.loads, path.read_text().splitlines())
        return [{k: v for k, v in line.items() if k not in ("seconds", "info")} for line in lines]

    return {
        str(path.relative_to(folder)): content(path) for path in folder.rglob("*") if path.is_file()
    }


@pytest.fixture(scope="module", name="uninterrupted")
def _uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted") / "hammer"
    assert collect.main(options(folder, "--quiet")) == 0
    return folder


# --- The parts ------------------------------------------------------------------------------


SEEDS = st.integers(0, 2**32)


@given(SEEDS, SEEDS, st.integers(0, 10**6), st.integers(0, 10**6))
def test_attempts_of_all_data_sets_have_scenes_of_their_own(seed, other_seed, k, other_k):
    drawn = collect.scene_seed(seed, k)
    assert drawn == collect.scene_seed(seed, k) < 2**53
    if (seed, k) != (other_seed, other_k):
        assert drawn != collect.scene_seed(other_seed, other_k)


def test_neighbouring_data_sets_share_no_scene():
    seeds = {collect.scene_seed(seed, k) for seed in range(20) for k in range(500)}
    assert len(seeds) == 20 * 500


def test_one_episode_without_any_program(uninterrupted):
    stored = Dataset(uninterrupted).episode(1)
    alone = collect.collect_episode("hammer", collect.scene_seed(0, 1))
    assert first_difference(stored, alone) is None
    assert alone.succeeded


def test_unknown_policy_is_named():
    with pytest.raises(UnknownNameError, match="did you mean 'expert'"):
        collect.collect_episode("hammer", 0, policy="exprt")


# --- The data set ---------------------------------------------------------------------------


def test_same_seed_same_bytes(uninterrupted, tmp_path):
    assert collect.main(options(tmp_path, "--quiet")) == 0
    assert timeless(tmp_path) == timeless(uninterrupted)


def test_killed_at_work_and_resumed_it_is_the_same(uninterrupted, tmp_path):
    folder = tmp_path / "hammer"
    for lines in (1, 2):
        process = begin(*options(folder))
        wait_for_lines(folder, process, lines)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert lines <= len(Dataset(folder).manifest()) < EPISODES
    finished = subprocess.run([*COMMAND, *options(folder)], cwd=ROOT, capture_output=True)
    assert finished.returncode == 0, finished.stderr
    assert timeless(folder) == timeless(uninterrupted)


def test_interrupted_it_says_how_to_go_on(uninterrupted, tmp_path):
    process = begin(*options(tmp_path))
    wait_for_lines(tmp_path, process, 1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "The same command goes on" in err
    assert "Traceback" not in err
    assert "attempts succeeded" in out
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
    assert not list(tmp_path.rglob("*.aside"))
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


class _Reluctant:
    """Has no plan for any scene."""

    def __init__(self, env):
        pass

    def reset(self):
        raise InfeasibleError("No plan.", {"point_to_point(head, head)": "0.12 m"})

    def act(self, observation):
        raise AssertionError("reset has failed")


def test_gives_up_and_says_why(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(collect.POLICIES, "reluctant", _Reluctant)
    arguments = options(tmp_path, "--policy", "reluctant", "--keep-failures", episodes=1)
    assert collect.main(arguments) == 1
    out, err = capsys.readouterr()
    assert "0 of 20 attempts succeeded: 0.0%" in out
    assert "20 ended as policy_error, such as attempt 0" in out
    assert "point_to_point(head, head): 0.12 m" in out
    assert "Gave up after 20 attempts" in err
    dataset = Dataset(tmp_path)
    assert len(dataset) == len(dataset.manifest()) == 20
    assert {episode.outcome for episode in dataset} == {"policy_error"}


def test_scene_that_cannot_begin_is_an_attempt_that_failed(uninterrupted, tmp_path):
    header = Dataset(uninterrupted).header

    def fails(seed):
        raise SimulationError("The solver failed.")

    with DatasetWriter(tmp_path, header) as writer:
        collect.fill(writer, fails, 1)
    records = Dataset(tmp_path).manifest()
    assert {(r.outcome, r.steps, r.file, r.error) for r in records} == {
        ("simulation_error", 0, None, "The solver failed.")
    }


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
    ],
)
def test_bad_usage_exits_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as exit:
        collect.main(arguments)
    assert exit.value.code == 2
    assert "usage:" in capsys.readouterr().err


@pytest.mark.parametrize("program", ["collect", "doctor", "replay", "view"])
def test_help_answers_before_anything_heavy_is_imported(program):
    code = f"""
import sys
from fleet_tools import {program}
try:
    {program}.main(["--help"])
except SystemExit as exit:
    assert exit.code == 0
heavy = {{"pydrake", "h5py", "pydantic", "scipy", "tqdm", "trimesh"}} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)
