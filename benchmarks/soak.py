"""Watches one process that works for hours: `python benchmarks/soak.py --hours 3 --output soak`."""

import csv
import itertools
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from console import print_now

from fleet_tools.config.tasks import task_names
from fleet_tools.config.values import Positive
from fleet_tools.utils import cli
from fleet_tools.utils.machine import machine_name

if TYPE_CHECKING:  # --help answers without matplotlib
    from matplotlib.figure import Figure

_SETTLING = 0.25
"""Share of the time, at its beginning, that growth is not measured in: caches fill."""

_LABELS = {"memory_mib": "memory, MiB", "descriptors": "descriptors", "threads": "threads"}


class SoakOptions(cli.Options):
    """Lets one process work, and watches its memory, its file descriptors and its threads.

    It does in turn, with each task: resets and steps of an environment that stays; an environment
    with cameras, made, observed and closed; the collection of an episode of the expert, and the
    reading of its data; the evaluation of a random policy. The growth is that of a straight line
    through the samples, without those of the first quarter of the time.

    Exit codes:
    0: the time is over.
    2: it cannot begin.
    130: Ctrl-C.
    """

    hours: Positive = 1.0
    """How long it works."""
    every: Positive = 60.0
    """Time from one sample to the next, s; a sample is taken between two works."""
    output: Path
    """Folder of soak.csv, with all samples, and of the figure soak.png."""


class Sample(NamedTuple):
    """What the process holds at a moment.

    Attributes:
        minutes: Time since the start.
        memory_mib: Resident memory.
        descriptors: Number of open file descriptors.
        threads: Number of threads.
        rounds: Number of works done.
    """

    minutes: float
    memory_mib: float
    descriptors: int
    threads: int
    rounds: int


def _soak(options: SoakOptions) -> int:
    options.output.mkdir(parents=True, exist_ok=True)
    samples: list[Sample] = []
    with (options.output / "soak.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(Sample._fields)
        for sample in watch(60 * options.hours, options.every / 60):
            samples.append(sample)
            writer.writerow(sample)
            file.flush()
            numbers = (f"{name} {number:g}" for name, number in sample._asdict().items())
            print_now(options, "   ".join(numbers))
    draw(samples).savefig(options.output / "soak.png", dpi=120)
    rates = growth(samples)
    summary = {
        "machine": machine_name(),
        "rounds": samples[-1].rounds,
        "last": samples[-1]._asdict(),
        "growth_per_hour": rates,
    }
    options.report(summary, lambda: as_text(samples[-1], rates))
    return cli.OK


def watch(minutes: float, every: float) -> Iterator[Sample]:
    """Works, and yields samples, the first one after one round of all works.

    Args:
        minutes: How long.
        every: Time between samples, minutes.
    """
    import psutil

    process = psutil.Process()
    with tempfile.TemporaryDirectory() as folder:
        works = work(Path(folder))
        for _ in range(len(task_names())):
            next(works)
        started = time.monotonic()
        due = 0.0
        for rounds in itertools.count():
            now = (time.monotonic() - started) / 60
            if now >= min(due, minutes):
                due += every
                with process.oneshot():
                    memory = process.memory_info().rss / 2**20
                    yield Sample(
                        round(now, 3),
                        round(memory, 1),
                        process.num_fds(),
                        process.num_threads(),
                        rounds,
                    )
            if now >= minutes:
                return
            next(works)


def work(folder: Path) -> Iterator[str]:
    """Works for ever, with one task after the other; yields the name of each.

    Args:
        folder: Folder for datasets and evaluations, which are removed again.
    """
    import shutil

    import numpy as np

    from fleet_tools import collect, evaluate
    from fleet_tools.dataset.samples import Samples
    from fleet_tools.envs.making import make_env

    envs = {task: make_env(task=task, split="all") for task in task_names()}
    generator = np.random.default_rng(0)
    for number in itertools.count():
        task = task_names()[number % len(envs)]
        for _ in range(3):
            envs[task].reset(seed=int(generator.integers(2**32)))
            for _ in range(10):
                envs[task].step(generator.uniform(-0.3, 0.3, 6).astype(np.float32))
        seeing = make_env(task=task, obs_mode="rgbd", camera_size=(64, 48))
        seeing.reset(seed=number)
        seeing.close()
        data, result = folder / "data", folder / "result"
        options = ["--workers", "0", "--quiet"]
        which = ["--task", task, "--episodes", "1", "--seed", str(number)]
        collect.main([*which, "--output", str(data), *options])
        samples = Samples(data)
        samples.gather(range(len(samples)))
        del samples  # whose files are mapped
        which = ["--policy", "random", "--tool", task, "--split", "train", "--scenes", "1"]
        evaluate.main([*which, "--output", str(result), *options])
        shutil.rmtree(data)
        shutil.rmtree(result)
        yield task


def growth(samples: Sequence[Sample]) -> dict[str, float]:
    """Returns the growth of each quantity per hour, once the process has settled."""
    import numpy as np

    settled = [each for each in samples if each.minutes >= _SETTLING * samples[-1].minutes]
    hours = [each.minutes / 60 for each in settled]
    if len(settled) < 3:
        return {}
    return {
        name: float(np.polyfit(hours, [getattr(each, name) for each in settled], 1)[0])
        for name in _LABELS
    }


def draw(samples: Sequence[Sample]) -> "Figure":
    """Draws memory, descriptors and threads over time, one above the other."""
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context("default"):
        figure = Figure((7.0, 5.6), layout="constrained")
        minutes = [each.minutes for each in samples]
        panels: Any = figure.subplots(len(_LABELS), 1, sharex=True)
        for axes, (name, label) in zip(panels, _LABELS.items(), strict=True):
            values = [getattr(each, name) for each in samples]
            axes.plot(minutes, values, marker=".", linewidth=1)
            axes.set_ylim(0, 1.2 * max(values))
            axes.set_ylabel(label)
            axes.grid(alpha=0.3)
            axes.axvspan(0, _SETTLING * minutes[-1], color="0.93", zorder=0)
        panels[-1].set_xlabel("minutes")
    return figure


def as_text(last: Sample, rates: dict[str, float]) -> str:
    """Returns the growth as text."""
    lines = [f"{last.rounds} rounds in {last.minutes:.1f} min on {machine_name()}; per hour:"]
    lines += [f"  {_LABELS[name]}: {rate:+.3g}" for name, rate in rates.items()]
    return "\n".join(lines)


PROGRAM = cli.Program("soak.py", cli.Command(SoakOptions, _soak), launcher="python benchmarks/")
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
