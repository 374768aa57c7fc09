"""Tests of collection: the program's options, policies, and the comparison of datasets."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import yaml
from support.processes import running_process

from fleet_tools.config.tasks import task_path
from fleet_tools.dataset import AttemptRecord, DatasetWriter
from fleet_tools.errors import InfeasibleError
from fleet_tools.experts.policy import ExpertPolicy

COMMAND = [sys.executable, "-m", "fleet_tools.collect"]
EPISODES = 3
ONE_PAIR = ["--env", "tool=claw", "object=round_nail"]
"""Options of an environment with one pair of models, which is quick to reset."""


def options(folder: Path, *more: str, task: str = "hammer", episodes: int = EPISODES) -> list[str]:
    """Returns the program's arguments, with which it works without workers."""
    output = ["--output", str(folder), "--workers", "0"]
    return ["--task", task, "--episodes", str(episodes), *output, *more]


def running(
    *arguments: str, stderr: int = subprocess.PIPE
) -> AbstractContextManager[subprocess.Popen[str]]:
    """Runs the program in its own process group, and ends it with the context."""
    return running_process([*COMMAND, *arguments], stderr=stderr)


def wait_until(condition: Callable[[], Any], process: subprocess.Popen[str] | None = None) -> None:
    """Waits until a condition is true, as long as a process runs."""
    deadline = time.monotonic() + 120
    while not condition():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextmanager
def interrupted_at_each_attempt(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sends this process Ctrl-C whenever an attempt is about to be stored."""
    add = DatasetWriter.add

    def interrupt_and_add(
        writer: DatasetWriter, record: AttemptRecord, content: bytes | None
    ) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        add(writer, record, content)

    with monkeypatch.context() as patch:
        patch.setattr(DatasetWriter, "add", interrupt_and_add)
        yield


def lines_of(folder: Path) -> int:
    """Returns the number of attempts in a dataset's manifest."""
    manifest = folder / "manifest.jsonl"
    return manifest.read_bytes().count(b"\n") if manifest.exists() else 0


def write_quick_task(folder: Path, success_duration_s: float = 0.33) -> Path:
    """Writes a task in which every policy succeeds after two steps or more; returns its file."""
    task = yaml.safe_load(task_path("hammer").read_text())
    success = {"type": "contact", "between": ["tool", "table"], "present": False}
    task |= {"name": "quick", "success": [success], "success_duration_s": success_duration_s}
    path = folder / "quick.yaml"
    path.write_text(yaml.safe_dump(task))
    return path


class InfeasiblePolicy:
    """A policy that has no plan for any scene."""

    def __init__(self, env: gymnasium.Env) -> None:
        pass

    def reset(self) -> None:
        raise InfeasibleError("No plan.", {"point_to_point(head, head)": "0.12 m"})

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        raise AssertionError("reset has failed")


def expert(env: gymnasium.Env) -> ExpertPolicy:
    """A factory of policies outside the package."""
    return ExpertPolicy(env)


def without_times(folder: Path) -> dict[str, Any]:
    """Returns the content of every file, without wall times and the order of attempts."""

    def content(path: Path) -> Any:
        if path.name != "manifest.jsonl":
            return path.read_bytes()
        lines = map(json.loads, path.read_text().splitlines())
        return {
            line["attempt"]: {k: v for k, v in line.items() if k not in ("seconds", "info")}
            for line in lines
        }

    return {
        str(path.relative_to(folder)): content(path) for path in folder.rglob("*") if path.is_file()
    }
