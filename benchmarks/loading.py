"""How fast batches come out of a data set: `python benchmarks/loading.py`.

Makes a data set of random point clouds, and reads random batches of its steps beside Minari's own
reader, which opens the very same files through a view of links (left out where `minari` is not
installed). Minari reads whole episodes only, so a step costs it an episode. The files are in the
page cache, for they were just written: nothing here waits for a disk. Times are of the wall clock,
medians of several runs: run it on an idle machine.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import random_data
import torch
from torch.utils.data import DataLoader

from fleet_tools.dataset import Dataset
from fleet_tools.dataset.export import export_dataset
from fleet_tools.dataset.export.minari import dataset_id
from fleet_tools.dataset.header import Array
from fleet_tools.dataset.learning import FleetDataset, collate
from fleet_tools.dataset.normalization import normalization_of
from fleet_tools.utils.machine import machine_name

EPISODE_STEPS = 33
"""About what the expert takes."""


def main() -> None:
    """Runs the program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--points", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--length", type=int, default=16, help="of sequences")
    parser.add_argument("--workers", type=int, default=2, help="of the DataLoader")
    parser.add_argument("--minari-batches", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where there is room; a temporary one if left")
    parser.add_argument("--json", action="store_true", help="a line for each figure")
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    def report(what: str, milliseconds: float, **rest: float) -> None:
        if arguments.json:
            print(json.dumps({"what": what, "milliseconds": milliseconds, **rest}), flush=True)
            return
        told = "".join(f"   {name.replace('_', ' ')} {number:.4g}" for name, number in rest.items())
        print(f"{what:>44} {milliseconds:10.2f} ms{told}", flush=True)

    if not arguments.json:
        print(f"On {machine_name()}.")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        begun = time.perf_counter()
        dataset = make(Path(folder) / "data", arguments.steps, arguments.points)
        size = sum(path.stat().st_size for path in dataset.folder.rglob("*") if path.is_file())
        report("making the data", 1e3 * (time.perf_counter() - begun), gigabytes=size / 1e9)
        measure(dataset, arguments, report)


def measure(dataset: Dataset, arguments: argparse.Namespace, report: Callable) -> None:
    """Reports how long everything takes."""
    begun = time.perf_counter()
    samples = FleetDataset(dataset.folder, observations=["point_cloud"])
    report("opening the data set", 1e3 * (time.perf_counter() - begun), steps=len(samples))
    batch, generator = arguments.batch, np.random.default_rng(0)

    def random_batch(of: FleetDataset, size: int) -> Callable:
        return lambda: collate(of.__getitems__(generator.integers(len(of), size=size)))

    first, warm = f"{batch} random steps", f"{batch} random steps, warm"
    report(f"{first}, first batch", _milliseconds(random_batch(samples, batch), 1))
    begun = time.perf_counter()
    for place in range(len(samples.episodes)):
        samples.rows(place)
    report("mapping the other episodes", 1e3 * (time.perf_counter() - begun))
    _milliseconds(random_batch(samples, batch), 200)  # until all pages are mapped
    ours = _milliseconds(random_batch(samples, batch), 100)
    report(warm, ours, gigabytes_per_second=batch * arguments.points * 16 / ours / 1e6)
    one_by_one = lambda: [samples[int(k)] for k in generator.integers(len(samples), size=batch)]  # noqa: E731
    report("... one by one", _milliseconds(one_by_one, 5))
    for workers in (0, arguments.workers):
        report(f"... of a DataLoader with {workers} workers", _loaded(samples, batch, workers))
    length = arguments.length
    windows = FleetDataset(dataset.folder, observations=["point_cloud"], sequence_length=length)
    count = max(1, batch // length)
    _milliseconds(random_batch(windows, count), 400)
    report(f"{count} random windows of {length}", _milliseconds(random_batch(windows, count), 100))
    begun = time.perf_counter()
    normalization_of(samples)
    report("statistics of everything", 1e3 * (time.perf_counter() - begun))
    try:
        view = minari_view(dataset, dataset.folder.parent / "view")
    except ImportError:
        return
    steps = np.array([episode.record.steps for episode in samples.episodes])
    ends = np.cumsum(steps)

    def minari_steps():
        indices = generator.integers(len(samples), size=batch)
        episodes = np.searchsorted(ends, indices, side="right")
        starts = indices - (ends - steps)[episodes]
        clouds = np.empty((batch, arguments.points, 4), np.float32)
        actions = np.empty((batch, 6), np.float32)
        for k, (data, t) in enumerate(zip(view.iterate_episodes(episodes), starts, strict=True)):
            clouds[k], actions[k] = data.observations["point_cloud"][t], data.actions[t]
        return clouds, actions

    minari_steps()
    theirs = _milliseconds(minari_steps, arguments.minari_batches)
    report(f"{warm}, Minari's reader", theirs, times_ours=theirs / ours)


def make(folder: Path, steps: int, points: int) -> Dataset:
    """Makes a data set; its clouds are rolled from one another, for random numbers take long."""
    clouds = np.random.default_rng(1).normal(size=(EPISODE_STEPS + 1, points, 4))
    clouds[..., 3] = np.where(np.arange(points) < points // 2, 1, -1)
    clouds = clouds.astype(np.float32)
    layout = {
        "point_cloud": Array(shape=(points, 4), dtype="float32", unit="m, mask", frame=None),
        "joint_position": Array(shape=(7,), dtype="float32", unit="rad", frame=None),
    }

    def observe(header, number, count, generator):
        return {
            "point_cloud": np.roll(clouds, number, axis=1)[: count + 1],
            "joint_position": np.full((count + 1, 7), number, np.float32),
        }

    return random_data.make(folder, steps, EPISODE_STEPS, observe, layout)


def minari_view(dataset: Dataset, root: Path):
    """The data set as Minari opens it, through links to the episodes' files.

    Raises:
        ImportError: Minari is not installed.
    """
    import minari

    export_dataset(dataset, "minari", root)
    os.environ["MINARI_DATASETS_PATH"] = str(root)
    return minari.load_dataset(dataset_id(dataset.header))


def _loaded(samples: FleetDataset, batch: int, workers: int) -> float:
    """Milliseconds per batch of one pass, without the start of the workers."""
    loader = DataLoader(
        samples, batch, shuffle=True, num_workers=workers, collate_fn=collate, drop_last=True
    )
    batches = iter(loader)
    next(batches)
    begun = time.perf_counter()
    count = sum(1 for _ in batches)
    return 1e3 * (time.perf_counter() - begun) / count


def _milliseconds(work: Callable, times: int) -> float:
    """The median of a few runs."""
    took = []
    for _ in range(times):
        begun = time.perf_counter()
        work()
        took.append(time.perf_counter() - begun)
    return 1e3 * float(np.median(took))


if __name__ == "__main__":
    main()
