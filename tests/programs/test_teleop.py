"""The program for teleoperation: addresses, exit codes, JSON, resumption after a crash."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.chromium import open_page
from support.processes import run_python, running_process
from support.refusals import exit_code
from support.small_disks import SmallDisk
from support.teleoperated import end_and_save, wait_for_phase

from fleet_tools import collect, replay, teleop
from fleet_tools.dataset import Dataset
from fleet_tools.dataset.samples import Samples

PAIR = ["--env", "tool=claw", "object=round_nail"]


@contextlib.contextmanager
def started(folder: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Starts the program; yields its process, and the address that it prints."""
    command = [sys.executable, "-m", "fleet_tools.teleop", "--tool", "hammer", "--port", "0"]
    with running_process([*command, "--output", str(folder), "--json", *PAIR, *more]) as process:
        assert process.stderr is not None
        said = ""
        while (address := re.search(r"http://127\.0\.0\.1:\d+/\S+/", said)) is None:
            line = process.stderr.readline()
            assert line, said
            said += line
        yield process, address.group()


@pytest.mark.slow  # starts the program twice
def test_what_is_saved_survives_a_crash_and_the_same_command_resumes(tmp_path):
    pytest.importorskip("viser", reason="the extra `browser` is not installed")
    folder, ended = tmp_path / "by_hand", []
    for attempt, ending in enumerate([signal.SIGKILL, signal.SIGTERM]):
        with started(folder) as (process, url), open_page(url, width=600, height=400) as page:
            wait_for_phase(page, "Move to begin")
            page.get_by_text(f"attempt {attempt}:").wait_for()
            page.keyboard.down("KeyE")
            wait_for_phase(page, "Running")
            page.keyboard.up("KeyE")
            end_and_save(page)
            page.get_by_text(f"attempt {attempt + 1}:").wait_for()
            page.keyboard.press("KeyD")  # another one is in progress
            os.kill(process.pid, ending)
            ended.append((process, *process.communicate(timeout=60)))
    process, out, err = ended[-1]
    assert process.returncode == 0, err
    summary = json.loads(out)
    assert (summary["attempts"], summary["attempts_now"], summary["successes"]) == (2, 1, 0)
    assert "Traceback" not in err
    assert [record.attempt for record in Dataset(folder).stored()] == [0, 1]
    assert replay.main([str(folder), "--workers", "0", "--quiet"]) == 0
    samples = Samples(folder, failures=True)
    assert len(samples) == sum(record.steps for record in Dataset(folder).stored())


@pytest.mark.slow  # starts the program
def test_what_does_not_fit_on_the_disk_waits_for_room(disk):
    pytest.importorskip("viser", reason="the extra `browser` is not installed")
    if not isinstance(disk, SmallDisk):
        pytest.skip("no file system may be mounted, and a limit would be of this process")
    with (
        started(disk.folder / "by_hand") as (process, url),
        open_page(url, width=600, height=400) as page,
    ):
        wait_for_phase(page, "Move to begin")
        page.keyboard.press("KeyE")
        wait_for_phase(page, "Running")
        with disk.room(0):
            end_and_save(page)
            wait_for_phase(page, "Not saved")
        page.keyboard.press("Enter")
        page.get_by_text("attempt 1:").wait_for()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert "no space is left" in err
        assert list(Dataset(disk.folder / "by_hand").stored())
        assert Dataset(disk.folder / "by_hand").manifest()[0].steps > 0


def test_a_dataset_of_another_policy_is_left_alone(uninterrupted, capsys):
    before = sorted(uninterrupted.rglob("*"))
    arguments = ["--tool", "hammer", "--output", str(uninterrupted), "--port", "0"]
    assert teleop.main(arguments) == 2
    assert "already holds a dataset, but another one" in capsys.readouterr().err
    assert sorted(uninterrupted.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tool", "hamer"], "Did you mean 'hammer'?"),
        (["--tool", "hammer", "--env", "tol=claw"], "Did you mean 'tool'?"),
        (["--tool", "hammer", "--env", "task=knife"], "Give --tool or --task"),
        (["--tool", "hammer", "--obs-mode", "stat"], "Did you mean 'state'?"),
    ],
)
def test_what_cannot_begin_exits_with_2(arguments, message, tmp_path, capsys):
    assert exit_code(teleop.main)([*arguments, "--output", str(tmp_path / "none")]) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert "Traceback" not in err
    assert out == ""
    assert not (tmp_path / "none").exists()


def test_a_space_mouse_without_its_library_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspacemouse", None)
    arguments = ["--tool", "hammer", "--spacemouse", "--port", "0", "--output", str(tmp_path)]
    assert teleop.main(arguments) == 2
    assert "[spacemouse]" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [[], ["--tool", "hammer", "--port", "65536"], ["--tool", "hammer", "--episodes", "0"]],
)
def test_bad_usage_exits_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        teleop.main(arguments)
    assert stopped.value.code == 2
    assert "python -m fleet_tools.teleop --help" in capsys.readouterr().err


def test_collections_do_not_know_the_person(capsys):
    arguments = ["--tool", "hammer", "--episodes", "1", "--policy", "teleoperation"]
    assert collect.main(arguments) == 2
    assert "Unknown policy" in capsys.readouterr().err


def test_help_imports_nothing_heavy():
    code = """
import contextlib, io, json, sys
from fleet_tools import teleop
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    teleop.main(["--help"])
heavy = ("pydrake", "h5py", "ray", "scipy", "torch", "trimesh", "viser", "websockets")
print(json.dumps([each for each in heavy if each in sys.modules]))
"""
    assert run_python(code) == []
