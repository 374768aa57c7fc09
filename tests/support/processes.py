"""The checkout, and code run in processes of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fleet_tools

ROOT = Path(fleet_tools.__file__).resolve().parents[1]
"""Root of the checkout."""


def run_python(code: str, *arguments: str, **variables: str) -> Any:
    """Runs code in a new process, and returns the JSON that it prints in its last line.

    Args:
        code: The code.
        arguments: Its command line.
        variables: Environment variables in addition to the present ones.
    """
    return _printed([sys.executable, "-c", code, *arguments], variables)


def run_program(path: str, *arguments: str) -> Any:
    """Runs a program of the checkout in a new process, and returns the JSON that it prints last."""
    return _printed([sys.executable, path, *arguments], {})


@contextmanager
def running_process(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    stderr: int = subprocess.PIPE,
) -> Iterator[subprocess.Popen[str]]:
    """Runs a command in the checkout, in its own process group, and ends it with the context.

    Args:
        command: The command.
        environment: Its environment; the present one by default.
        stderr: Where its messages go.
    """
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _printed(command: list[str], variables: dict[str, str]) -> Any:
    finished = subprocess.run(
        command, cwd=ROOT, env=os.environ | variables, capture_output=True, text=True, timeout=300
    )
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout.splitlines()[-1])
