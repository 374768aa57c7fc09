"""The checkout, and code run in processes of its own."""

import json
import os
import subprocess
import sys
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


def _printed(command: list[str], variables: dict[str, str]) -> Any:
    finished = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout.splitlines()[-1])
