"""Checks of this machine: libraries, cores, memory and disk.

Code that might crash or hang, such as the import of a library, is tried in another process.
"""

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet_tools.errors import FleetToolsError
from fleet_tools.parallel.apart import Apart, ApartError
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


Probe = tuple[str, str, tuple[str, ...]]
"""Module and name of a function and its arguments, as another process is told them."""


def function_probe(function: Callable[[], Any]) -> Probe:
    """Returns the probe that calls a function of a module."""
    module = function.__module__
    if module == "__main__" and (spec := sys.modules[module].__spec__) is not None:
        module = spec.name  # the program, started by `python -m`
    return module, function.__name__, ()


def import_probe(module: str, distribution: str) -> Probe:
    """Returns the probe that imports a module, and returns the version of its distribution."""
    return __name__, version_of.__name__, (module, distribution)


def version_of(module: str, distribution: str) -> str | None:
    """Imports a module, and returns the version of its distribution; None if there is neither."""
    if importlib.util.find_spec(module.partition(".")[0]) is None:
        return None
    importlib.import_module(module)
    return importlib.metadata.version(distribution)


def run_probes(probes: Sequence[Probe]) -> Iterator[Any]:
    """Runs probes in another process, and after a crash in a next one.

    They share a process because most of a probe's time is the import of what others import, too.
    One that fails is run again in a process of its own, so that none fails because of another.

    Args:
        probes: The probes.

    Yields:
        What each returns; or a CrashError if a signal ended it, an AbsentError if its library is
        not installed, or a ProbeError if it raised an error or did not end in time.
    """
    apart = Apart()
    try:
        for probe in probes:
            alone = not apart.calls
            result = _result(apart, probe)
            if isinstance(result, ProbeError) and not (alone or isinstance(result, AbsentError)):
                apart.end()
                result = _result(apart, probe)
            yield result
    finally:
        apart.end()


def _result(apart: Apart, probe: Probe) -> Any:
    try:
        found = apart.call(_TIMEOUT_S, _call, *probe)
    except ApartError as error:
        kind = CrashError if (error.ending or "").startswith("SIG") else ProbeError
        return kind(str(error))
    except FleetToolsError as error:
        return ProbeError(f"{type(error).__name__}: {error}")
    absent = found is None and probe[1] == version_of.__name__
    return AbsentError("is not installed") if absent else found


def _call(module: str, name: str, arguments: tuple[str, ...]) -> Any:
    return getattr(importlib.import_module(module), name)(*arguments)


def check_python() -> Check:
    """Reports the version of Python."""
    return Check("Python", OK, True, f"{platform.python_version()}, {sys.executable}")


DRAKE = import_probe("pydrake.common", "drake")


def check_drake(imported: str | ProbeError) -> Check:
    """Says whether Drake can be imported, and whether its release is tested.

    Args:
        imported: Result of the probe `DRAKE`.
    """
    release = installed_release()
    remedy = None if is_tested(release) else INSTALL_COMMAND
    if isinstance(imported, AbsentError):
        return Check("Drake", MISSING, True, "the simulator", install_command())
    if isinstance(imported, ProbeError):
        crashed = isinstance(imported, CrashError)
        remedy = remedy or (install_command() if crashed else GLIB_COMMAND)
        return Check("Drake", BROKEN, True, f"{release}, {imported}", remedy)
    if remedy is None:
        return Check("Drake", OK, True, f"{release}, tested ({OLDEST} to {NEWEST})")
    admitted = os.environ.get(ANY_RELEASE) == "1"
    detail = f"{release}, not tested ({OLDEST} to {NEWEST})"
    return Check("Drake", OK if admitted else BROKEN, True, detail, remedy)


def check_extras(libraries: Sequence[Library]) -> Iterator[Check]:
    """Imports optional libraries; yields a check for each extra that installs some of them."""
    extras: dict[str, list[Library]] = {}
    for library in libraries:
        extras.setdefault(library.extra, []).append(library)
    results = run_probes(
        [import_probe(each.module, each.distribution) for of in extras.values() for each in of]
    )
    for extra, of in extras.items():
        status, details, remedies = OK, [], []
        for library, result in zip(of, results, strict=False):
            name, purpose = library.distribution, f"to {library.purpose}"
            if not isinstance(result, ProbeError):
                details.append(f"{name} {result}")
                continue
            absent = isinstance(result, AbsentError)
            status = MISSING if absent and status == OK else status if absent else BROKEN
            details.append(f"{name} {'is missing' if absent else result}, {purpose}{library.note}")
            remedies.append(library.remedy(str(result)))
        remedy = " && ".join(dict.fromkeys(remedies)) or None
        yield Check(extra, status, False, "; ".join(details), remedy)


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
