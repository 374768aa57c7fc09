"""Measures collection with different numbers of workers: `python benchmarks/collection.py`.

Each number of workers collects the same dataset. Run it on an idle machine.
"""

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from console import print_now

from fleet_tools.config.tasks import task_names
from fleet_tools.config.values import Count
from fleet_tools.errors import UnknownNameError
from fleet_tools.parallel import local_workers
from fleet_tools.utils import cli
from fleet_tools.utils.machine import machine_name

_POLL_S = 1.0


class CollectionOptions(cli.Options):
    """Measures the speed of collection, and the memory of workers, for several numbers of workers.

    Exit codes:
    0: everything is measured.
    1: a collection failed, or was too short to be measured.
    2: it cannot begin.
    130: Ctrl-C.
    """

    tool: str = "wrench"
    """Task of the package, by its tool, such as hammer."""
    obs_mode: str = "point_cloud"
    """Stored observations."""
    episodes: Count = 200
    """Number of successful episodes of a dataset."""
    workers: tuple[Count, ...] = (1, 2, 4)
    """Numbers of workers."""


@dataclass(frozen=True)
class MemorySample:
    """The state of a collection at one moment.

    Attributes:
        seconds: Time since its start, s.
        attempts: Number of attempts so far.
        memory: Resident memory of each worker, bytes.
    """

    seconds: float
    attempts: int
    memory: list[int]


def _measure_all(options: CollectionOptions) -> int:
    if options.tool not in task_names():
        raise UnknownNameError("tool", options.tool, task_names())
    print_now(options, f"{options.episodes} episodes of {options.tool}, {options.obs_mode}:")
    measured: list[dict[str, Any]] = []
    for workers in options.workers:
        figures = {"workers": workers, **measure(options, workers)}
        measured.append(figures)
        print_now(options, _as_text(figures, measured[0]["steady_rate"]))
    summary = {
        "machine": machine_name(),
        **options.model_dump(include={"tool", "obs_mode", "episodes"}),
        "figures": measured,
    }
    options.report(summary, lambda: f"Measured on {machine_name()}.")
    return cli.OK


def _as_text(figures: dict[str, Any], first_rate: float) -> str:
    workers = f"{figures['workers']} worker{'s' * (figures['workers'] != 1)}"
    return (
        f"{workers}: {figures['seconds']:.0f} s, "
        f"{figures['rate']:.2f} episodes per second, {figures['steady_rate']:.2f} once all work "
        f"({figures['steady_rate'] / first_rate:.2f} x); memory of a worker "
        f"{figures['early_mb']:.0f} MB early, {figures['late_mb']:.0f} MB late, "
        f"{figures['maximum_mb']:.0f} MB at most; {figures['bytes'] / 1e6:.0f} MB on disk; "
        f"{figures['successes']} of {figures['attempts']} succeeded"
    )


def measure(options: CollectionOptions, workers: int) -> dict[str, Any]:
    """Collects a dataset with some workers, and returns the figures.

    Raises:
        OSError: The collection failed, or ended before all workers were observed at work.
    """
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        command = [
            *(sys.executable, "-m", "fleet_tools.collect", "--quiet", "--json", "--output", folder),
            *("--tool", options.tool, "--obs-mode", options.obs_mode),
            *("--episodes", str(options.episodes), "--workers", str(workers)),
        ]
        samples: list[MemorySample] = []
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            while process.poll() is None:
                time.sleep(_POLL_S)
                attempts, memory = count_attempts(Path(folder)), worker_memory(process.pid)
                samples.append(MemorySample(time.monotonic() - started, attempts, memory))
            output, _ = process.communicate()
        if process.returncode != 0:
            raise OSError(f"the collection with {workers} workers failed; see above")
        summary = json.loads(output)
    busy = [each for each in samples if each.attempts >= workers and len(each.memory) == workers]
    if len(busy) < 2:
        raise OSError("the collection ended too early to be measured; give more --episodes")
    memory_mb = [median(sample.memory) / 1e6 for sample in busy]
    tenth = max(1, len(memory_mb) // 10)
    return {
        **{key: summary[key] for key in ("seconds", "attempts", "successes", "bytes")},
        "rate": summary["attempts"] / summary["seconds"],
        "steady_rate": (busy[-1].attempts - busy[0].attempts)
        / (busy[-1].seconds - busy[0].seconds),
        "early_mb": median(memory_mb[tenth : 2 * tenth] or memory_mb),
        "late_mb": median(memory_mb[-tenth:]),
        "maximum_mb": max(max(sample.memory) for sample in busy) / 1e6,
    }


def count_attempts(folder: Path) -> int:
    """Returns the number of attempts in a dataset so far."""
    manifest = folder / "manifest.jsonl"
    return manifest.read_bytes().count(b"\n") if manifest.exists() else 0


def worker_memory(pid: int) -> list[int]:
    """Returns the resident memory of each worker of a program, bytes.

    Args:
        pid: Process of the program.
    """
    import psutil

    memory = []
    try:
        for child in psutil.Process(pid).children(recursive=True):
            if local_workers.__name__ in "".join(child.cmdline()):
                memory.append(child.memory_info().rss)
    except psutil.Error:  # a process has just ended
        return []
    return memory


PROGRAM = cli.Program(
    "collection.py", cli.Command(CollectionOptions, _measure_all), launcher="python benchmarks/"
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
