"""Checks what this machine can do: `python -m fleet_tools.doctor`.

For what is missing or broken, it prints a command that installs or repairs it.
"""

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial

from fleet_tools.utils import cli
from fleet_tools.utils.diagnostics import (
    BROKEN,
    MISSING,
    OK,
    Check,
    CrashError,
    ProbeError,
    call,
    check_cores,
    check_disk,
    check_drake,
    check_library,
    check_memory,
    check_python,
)
from fleet_tools.utils.libraries import GL_COMMAND, OPTIONAL, install_command, installed_release
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
    yield check_python()
    yield check_drake()
    simulation = check_simulation()
    yield simulation
    yield check_rendering(simulation.status == OK)
    yield check_meshcat()
    yield check_workers()
    yield check_cache()
    yield check_cores()
    yield check_memory()
    yield check_disk()
    with ThreadPoolExecutor(max(1, int(available_cores()))) as threads:
        yield from threads.map(check_library, OPTIONAL)


def check_simulation() -> Check:
    """Resets an environment, and runs the first steps of an episode with its expert."""
    name = "State observations"
    try:
        call(_reset)
        factor = call(_real_time_factor)
    except CrashError as error:
        detail = f"{error} with Drake {installed_release()}; tested versions may not"
        return Check(name, BROKEN, True, detail, install_command())
    except ProbeError as error:
        return Check(name, BROKEN, True, str(error))
    return Check(name, OK, True, f"planned and simulated, {factor:.1f} times real time")


def check_rendering(simulates: bool) -> Check:
    """Renders images; reports the driver, and the time per image.

    Args:
        simulates: Whether simulations work; otherwise, what OpenGL needs is no remedy.
    """
    name = "Images (EGL)"
    remedy = GL_COMMAND if simulates else None
    try:
        return Check(name, OK, False, call(_rendering_time))
    except ProbeError as error:
        if "MissingLibraryError" in str(error):
            detail = "a library or its driver is absent; state observations do not need it"
            return Check(name, MISSING, False, detail, remedy)
        return Check(name, BROKEN, False, str(error), remedy)


def check_meshcat() -> Check:
    """Starts Drake's Meshcat server."""
    try:
        return Check("Meshcat", OK, False, f"opens on port {call(_meshcat_port)}")
    except ProbeError as error:
        return Check("Meshcat", BROKEN, False, str(error))


def check_workers() -> Check:
    """Runs a job in a worker; reports the number of workers that programs start by default."""
    try:
        return Check("Workers", OK, False, call(_workers))
    except ProbeError as error:
        detail = f"{error}; programs work with --workers 0"
        return Check("Workers", BROKEN, False, detail)


def check_cache() -> Check:
    """Says where compiled code is kept, which point clouds and perceived experts use."""
    name = "Compiled code"
    try:
        folder = call(_cache_folder)
    except ProbeError as error:
        return Check(name, BROKEN, False, str(error))
    if folder is not None:
        return Check(name, OK, False, f"kept in {folder}")
    detail = "cannot be kept; every run with point clouds compiles anew, for 1 to 3 s"
    return Check(name, MISSING, False, detail, "export NUMBA_CACHE_DIR=a folder of yours")


# --- Called in another process --------------------------------------------------------------


def _reset() -> None:
    import gymnasium

    gymnasium.make("FleetTools/Hammer-v0").reset(seed=0)


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
