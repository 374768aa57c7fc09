"""Says what this machine can do, and how to mend what it cannot: `python -m fleet_tools.doctor`.

What could crash, such as a driver of OpenGL, is tried in a process of its own.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from fleet_tools.utils import cli as programs
from fleet_tools.utils.libraries import GL_LINE, GLIB_LINE, OPTIONAL, Library, install_line
from fleet_tools.utils.machine import GIB, available_cores, available_memory, free_disk

OK, MISSING, BROKEN = "ok", "missing", "broken"

ABSENT = "is not installed"

ENOUGH_MEMORY = 0.5 * GIB
ENOUGH_DISK = 1.0 * GIB


@dataclass(frozen=True)
class Check:
    """What was found out about one thing.

    Attributes:
        name: Of the thing.
        status: "ok", "missing" or "broken".
        needed: Whether collecting demonstrations is impossible without it.
        detail: What was found.
        remedy: The line that mends it, where it needs mending and there is one.
    """

    name: str
    status: str
    needed: bool
    detail: str
    remedy: str | None = None


def examine() -> Iterator[Check]:
    """Yields the checks as they are made."""
    yield Check("Python", OK, True, f"{platform.python_version()}, {sys.executable}")
    yield check_drake()
    yield check_simulation()
    yield check_rendering()
    yield check_meshcat()
    yield check_workers()
    yield check_cores()
    yield check_memory()
    yield check_disk()
    yield from map(check_library, OPTIONAL)


def check_drake() -> Check:
    """Imports Drake."""
    came = _import("pydrake.common", "drake")
    if came.error is None:
        return Check("Drake", OK, True, came.found)
    if came.error == ABSENT:
        return Check("Drake", MISSING, True, "the simulator", "python3 -m pip install drake")
    return Check("Drake", BROKEN, True, came.error, GLIB_LINE)


def check_simulation() -> Check:
    """Makes an environment, and runs the first steps of an episode with its expert."""
    came = _try(
        "import time, gymnasium, fleet_tools\n"
        "from fleet_tools.experts.policy import ExpertPolicy\n"
        "env = gymnasium.make('FleetTools/Hammer-v0')\n"
        "observation, _ = env.reset(seed=0)\n"
        "expert = ExpertPolicy(env)\n"
        "expert.reset()\n"
        "begun = time.perf_counter()\n"
        "for _ in range(6):\n"
        "    observation, *_ = env.step(expert.act(observation))\n"
        "print(json.dumps(1.0 / (time.perf_counter() - begun)))"
    )
    name = "State observations"
    if came.error is not None:
        return Check(name, BROKEN, True, came.error)
    return Check(name, OK, True, f"planned and simulated, {came.found:.1f} times real time")


def check_rendering() -> Check:
    """Renders pictures; says with which driver, and how long one takes."""
    came = _try(
        "import time, gymnasium, fleet_tools\n"
        "from fleet_tools.perception.opengl import renderer\n"
        "env = gymnasium.make('FleetTools/Hammer-v0', render_mode='rgb_array')\n"
        "env.reset(seed=0)\n"
        "height, width, _ = env.render().shape\n"
        "begun = time.perf_counter()\n"
        "for _ in range(10):\n"
        "    env.render()\n"
        "ms = 100.0 * (time.perf_counter() - begun)\n"
        "print(json.dumps(f'{renderer()}; {ms:.0f} ms for {width} x {height}'))"
    )
    if came.error is None:
        return Check("Images (EGL)", OK, False, came.found)
    if "MissingLibraryError" in came.error:
        detail = "the library or its driver is not there; state observations do without"
        return Check("Images (EGL)", MISSING, False, detail, GL_LINE)
    return Check("Images (EGL)", BROKEN, False, came.error, GL_LINE)


def check_meshcat() -> Check:
    """Opens Drake's viewer on a port."""
    came = _try(
        "from pydrake.geometry import Meshcat\nprint(json.dumps(f'port {Meshcat().port()}'))"
    )
    if came.error is None:
        return Check("Meshcat", OK, False, f"opens on {came.found}")
    return Check("Meshcat", BROKEN, False, came.error)


def check_workers() -> Check:
    """Has a worker do something; says how many workers a program starts of its own accord."""
    came = _try(
        "import functools, ray\n"
        "from fleet_tools.parallel import workers\n"
        "jobs = iter([-1])\n"
        "work = functools.partial(functools.partial, abs)\n"
        "run = workers.run(lambda: next(jobs, None), work, count=1, timeout_s=60.0)\n"
        "assert list(run) == [(-1, 1)]\n"
        "count = workers.default_count()\n"
        "print(json.dumps(f'Ray {ray.__version__}; {count} by default, for cores and memory'))"
    )
    if came.error is None:
        return Check("Workers", OK, False, came.found)
    remedy = "python3 -m pip install ray, or give programs --workers 0"
    return Check("Workers", BROKEN, False, came.error, remedy)


def check_cores() -> Check:
    """Counts the cores that this process may use."""
    cores, total = available_cores(), os.cpu_count()
    return Check("Cores", OK, False, f"{cores:g} of {total} may be used")


def check_memory() -> Check:
    """Asks how much memory is left."""
    left = available_memory()
    status = OK if left >= ENOUGH_MEMORY else MISSING
    return Check("Memory", status, True, f"{left / GIB:.1f} GiB left")


def check_disk() -> Check:
    """Asks how much room there is where data sets are stored."""
    left = free_disk(Path.cwd())
    status = OK if left >= ENOUGH_DISK else MISSING
    return Check("Disk", status, False, f"{left / GIB:.1f} GiB left in {Path.cwd()}")


def check_library(library: Library) -> Check:
    """Imports an optional library, and says what it is for."""
    came = _import(library.module, library.distribution)
    name, purpose = library.distribution, f"to {library.purpose}"
    if came.error is None:
        return Check(name, OK, False, f"{came.found}, {purpose}")
    if came.error == ABSENT:
        return Check(name, MISSING, False, purpose, install_line(library.extra))
    return Check(name, BROKEN, False, f"{purpose}; {came.error}", install_line(library.extra))


@dataclass(frozen=True)
class _Came:
    """What came of trying something: what was found, or what went wrong."""

    found: object = None
    error: str | None = None


def _import(module: str, distribution: str) -> _Came:
    """Imports a module, and finds its version."""
    return _try(
        "import importlib, importlib.metadata, importlib.util, sys\n"
        "module, distribution, absent = sys.argv[1:]\n"
        "if importlib.util.find_spec(module.split('.')[0]) is None:\n"
        "    sys.exit(absent)\n"
        "importlib.import_module(module)\n"
        "print(json.dumps(importlib.metadata.version(distribution)))",
        module,
        distribution,
        ABSENT,
    )


def _try(code: str, *arguments: str) -> _Came:
    """Runs code in another Python; what it prints last, in JSON, is what it found."""
    command = [sys.executable, "-c", "import json\n" + code, *arguments]
    try:
        child = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        return _Came(error="does not come to an end")
    if child.returncode < 0:
        return _Came(error=f"crashes (signal {-child.returncode})")
    if child.returncode > 0:
        return _Came(error=child.stderr.strip().splitlines()[-1])
    return _Came(found=json.loads(child.stdout.splitlines()[-1]))


# --- The program ----------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    """Runs the program; see `--help`."""
    return programs.run(_parser(), _doctor, arguments)


def _parser() -> argparse.ArgumentParser:
    return programs.argument_parser(
        "fleet_tools.doctor",
        "Says what this machine can do, and prints the line that mends what is missing.",
        "Exits with 0 if demonstrations can be collected, 1 if something needed for it is missing.",
    )


def _doctor(options: argparse.Namespace) -> int:
    checks = []
    for check in examine():
        checks.append(check)
        if not (options.json or options.quiet):
            print(_as_text(check), flush=True)
    well = all(check.status == OK for check in checks if check.needed)
    if options.json:
        print(json.dumps({"ok": well, "checks": [asdict(check) for check in checks]}))
    elif not options.quiet:
        print("Demonstrations can be collected." if well else "Demonstrations cannot be collected.")
    return programs.OK if well else programs.NOT_WELL


def _as_text(check: Check) -> str:
    line = f"{check.status:<8} {check.name:<20} {check.detail}"
    return line if check.remedy is None else f"{line}\n{'':<8} {'':<20} mend it: {check.remedy}"


if __name__ == "__main__":
    sys.exit(main())
