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
    command = [sys.executable, "-c", code, *arguments]
    environment = os.environ | variables
    finished = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout.splitlines()[-1])
