"""Watches processes that work for hours: `python benchmarks/soak.py --hours 2 --output soak`."""

import csv
import itertools
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from console import print_now
from soak_work import (
    WORKERS,
    Held,
    Round,
    StayingWork,
    collect_and_evaluate,
    come_and_go,
    failure_of,
    served_policy,
)

from fleet_tools.config.values import Positive
from fleet_tools.errors import FleetToolsError
from fleet_tools.parallel import workers
from fleet_tools.utils import cli
from fleet_tools.utils.machine import machine_name

if TYPE_CHECKING:  # --help answers without matplotlib
    from matplotlib.figure import Figure

_SETTLING = 0.25
"""Share of the time, at its beginning, that growth is not measured in: caches fill."""

_ROUND_LIMIT_S = 900.0
_LABELS = {"memory_mib": "memory, MiB", "descriptors": "descriptors", "threads": "threads"}
_OWN, _SERVER = "this process", "policy server"
_STAYING = [f"worker {number}" for number in range(1, WORKERS + 1)]
ROLES = (_OWN, *_STAYING, _SERVER)


class SoakOptions(cli.Options):
    """Lets processes work, and watches their memory, their file descriptors and their threads.

    Two workers stay, and do in turn, with each task: resets and steps of environments that stay,
    with states and with point clouds; an environment with cameras, made, observed and closed; the
    collection of an episode of the expert, and the reading of its data; the evaluation of the
    policy of a server, a further process. After each of their rounds, this process lets clients of
    that server come and go, collects and evaluates, with two workers of each program's own. Growth
    is that of a straight line through the samples, without those of the first quarter of the time.

    Work that fails is told and counted, and the rest goes on.

    Exit codes:
    0: the time is over, and nothing failed.
    1: something failed.
    2: it cannot begin.
    130: Ctrl-C.
    """

    hours: Positive = 1.0
    """How long they work."""
    every: Positive = 60.0
    """Time from one sample to the next, s; a sample is taken between two works."""
    output: Path
    """Folder of soak.csv, with all samples, of failures.txt, and of the figure soak.png."""


class SoakSample(NamedTuple):
    """What the processes hold at a moment.

    Attributes:
        minutes: Time since the start.
        rounds: Number of rounds done.
        failures: Number of works that failed.
        processes: Number of processes, with any that a program has left behind.
        held: What each of `ROLES` holds: a worker at the end of its last round.
    """

    minutes: float
    rounds: int
    failures: int
    processes: int
    held: dict[str, Held]

    def row(self) -> dict[str, float]:
        """Returns the entries of a row of soak.csv."""
        numbers = {name: value for name, value in self._asdict().items() if name != "held"}
        return numbers | {
            f"{role}: {_LABELS[name]}": round(value, 1)
            for role, held in self.held.items()
            for name, value in held._asdict().items()
        }


def _soak(options: SoakOptions) -> int:
    options.output.mkdir(parents=True, exist_ok=True)
    samples: list[SoakSample] = []
    with (
        (options.output / "soak.csv").open("w", newline="") as table,
        (options.output / "failures.txt").open("w") as failures,
    ):
        writer = csv.writer(table)
        for each in watch(60 * options.hours, options.every / 60):
            if isinstance(each, str):
                print(each, file=failures, flush=True)
                print_now(options, each)
                continue
            if not samples:
                writer.writerow(each.row())
            samples.append(each)
            writer.writerow(each.row().values())
            table.flush()
            numbers = (f"{name} {number:g}" for name, number in each.row().items())
            print_now(options, "   ".join(numbers))
    if not samples:
        raise FleetToolsError("No round was done in this time. Give more --hours.")
    draw(samples).savefig(options.output / "soak.png", dpi=120)
    rates = growth(samples)
    last = samples[-1]
    summary = {"machine": machine_name(), "last": last.row(), "growth_per_hour": rates}
    options.report(summary, lambda: as_text(last, rates))
    return cli.FAILED if last.failures else cli.OK


def watch(minutes: float, every: float) -> Iterator[SoakSample | str]:
    """Works, and yields samples, and a line for each failure.

    Args:
        minutes: How long.
        every: Time between samples, minutes.
    """
    started = time.monotonic()
    due, rounds, failures = 0.0, 0, 0
    numbers = itertools.count()
    while (time.monotonic() - started) / 60 < minutes:
        # What ends the pool or the server is one failure; both are started anew.
        for each in _session(numbers):
            now = (time.monotonic() - started) / 60
            if isinstance(each, str):
                failures += 1
                yield f"{now:.1f} min: {each}"
                continue
            rounds += 1
            if len(each) == len(ROLES) and now >= min(due, minutes):
                due = now + every
                yield SoakSample(round(now, 3), rounds, failures, _process_count(), each)
            if now >= minutes:
                return


def _session(numbers: Iterator[int]) -> Iterator[dict[str, Held] | str]:
    """Works until something ends a pool or the server; yields failures, and after rounds, holdings.

    Args:
        numbers: Numbers of the rounds.
    """
    try:
        with tempfile.TemporaryDirectory() as folder, served_policy(Path(folder)) as (url, server):
            yield from _rounds(numbers, url, server)
    except Exception as error:
        yield f"{type(error).__name__}: {error}"


def _rounds(numbers: Iterator[int], url: str, server: int) -> Iterator[dict[str, Held] | str]:
    """Lets workers that stay do rounds, and works after each; yields as `_session`."""
    import psutil

    staying: list[int] = []
    held: dict[str, Held] = {}
    pool = workers.run(
        lambda: next(numbers),
        lambda: StayingWork(url),
        count=WORKERS,
        timeout_s=_ROUND_LIMIT_S,
        address="local",
    )
    with closing(pool):
        for number, done in pool:
            if not isinstance(done, Round):
                yield f"round {number}: {done.reason}"
                return
            yield from done.failures
            yield from _programs(number, url)
            if done.pid not in staying:
                if len(staying) == WORKERS:
                    yield f"round {number}: a worker died, and another one did it"
                    return
                staying.append(done.pid)
            held[_STAYING[staying.index(done.pid)]] = done.held
            held[_OWN] = Held.by(psutil.Process())
            held[_SERVER] = Held.by(psutil.Process(server))
            yield {role: held[role] for role in ROLES if role in held}


def _programs(number: int, url: str) -> Iterator[str]:
    """Does the work of this process after a round; yields failures."""
    yield from failure_of("clients", lambda: come_and_go(url))
    with tempfile.TemporaryDirectory() as folder:
        yield from collect_and_evaluate(Path(folder), number, url, WORKERS)


def _process_count() -> int:
    import psutil

    return 1 + len(psutil.Process().children(recursive=True))


def growth(samples: Sequence[SoakSample]) -> dict[str, float]:
    """Returns the growth of each quantity of a row per hour, once the processes have settled."""
    import numpy as np

    settled = [each for each in samples if each.minutes >= _SETTLING * samples[-1].minutes]
    hours = [each.minutes / 60 for each in settled]
    if len(settled) < 3:
        return {}
    rows = [each.row() for each in settled]
    names = [name for name in rows[0] if name not in ("minutes", "rounds")]
    return {name: float(np.polyfit(hours, [row[name] for row in rows], 1)[0]) for name in names}


def draw(samples: Sequence[SoakSample]) -> "Figure":
    """Draws memory, descriptors and threads of each process over time, one above the other."""
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context("default"):
        figure = Figure((7.0, 6.4), layout="constrained")
        minutes = [each.minutes for each in samples]
        panels: Any = figure.subplots(len(_LABELS), 1, sharex=True)
        for axes, (name, label) in zip(panels, _LABELS.items(), strict=True):
            for role in ROLES:
                values = [getattr(each.held[role], name) for each in samples]
                axes.plot(minutes, values, marker=".", markersize=3, linewidth=1, label=role)
            axes.set_ylim(bottom=0)
            axes.set_ylabel(label)
            axes.grid(alpha=0.3)
            axes.axvspan(0, _SETTLING * minutes[-1], color="0.93", zorder=0)
        panels[-1].set_xlabel("minutes")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


def as_text(last: SoakSample, rates: Mapping[str, float]) -> str:
    """Returns the growth as text."""
    lines = [
        f"{last.rounds} rounds, {last.failures} failures in {last.minutes:.1f} min on "
        f"{machine_name()}; per hour:"
    ]
    lines += [f"  {name}: {rate:+.3g}" for name, rate in rates.items()]
    return "\n".join(lines)


PROGRAM = cli.Program("soak.py", cli.Command(SoakOptions, _soak), launcher="python benchmarks/")
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
