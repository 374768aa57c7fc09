"""Environments that differ in the release of Drake: made once, and kept between runs."""

import re
import subprocess
import tomllib
from collections.abc import Sequence
from pathlib import Path

from fleet_tools.errors import FleetToolsError

_ROOT = Path(__file__).resolve().parents[1]
_BLAME = re.compile(r"(?:distribution found for|requested \(constraint\)) ([\w.-]+)==")
"""What pip says of a pin without a wheel, and of one that contradicts Drake's own."""


def make_environment(folder: Path, python: str, release: str) -> Path:
    """Makes an environment with a release of Drake, or completes one that is there.

    It holds what the core of this package needs, in the versions of constraints.txt as far as there
    are wheels for this Python and Drake permits them; not the package itself, whose bounds may
    exclude the release.

    Args:
        folder: Folder of all environments.
        python: Interpreter from which it is made.
        release: Release of Drake, such as "1.51.1".

    Returns:
        Its interpreter.

    Raises:
        FleetToolsError: There is no such interpreter, or pip cannot install the packages.
    """
    own = folder / f"drake-{release}"
    interpreter, pins, done = (own / name for name in ("bin/python", "pins.txt", "installed.txt"))
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    needed = [each for each in project["dependencies"] if not _is_of(each, "drake")]
    pinned = (_ROOT / "constraints.txt").read_text().splitlines()
    pinned = [line for line in pinned if not _is_of(line, "drake")]
    wanted = "\n".join([*needed, *pinned])
    if done.is_file() and done.read_text() == wanted:
        return interpreter
    if not interpreter.exists():
        _run([python, "-m", "venv", str(own)])
    install = [str(interpreter), "-m", "pip", "install", "--only-binary", ":all:"]
    while True:
        pins.write_text("\n".join(pinned))
        try:
            _run([*install, "-c", str(pins), f"drake=={release}", *needed])
            done.write_text(wanted)
            return interpreter
        except FleetToolsError as error:
            blamed = _BLAME.findall(str(error))
            remaining = [line for line in pinned if not any(_is_of(line, name) for name in blamed)]
            if remaining == pinned:  # no pin is to blame
                raise
            pinned = remaining


def _is_of(requirement: str, name: str) -> bool:
    return re.match(rf"{re.escape(name)}\b(?![-.])", requirement, re.IGNORECASE) is not None


def _run(command: Sequence[str]) -> None:
    try:
        finished = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise FleetToolsError(f"{command[0]} cannot be run: {error.strerror}.") from error
    if finished.returncode:
        said = (finished.stdout + finished.stderr).splitlines()
        last = "\n".join([line for line in said if "WARNING" not in line][-12:])
        raise FleetToolsError(f"`{' '.join(command)}` failed:\n{last}")
