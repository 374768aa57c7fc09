"""Checks of this machine: libraries, cores, memory and disk.

Code that might crash or hang, such as the import of a library, is tried in another process.
"""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet_tools.utils.libraries import (
    ANY_RELEASE,
    GLIB_COMMAND,
    INSTALL_COMMAND,
    NEWEST,
    OLDEST,
    Library,
    install_command,
    installed_release,
    is_tested,
)
from fleet_tools.utils.machine import GIB, available_cores, available_memory, free_disk

OK, MISSING, BROKEN = "ok", "missing", "broken"

ENOUGH_MEMORY = 0.5 * GIB
ENOUGH_DISK = 1.0 * GIB

_TIMEOUT_S = 120.0

_CALL = """
import importlib, json, sys
module, name = sys.argv[1:]
print(json.dumps(getattr(importlib.import_module(module), name)()))
"""

_ABSENT = "is not installed"
_IMPORT = f"""
import importlib, importlib.metadata, importlib.util, json, sys
module, distribution = sys.argv[1:]
if importlib.util.find_spec(module.partition(".")[0]) is None:
    sys.exit({_ABSENT!r})
importlib.import_module(module)
print(json.dumps(importlib.metadata.version(distribution)))
"""


@dataclass(frozen=True)
class Check:
    """The result of a check.

    Attributes:
        name: Name of what was checked.
        status: "ok", "missing" or "broken".
        needed: Whether collecting demonstrations is impossible without it.
        detail: Version, speed or size; or the error.
        remedy: Command that installs or repairs it; None if it is in order, or no command helps.
    """

    name: str
    status: str
    needed: bool
    detail: str
    remedy: str | None = None


class ProbeError(Exception):
    """A function or an import failed in another process; the message is its error."""


class CrashError(ProbeError):
    """The other process was ended by a signal."""


class AbsentError(ProbeError):
    """A library is not installed."""


def call(function: Callable[[], Any]) -> Any:
    """Calls a function of a module in another process.

    Args:
        function: Returns plain JSON data.

    Raises:
        CrashError: A signal ended it.
        ProbeError: It raised an error, or did not end in time.
    """
    module = function.__module__
    if module == "__main__" and (spec := sys.modules[module].__spec__) is not None:
        module = spec.name  # the program, started by `python -m`
    return _run(_CALL, module, function.__name__)


def import_library(module: str, distribution: str) -> str:
    """Imports a library in another process.

    Args:
        module: Name of the module.
        distribution: Name of the installed distribution.

    Returns:
        Its version.

    Raises:
        AbsentError: It is not installed.
        ProbeError: Its import fails.
    """
    return _run(_IMPORT, module, distribution)


def check_python() -> Check:
    """Reports the version of Python."""
    return Check("Python", OK, True, f"{platform.python_version()}, {sys.executable}")


def check_drake() -> Check:
    """Imports Drake, and says whether its release is tested."""
    release = installed_release()
    remedy = None if is_tested(release) else INSTALL_COMMAND
    try:
        import_library("pydrake.common", "drake")
    except AbsentError:
        return Check("Drake", MISSING, True, "the simulator", install_command())
    except ProbeError as error:
        remedy = remedy or (install_command() if isinstance(error, CrashError) else GLIB_COMMAND)
        return Check("Drake", BROKEN, True, f"{release}, {error}", remedy)
    if remedy is None:
        return Check("Drake", OK, True, f"{release}, tested ({OLDEST} to {NEWEST})")
    admitted = os.environ.get(ANY_RELEASE) == "1"
    detail = f"{release}, not tested ({OLDEST} to {NEWEST})"
    return Check("Drake", OK if admitted else BROKEN, True, detail, remedy)


def check_library(library: Library) -> Check:
    """Imports an optional library."""
    name, purpose = library.distribution, f"to {library.purpose}"
    try:
        version = import_library(library.module, library.distribution)
    except AbsentError:
        return Check(name, MISSING, False, purpose, install_command(library.extra))
    except ProbeError as error:
        detail = f"{purpose}; {error}"
        return Check(name, BROKEN, False, detail, library.remedy(str(error)))
    return Check(name, OK, False, f"{version}, {purpose}")


def check_cores() -> Check:
    """Counts the cores that this process may use."""
    return Check("Cores", OK, False, f"{available_cores():g} of {os.cpu_count()} may be used")


def check_memory() -> Check:
    """Measures the free memory."""
    free = available_memory()
    status = OK if free >= ENOUGH_MEMORY else MISSING
    return Check("Memory", status, True, f"{free / GIB:.1f} GiB left")


def check_disk() -> Check:
    """Measures the free space of the working directory's disk, where datasets are stored."""
    free = free_disk(Path.cwd())
    status = OK if free >= ENOUGH_DISK else MISSING
    return Check("Disk", status, False, f"{free / GIB:.1f} GiB left in {Path.cwd()}")


def _run(code: str, *arguments: str) -> Any:
    """Runs code in another process, and returns the JSON in its last line of output."""
    command = [sys.executable, "-c", code, *arguments]
    try:
        child = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise ProbeError(f"does not end within {_TIMEOUT_S:g} s") from None
    if child.returncode < 0:
        raise CrashError(f"crashes (signal {-child.returncode})")
    if child.returncode > 0:
        error = (child.stderr.strip().splitlines() or [f"exit code {child.returncode}"])[-1]
        raise AbsentError(error) if error == _ABSENT else ProbeError(error)
    return json.loads(child.stdout.splitlines()[-1])
