"""Checks what this machine can do: `python -m fleet_tools.doctor`.

For what is missing or broken, it prints a command that installs or repairs it.
"""

import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from typing import Any

from fleet_tools.utils import cli
from fleet_tools.utils.diagnostics import (
    BROKEN,
    DRAKE,
    MISSING,
    OK,
    Check,
    CrashError,
    ProbeError,
    check_cores,
    check_disk,
    check_drake,
    check_extras,
    check_memory,
    check_python,
    function_probe,
    run_probes,
)
from fleet_tools.utils.drake_release import installed_release
from fleet_tools.utils.libraries import GL_COMMAND, OPTIONAL, install_command
from fleet_tools.utils.machine import available_cores

_STEPS = 6
_RENDERED = 10


class DoctorOptions(cli.Options):
    """Checks what this machine can do, and prints commands that install what is missing.

    Exit codes:
    0: demonstrations can be collected.
    1: a requirement for collecting demonstrations is missing.
    """


def examine() -> Iterator[Check]:
    """Yields the results of all checks, as they are made."""
    with ThreadPoolExecutor(1) as thread:
        # The speed of the simulation is measured on a core of its own, or before all else.
        early = available_cores() >= 2
        extras = thread.submit(list, check_extras(OPTIONAL)) if early else None
        yield check_python()
        yield from check_programs()
        yield check_cores()
        yield check_memory()
        yield check_disk()
        yield from check_extras(OPTIONAL) if extras is None else extras.result()


def check_programs() -> Iterator[Check]:
    """Imports Drake, simulates, renders, opens the viewer, and runs a job in a worker."""
    functions = (_real_time_factor, _rendering_time, _meshcat_port, _workers, _cache_folder)
    results = run_probes([DRAKE, *map(function_probe, functions)])
    yield check_drake(next(results))
    simulation = check_simulation(next(results))
    yield simulation
    yield check_rendering(next(results), simulation.status == OK)
    port, workers, folder = results
    yield _check("Meshcat", port, lambda: f"opens on port {port}")
    yield _check("Workers", workers, lambda: workers, "; programs work with --workers 0")
    yield check_cache(folder)


def _check(name: str, result: Any, detail: Callable[[], str], otherwise: str = "") -> Check:
    if isinstance(result, ProbeError):
        return Check(name, BROKEN, False, f"{result}{otherwise}")
    return Check(name, OK, False, detail())


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


def check_cache(result: str | ProbeError | None) -> Check:
    """Says where compiled code is kept, which point clouds and perceived experts use.

    Args:
        result: The folder, if there is one.
    """
    if result is not None:
        return _check("Compiled code", result, lambda: f"kept in {result}")
    detail = "cannot be kept; every run with point clouds compiles anew, for 1 to 3 s"
    remedy = "export NUMBA_CACHE_DIR=a folder of yours"
    return Check("Compiled code", MISSING, False, detail, remedy)


# --- Called in another process --------------------------------------------------------------


def _real_time_factor() -> float:
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


def _rendering_time() -> str:
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


def _meshcat_port() -> int:
    from fleet_tools.perception.display import open_meshcat

    return open_meshcat().port()


def _cache_folder() -> str | None:
    from fleet_tools.utils.compiled import cache_folder

    return cache_folder()


def _workers() -> str:
    from fleet_tools.parallel import cluster, workers

    jobs = iter([-1])
    make_work = partial(partial, abs)
    results = workers.run(
        lambda: next(jobs, None), make_work, count=1, timeout_s=60.0, address="local"
    )
    assert list(results) == [(-1, 1)]
    return f"{cluster.default_count()} by default, for cores and memory"


# --- The program ----------------------------------------------------------------------------


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
