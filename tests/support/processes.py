"""The checkout, and code run in processes of its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import fleet_tools

ROOT = Path(fleet_tools.__file__).resolve().parents[1]
"""Root of the checkout."""


def run_python(code: str, *arguments: str, **variables: str) -> Any:
    """Runs code in a new process, and returns the JSON that it prints in its last line."""
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


def run_command(
    *command: str, cwd: str | Path = ROOT, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end, with further environment variables, and returns what it says."""
    environment = os.environ | variables
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=900
    )


def python_of(library: str) -> str:
    """Returns the Python of an environment with another library, or skips the test."""
    name = f"FLEET_TOOLS_{library.upper()}_PYTHON"
    python = os.environ.get(name)
    if python is None:
        pytest.skip(f"needs {name}, the Python of an environment with {library}")
    return python


def run_foreign(library: str, script: str, *arguments: str | Path, folder: Path) -> str:
    """Runs a script of `tests/support` in the environment of another library, or skips the test.

    Args:
        library: The library.
        script: Name of the script.
        arguments: Its arguments.
        folder: Folder for what the library caches, and in which it runs.

    Returns:
        What it prints.
    """
    script = str(ROOT / "tests/support" / script)
    return run_with(library, script, *map(str, arguments), folder=folder)


def run_with(library: str, *arguments: str, folder: Path) -> str:
    """Runs the Python of another library's environment, see `run_foreign`."""
    paths = ":".join(map(str, (ROOT, ROOT / "tests", ROOT / "baselines/merging/src")))
    variables = {"PYTHONPATH": paths, "HF_HOME": str(folder), "HOME": str(folder)}
    variables |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}  # threads wait for one another
    done = run_command(python_of(library), *arguments, cwd=folder, **variables)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@contextmanager
def serving_program(*arguments: str, ending: int = signal.SIGTERM) -> Iterator[dict[str, Any]]:
    """Starts a program that serves, yields the object that it prints, and ends it by a signal.

    Asserts that it ends with 0, and says nothing else.
    """
    command = [sys.executable, "-m", "fleet_tools", *arguments, "--port", "0", "--json"]
    with running_process(command) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
        process.send_signal(ending)
        printed, errors = process.communicate(timeout=60)
    assert (process.returncode, printed) == (0, ""), errors
    assert "Traceback" not in errors


def _printed(command: list[str], variables: dict[str, str]) -> Any:
    finished = subprocess.run(
        command, cwd=ROOT, env=os.environ | variables, capture_output=True, text=True, timeout=300
    )
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout.splitlines()[-1])
