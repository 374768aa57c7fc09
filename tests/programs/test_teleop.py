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
from support.processes import running_process
from support.small_disks import SmallDisk
from support.teleoperated import end_and_save, wait_for_phase

from fleet_tools import replay, teleop
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
    assert "already holds a dataset with other options" in capsys.readouterr().err
    assert sorted(uninterrupted.rglob("*")) == before
