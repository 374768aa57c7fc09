"""Measures how fast batches are read from a dataset: `python benchmarks/loading.py`.

It creates a dataset of random point clouds, and reads random batches of its steps. Minari's own
reader reads the same files through a view of links (if `minari` is installed); it reads whole
episodes only, so a step costs it an episode. The files have just been written and are in the page
cache, so nothing waits for a disk. Times are wall times, medians of several runs; run it on an idle
machine.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console import print_now

from fleet_tools.config.values import Count, CountOrZero
from fleet_tools.utils import cli
from fleet_tools.utils.machine import machine_name

# PyTorch and datasets are imported once the arguments are known to be valid.
if TYPE_CHECKING:
    import numpy as np

    from fleet_tools.dataset import Dataset
    from fleet_tools.dataset.header import Header
    from fleet_tools.dataset.samples import Samples

EPISODE_STEPS = 33
"""Approximate number of steps of an expert's episode."""


class LoadingOptions(cli.Options):
    """Measures how fast batches are read from a dataset of random point clouds.

    Exit codes:
    0: everything is measured.
    2: it cannot begin.
    130: Ctrl-C.
    """

    steps: Count = 50_000
    """Number of steps of the dataset."""
    points: Count = 1024
    """Number of points of a cloud."""
    batch: Count = 512
    """Number of steps of a batch."""
    length: Count = 16
    """Number of steps of a window."""
    workers: CountOrZero = 2
    """Number of the DataLoader's workers."""
    minari_batches: Count = 3
    """Number of batches that Minari's reader reads."""
    folder: Path | None = None
    """Folder with room for the dataset (default: the system's folder for temporary files)."""


@dataclass(frozen=True)
class Figure:
    """A measured time.

    Attributes:
        name: What was measured.
        milliseconds: Wall time.
        details: Other numbers, by name.
    """

    name: str
    milliseconds: float
    details: dict[str, float]

    def as_text(self) -> str:
        """Returns the figure as a line."""
        details = (f"   {name.replace('_', ' ')} {x:.4g}" for name, x in self.details.items())
        return f"{self.name:>44} {self.milliseconds:10.2f} ms{''.join(details)}"


def _measure(options: LoadingOptions) -> int:
    import torch

    torch.set_num_threads(1)
    figures = []
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for figure in measure(Path(folder), options):
            figures.append(figure)
            print_now(options, figure.as_text())
    summary = {
        "machine": machine_name(),
        "figures": [
            {"name": each.name, "milliseconds": each.milliseconds, **each.details}
            for each in figures
        ],
    }
    options.report(summary, lambda: f"Measured on {machine_name()}.")
    return cli.OK


def measure(folder: Path, options: LoadingOptions) -> Iterator[Figure]:
    """Yields all figures.

    Args:
        folder: Empty folder for the dataset.
        options: Sizes and numbers.
    """
    import numpy as np

    from fleet_tools.dataset.normalization import normalization_of
    from fleet_tools.dataset.samples import Samples

    started = time.perf_counter()
    dataset = make_dataset(folder / "data", options.steps, options.points)
    size = sum(path.stat().st_size for path in dataset.folder.rglob("*") if path.is_file())
    yield Figure("creating the dataset", _since(started), {"gigabytes": size / 1e9})
    started = time.perf_counter()
    samples = Samples(dataset.folder, observations=["point_cloud"])
    yield Figure("opening the dataset", _since(started), {"steps": len(samples)})

    batch, generator = options.batch, np.random.default_rng(0)

    def random_batch(of: Samples, count: int) -> Callable[[], object]:
        return lambda: of.gather(generator.integers(len(of), size=count))

    def single_samples() -> object:
        return [samples[int(k)] for k in generator.integers(len(samples), size=batch)]

    name = f"{batch} random steps"
    yield Figure(f"{name}, first batch", _median(random_batch(samples, batch), 1), {})
    started = time.perf_counter()
    for episode in samples.episodes:
        _ = episode.contents
    yield Figure("locating the other episodes", _since(started), {})
    warm = _median(random_batch(samples, batch), 100)
    speed = {"gigabytes_per_second": batch * options.points * 16 / warm / 1e6}
    yield Figure(f"{name}, warm", warm, speed)
    yield Figure("... one by one", _median(single_samples, 5), {})
    for workers in (0, options.workers):
        loaded = _of_data_loader(samples, batch, workers)
        yield Figure(f"... of a DataLoader with {workers} workers", loaded, {})
    windows = Samples(dataset.folder, observations=["point_cloud"], sequence_length=options.length)
    count = max(1, batch // options.length)
    _median(random_batch(windows, count), 20)
    yield Figure(
        f"{count} random windows of {options.length}",
        _median(random_batch(windows, count), 100),
        {},
    )
    yield from costs_of_checks(dataset)
    started = time.perf_counter()
    normalization_of(samples)
    yield Figure("statistics of all steps", _since(started), {})
    try:
        view = minari_view(dataset, folder / "view")
    except ImportError:
        return
    minari = _median(_minari_batch(view, samples, options), options.minari_batches, warm_up=1)
    yield Figure(f"{name}, warm, Minari's reader", minari, {"ratio": minari / warm})


def costs_of_checks(dataset: "Dataset") -> Iterator[Figure]:
    """Yields the times of locating and of reading all episodes, with integrity checks and without.

    Digests are checked once, when an episode is located, and values whenever they are read.
    """
    from fleet_tools.dataset import Dataset
    from fleet_tools.dataset.samples import Samples

    def locating(check: bool) -> float:
        def work() -> None:
            for episode in Samples(dataset.folder, check=check).episodes:
                _ = episode.contents

        return _median(work, 3)

    def reading(check: bool) -> float:
        return _median(lambda: [None for _ in Dataset(dataset.folder, check=check)], 3)

    count = len(dataset)
    for name, work in (("locating", locating), ("reading", reading)):
        unchecked, checked = work(False), work(True)
        each = {"milliseconds_per_episode": unchecked / count}
        yield Figure(f"{name} {count} episodes, --no-check", unchecked, each)
        each = {"milliseconds_per_episode": checked / count, "ratio": checked / unchecked}
        yield Figure(f"{name} {count} episodes, checked", checked, each)


def make_dataset(folder: Path, steps: int, points: int) -> "Dataset":
    """Creates a dataset whose clouds are all rolled from one, since random numbers take long."""
    import numpy as np
    import random_data

    from fleet_tools.dataset.header import ArraySpec

    clouds = np.random.default_rng(1).normal(size=(EPISODE_STEPS + 1, points, 4))
    clouds[..., 3] = np.where(np.arange(points) < points // 2, 1, -1)
    clouds = clouds.astype(np.float32)
    layout = {
        "point_cloud": ArraySpec(
            kind="points", shape=(points, 4), dtype="float32", unit="m, mask", frame=None
        ),
        "joint_position": ArraySpec(
            kind="state", shape=(7,), dtype="float32", unit="rad", frame=None
        ),
    }

    def observe(
        header: "Header", number: int, count: int, generator: "np.random.Generator"
    ) -> "dict[str, np.ndarray]":
        return {
            "point_cloud": np.roll(clouds, number, axis=1)[: count + 1],
            "joint_position": np.full((count + 1, 7), number, np.float32),
        }

    return random_data.make(folder, steps, EPISODE_STEPS, observe, layout)


def minari_view(dataset: "Dataset", root: Path) -> Any:
    """Opens a dataset with Minari, through links to the episodes' files.

    Raises:
        ImportError: Minari is not installed.
    """
    import minari

    from fleet_tools.dataset.export.exporting import export_dataset
    from fleet_tools.dataset.export.minari import dataset_id

    export_dataset(dataset, "minari", root)
    os.environ["MINARI_DATASETS_PATH"] = str(root)
    return minari.load_dataset(dataset_id([dataset]))


def _minari_batch(
    view: Any, samples: "Samples", options: LoadingOptions
) -> "Callable[[], tuple[np.ndarray, np.ndarray]]":
    """Returns a function that reads a batch of random steps with Minari."""
    import numpy as np

    generator = np.random.default_rng(0)
    ends = samples.starts + samples.lengths

    def read() -> "tuple[np.ndarray, np.ndarray]":
        indices = generator.integers(len(samples), size=options.batch)
        episodes = np.searchsorted(ends, indices, side="right")
        starts = indices - samples.starts[episodes]
        clouds = np.empty((options.batch, options.points, 4), np.float32)
        actions = np.empty((options.batch, 6), np.float32)
        for k, (data, t) in enumerate(zip(view.iterate_episodes(episodes), starts, strict=True)):
            clouds[k], actions[k] = data.observations["point_cloud"][t], data.actions[t]
        return clouds, actions

    return read


def _of_data_loader(samples: "Samples", batch: int, workers: int) -> float:
    """Returns the milliseconds per batch of one pass, without the start of the workers."""
    from torch.utils.data import BatchSampler, DataLoader, RandomSampler

    order = BatchSampler(RandomSampler(samples), batch, drop_last=True)
    loader = DataLoader(samples, sampler=order, batch_size=None, num_workers=workers)  # pyright: ignore[reportArgumentType]
    batches = iter(loader)
    next(batches)
    started = time.perf_counter()
    count = sum(1 for _ in batches)
    return _since(started) / count


def _median(work: Callable[[], object], runs: int, warm_up: int = 0) -> float:
    """Returns the median of the milliseconds of some runs, after others that do not count."""
    from statistics import median

    for _ in range(warm_up):
        work()
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        work()
        times.append(_since(started))
    return median(times)


def _since(started: float) -> float:
    return 1e3 * (time.perf_counter() - started)


PROGRAM = cli.Program(
    "loading.py", cli.Command(LoadingOptions, _measure), launcher="python benchmarks/"
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
