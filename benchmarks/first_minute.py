"""Measures what a newcomer waits for: `python benchmarks/first_minute.py --checkout OTHER`.

Everything runs in new processes, with a cache of compiled code of their own, for this checkout and
for others in turn, so that they stand side by side on the same machine. Processor time counts all
processes that a program starts, and is disturbed less than wall time by other work on the machine.
"""

import contextlib
import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import psutil
from console import print_now, table_head, table_row
from tyro.conf import UseAppendAction

from fleet_tools.config.tasks import task_names
from fleet_tools.config.values import Count
from fleet_tools.errors import UnknownNameError
from fleet_tools.utils import cli
from fleet_tools.utils.machine import machine_name

_PR_SET_CHILD_SUBREAPER = 36

RESETS = """
import json, sys, time
import gymnasium, fleet_tools
from fleet_tools.registration import env_id
env = gymnasium.make(env_id(sys.argv[1]))
costs = []
for _ in range(2):
    wall, processor = time.monotonic(), time.process_time()
    env.reset(seed=0)
    costs.append((time.monotonic() - wall, time.process_time() - processor))
print(json.dumps(costs))
"""

WORKERS = {"default": (), "--workers 0": ("--workers", "0")}
"""Options of workers, by their name in the table."""

MANY = 1000
"""Number of episodes to which two sizes are extrapolated."""


class FirstMinuteOptions(cli.Options):
    """Measures imports, first resets, and small collections with workers and without.

    Exit codes:
    0: everything is measured.
    1: a program failed.
    2: it cannot begin.
    130: Ctrl-C.
    """

    tool: str = "wrench"
    """Task of the package, by its tool, such as hammer."""
    episodes: tuple[Count, Count] = (20, 60)
    """Two sizes of a collection, the smaller one first."""
    repeats: Count = 3
    """Number of repetitions, of which the medians are printed."""
    checkout: Annotated[tuple[Path, ...], UseAppendAction] = ()
    """Folder of another checkout; may be repeated."""


@dataclass(frozen=True)
class Cost:
    """What a piece of work took.

    Attributes:
        wall: Wall time, s.
        processor: Processor time of all its processes, s.
    """

    wall: float
    processor: float


def _measure_all(options: FirstMinuteOptions) -> int:
    if options.tool not in task_names():
        raise UnknownNameError("tool", options.tool, task_names())
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)  # processes of Ray outlive their driver
    here = Path(__file__).resolve().parents[1]
    checkouts = list(dict.fromkeys([here, *(each.resolve() for each in options.checkout)]))
    costs: dict[Path, dict[str, list[Cost]]] = {each: defaultdict(list) for each in checkouts}
    loads = [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory() as scratch:
        for repeat in range(options.repeats):
            for number, checkout in enumerate(checkouts):
                folder = Path(scratch) / f"{number}-{repeat}"
                folder.mkdir()
                for name, cost in measure(checkout, folder, options):
                    costs[checkout][name].append(cost)
                    print_now(options, f"{checkout.name}: {name}: {_words(cost)}")
                loads.append(os.getloadavg()[0])
    figures = {str(each): summarize(costs[each], options.episodes) for each in checkouts}
    summary = {
        "machine": machine_name(),
        "load": [min(loads), max(loads)],
        **options.model_dump(include={"tool", "episodes", "repeats"}),
        "figures": figures,
    }
    options.report(summary, lambda: _as_text(summary))
    return cli.OK


def measure(
    checkout: Path, folder: Path, options: FirstMinuteOptions
) -> Iterator[tuple[str, Cost]]:
    """Yields what each piece of work costs in a checkout, by its name.

    Args:
        checkout: Root of the checkout.
        folder: An empty folder.
        options: The options.

    Raises:
        OSError: A program failed.
    """
    environment = {
        **os.environ,
        "PYTHONPATH": str(checkout),
        "NUMBA_CACHE_DIR": str(folder / "cache"),
    }

    def cost(*arguments: str) -> Cost:
        return cost_of([sys.executable, *arguments], folder, environment)[0]

    for cache in ("empty", "filled"):
        _, printed = cost_of([sys.executable, "-c", RESETS, options.tool], folder, environment)
        first, again = (Cost(*each) for each in json.loads(printed))
        yield f"first reset, {cache} cache", first
    yield "second reset", again
    yield "import fleet_tools", cost("-c", "import fleet_tools")
    collect = ("-m", "fleet_tools.collect")
    yield "collect --help", cost(*collect, "--help")
    collect = (*collect, "--tool", options.tool, "--quiet", "--episodes")
    cost(*collect, "1", "--workers", "0", "--output", "warm")  # compiles what resets do not need
    for episodes in options.episodes:
        for number, (name, workers) in enumerate(WORKERS.items()):
            output = ("--output", f"{episodes}-{number}")
            yield f"{episodes} episodes, {name}", cost(*collect, str(episodes), *output, *workers)


def cost_of(command: list[str], folder: Path, environment: dict[str, str]) -> tuple[Cost, str]:
    """Runs a command; returns what it and all its processes cost, and what it printed."""
    before, started = _children_seconds(), time.monotonic()
    with _Watch() as watch:
        done = subprocess.run(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
        )
        wall = time.monotonic() - started
        if done.returncode != 0:
            raise OSError(f"{' '.join(command)} failed; see above")
        with contextlib.suppress(ChildProcessError):  # there are no more
            while True:  # also those that have lost their parent
                os.wait()
    # The system counts what is waited for, exactly; Ray's daemon does not wait for its workers.
    return Cost(wall, max(_children_seconds() - before, watch.seconds())), done.stdout


def _children_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class _Watch(threading.Thread):
    """Notes the processor time of all processes below this one, several times in a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._seconds: dict[psutil.Process, float] = {}
        self._over = threading.Event()

    def __enter__(self) -> "_Watch":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(0.25):
            for each in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):  # it has just ended
                    times = each.cpu_times()
                    self._seconds[each] = times.user + times.system

    def seconds(self) -> float:
        return sum(self._seconds.values())


def summarize(
    costs: dict[str, list[Cost]], episodes: tuple[int, int]
) -> dict[str, dict[str, float]]:
    """Returns medians, and what follows from the two sizes: fixed costs, and those of many.

    Args:
        costs: Repeated costs by name.
        episodes: The two sizes.
    """
    figures = {
        name: {
            "wall": median(each.wall for each in repeated),
            "processor": median(each.processor for each in repeated),
        }
        for name, repeated in costs.items()
    }
    for name in WORKERS:
        small, large = (figures[f"{each} episodes, {name}"] for each in episodes)
        slope = {kind: (large[kind] - small[kind]) / (episodes[1] - episodes[0]) for kind in small}
        fixed = {kind: small[kind] - episodes[0] * slope[kind] for kind in small}
        many = {kind: fixed[kind] + MANY * slope[kind] for kind in small}
        figures |= {f"fixed cost, {name}": fixed, f"{MANY} episodes, {name}": many}
    return figures


def _as_text(summary: dict[str, Any]) -> str:
    figures: dict[str, dict[str, dict[str, float]]] = summary["figures"]
    lines = [table_head(["wall / processor time, s", *figures])]
    for name in next(iter(figures.values())):
        cells = (_words(Cost(**each[name])) for each in figures.values())
        lines.append(table_row([name, *cells]))
    low, high = summary["load"]
    return "\n".join([*lines, f"On {summary['machine']}, load {low:.1f} to {high:.1f}."])


def _words(cost: Cost) -> str:
    return f"{cost.wall:.2f} / {cost.processor:.2f}"


PROGRAM = cli.Program(
    "first_minute.py", cli.Command(FirstMinuteOptions, _measure_all), launcher="python benchmarks/"
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
