"""Checks the abilities of this machine: `python -m fleet_tools.doctor`.

For what is missing or broken, it prints a command that installs or repairs it. Code that might
crash or hang, such as the import of a library, is tried in another process.
"""

import importlib
import importlib.metadata
import importlib.util
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fleet_tools.errors import FleetToolsError
from fleet_tools.parallel.apart import Apart, ApartError, call_by_name
from fleet_tools.utils import cli
from fleet_tools.utils.drake_release import (
    ANY_RELEASE,
    INSTALL_COMMAND,
    NEWEST,
    OLDEST,
    installed_release,
    is_tested,
)
from fleet_tools.utils.libraries import GL_COMMAND, GLIB_COMMAND, OPTIONAL, Library, install_command
from fleet_tools.utils.machine import GIB, available_cores, available_memory, free_disk

OK, MISSING, BROKEN = "ok", "missing", "broken"

ENOUGH_MEMORY = 0.5 * GIB
ENOUGH_DISK = 1.0 * GIB

_TIMEOUT_S = 120.0
_STEPS = 6
_RENDERED = 10


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


def probe(name: str, *arguments: str) -> Any:
    """Calls a function of this module in a process of its own.

    Returns:
        Its result; or a CrashError if a signal ended it, or a ProbeError if it raised an error or
        did not end in time.
    """
    apart = Apart()
    try:
        return apart.call(_TIMEOUT_S, call_by_name, "fleet_tools.doctor", name, arguments)
    except ApartError as error:
        kind = CrashError if (error.ending or "").startswith("SIG") else ProbeError
        return kind(str(error))
    except FleetToolsError as error:
        return ProbeError(f"{type(error).__name__}: {error}")
    finally:
        apart.end()


# --- Checks ---------------------------------------------------------------------------------


def examine() -> Iterator[Check]:
    """Yields the results of all checks, as they are made."""
    yield check_python()
    yield from check_programs()
    yield check_cores()
    yield check_memory()
    yield check_disk()
    yield from check_extras(OPTIONAL)


def check_programs() -> Iterator[Check]:
    """Imports Drake, simulates, renders, opens the viewer, and runs a job in a worker."""
    yield check_drake(probe("version_of", "pydrake.common", "drake"))
    simulation = check_simulation(probe("real_time_factor"))
    yield simulation
    yield check_rendering(probe("rendering_time"), simulation.status == OK)
    yield _check("Meshcat", probe("meshcat_port"), lambda port: f"opens on port {port}")
    yield _check("Workers", probe("start_worker"), str, "; programs work with --workers 0")


def _check(name: str, result: Any, detail: Callable[[Any], str], otherwise: str = "") -> Check:
    if isinstance(result, ProbeError):
        return Check(name, BROKEN, False, f"{result}{otherwise}")
    return Check(name, OK, False, detail(result))


def check_simulation(result: float | ProbeError) -> Check:
    """Says how fast the first steps of an episode with its expert were.

    Args:
        result: The real-time factor.
    """
    name = "State observations"
    if isinstance(result, CrashError):
        detail = f"{result} with Drake {installed_release()}; tested versions may not"
        return Check(name, BROKEN, True, detail, install_command())
    if isinstance(result, ProbeError):
        return Check(name, BROKEN, True, str(result))
    return Check(name, OK, True, f"planned and simulated, {result:.1f} times real time")


def check_rendering(result: str | ProbeError, simulates: bool) -> Check:
    """Reports the driver of OpenGL, and the time per image.

    Args:
        result: Both in words.
        simulates: Whether simulations work; otherwise, what OpenGL needs is no remedy.
    """
    name = "Images (EGL)"
    remedy = GL_COMMAND if simulates else None
    if not isinstance(result, ProbeError):
        return Check(name, OK, False, result)
    if "MissingLibraryError" in str(result):
        detail = "a library or its driver is absent; state observations do not need it"
        return Check(name, MISSING, False, detail, remedy)
    return Check(name, BROKEN, False, str(result), remedy)


def check_python() -> Check:
    """Reports the version of Python."""
    return Check("Python", OK, True, f"{platform.python_version()}, {sys.executable}")


def check_drake(imported: str | ProbeError | None) -> Check:
    """Says whether Drake can be imported, and whether its release is tested.

    Args:
        imported: See `version_of`.
    """
    release = installed_release()
    remedy = None if is_tested(release) else INSTALL_COMMAND
    if imported is None:
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
    with ThreadPoolExecutor(math.ceil(available_cores())) as threads:
        results = threads.map(
            lambda each: probe("version_of", each.module, each.distribution),
            [each for of in extras.values() for each in of],
        )
    for extra, of in extras.items():
        status, details, remedies = OK, [], []
        for library, result in zip(of, results, strict=False):
            name, purpose = library.distribution, f"to {library.purpose}"
            absent = result is None
            if not (absent or isinstance(result, ProbeError)):
                details.append(f"{name} {result}")
                continue
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


# --- Called in another process --------------------------------------------------------------


def version_of(module: str, distribution: str) -> str | None:
    """Imports a module, and returns the version of its distribution; None if there is neither."""
    if importlib.util.find_spec(module.partition(".")[0]) is None:
        return None
    importlib.import_module(module)
    return importlib.metadata.version(distribution)


def real_time_factor() -> float:
    """Returns how fast the first steps of an episode with its expert are."""
    import gymnasium

    from fleet_tools.experts.policy import ExpertPolicy

    env = gymnasium.make("FleetTools/Hammer-v0")
    observation, _ = env.reset(seed=0)
    expert = ExpertPolicy(env)
    expert.reset()
    started = time.perf_counter()
    for _ in range(_STEPS):
        observation, *_ = env.step(expert.act(observation))
    return _STEPS / env.metadata["render_fps"] / (time.perf_counter() - started)


def rendering_time() -> str:
    """Returns the driver of OpenGL, and the time per image, in words."""
    import gymnasium

    from fleet_tools.perception.display import HEIGHT, WIDTH
    from fleet_tools.perception.opengl import renderer

    env = gymnasium.make("FleetTools/Hammer-v0", render_mode="rgb_array")
    env.reset(seed=0)
    env.render()  # the first image takes longer
    started = time.perf_counter()
    for _ in range(_RENDERED):
        env.render()
    milliseconds = 1e3 / _RENDERED * (time.perf_counter() - started)
    return f"{renderer()}; {milliseconds:.0f} ms for {WIDTH} x {HEIGHT}"


def meshcat_port() -> int:
    """Opens the viewer, and returns its port."""
    from fleet_tools.perception.display import open_meshcat

    return open_meshcat().port()


def start_worker() -> str:
    """Runs a job in a worker, and returns the number of workers by default, in words."""
    from fleet_tools.parallel import cluster, workers

    jobs = iter([-1])
    make_work = partial(partial, abs)
    results = workers.run(
        lambda: next(jobs, None), make_work, count=1, timeout_s=60.0, address="local"
    )
    assert list(results) == [(-1, 1)]
    return f"{cluster.default_count()} by default, for cores and memory"


# --- The program ----------------------------------------------------------------------------


class DoctorOptions(cli.Options):
    """Checks the abilities of this machine, and prints commands that install missing parts.

    Exit codes:
    0: demonstrations can be collected.
    1: a requirement for collecting demonstrations is missing.
    """


def _doctor(options: DoctorOptions) -> int:
    checks = []
    for check in examine():
        checks.append(check)
        if not (options.json_output or options.quiet):
            print(_as_text(check), flush=True)
    usable = all(check.status == OK for check in checks if check.needed)
    options.report(
        {"ok": usable, "checks": [asdict(check) for check in checks]},
        lambda: f"Demonstrations {'can' if usable else 'cannot'} be collected.",
    )
    return cli.OK if usable else cli.FAILED


def _as_text(check: Check) -> str:
    line = f"{check.status:<8} {check.name:<20} {check.detail}"
    return line if check.remedy is None else f"{line}\n{'':<8} {'':<20} remedy: {check.remedy}"


PROGRAM = cli.Program("doctor", cli.Command(DoctorOptions, _doctor))
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
