"""Measures the speed of training and of its batches: `python benchmarks/training.py`."""

import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fleet_tools.baselines.policies.config import policy_config
from fleet_tools.config.values import Count
from fleet_tools.utils import cli
from fleet_tools.utils.machine import machine_name
from fleet_tools.utils.progress import progress_bar

# PyTorch and datasets are imported once the arguments are known to be valid.
if TYPE_CHECKING:
    import numpy as np

    from fleet_tools.dataset.header import Header
    from fleet_tools.dataset.samples import Samples

_EPISODE_STEPS = 12
"""Number of steps of an episode, about that of the expert with the hammer."""


class TrainingBenchmarkOptions(cli.Options):
    """Measures the speed of behaviour cloning: steps and batches per second.

    Policies have their default sizes. Times are wall times, medians of several epochs; those of
    making batches alone are measured, too.

    Exit codes:
    0: all policies are measured.
    2: it cannot begin.
    130: Ctrl-C.
    """

    dataset: tuple[Path, ...] = ()
    """Folders of datasets (default: random numbers in the layout of the hammer's state)."""
    steps: Count = 6000
    """Number of steps of random numbers."""
    architectures: tuple[str, ...] = ("mlp", "elman", "gru", "transformer")
    """Architectures of the policies."""
    batch_size: Count = 512
    """Number of steps in a batch."""
    epochs: Count = 3
    """Number of epochs that are measured, after a first one."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Device of the computation."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of the computation."""
    threads: Count = 1
    """Number of threads."""


def _measure_all(options: TrainingBenchmarkOptions) -> int:
    import torch

    from fleet_tools.dataset.samples import Samples

    torch.set_num_threads(options.threads)
    measured = []
    with (
        tempfile.TemporaryDirectory() as folder,
        progress_bar(len(options.architectures), "policy", quiet=options.quiet) as bar,
    ):
        samples = Samples(options.dataset or _make_data(Path(folder) / "data", options.steps))
        for name in options.architectures:
            measured.append({"architecture": name, **measure(name, samples, options)})
            bar.update()
    hardware = torch.cuda.get_device_name() if options.device == "cuda" else machine_name()
    threads = f"{options.threads} thread{'s' * (options.threads != 1)}"
    machine = f"{hardware}, {threads}, PyTorch {torch.__version__}"
    options.report(
        {"machine": machine, "policies": measured},
        lambda: "\n".join([f"On {machine}:", *map(_as_text, measured)]),
    )
    return cli.OK


def _as_text(measured: dict[str, Any]) -> str:
    return (
        f"{measured['architecture']:>20}: {measured['samples_per_second']:9.0f} steps per second "
        f"({measured['batches_per_second']:6.2f} batches); batches alone "
        f"{measured['loaded_per_second']:9.0f}, {measured['times']:.0f} times as many"
    )


def measure(name: str, samples: "Samples", options: TrainingBenchmarkOptions) -> dict[str, float]:
    """Returns the numbers of steps that are learned from, and that are loaded, per second."""
    import numpy as np
    import torch

    from fleet_tools.baselines.training.config import TrainingConfig
    from fleet_tools.baselines.training.demonstrations import blueprint_of
    from fleet_tools.baselines.training.loop import train
    from fleet_tools.baselines.training.state import TrainingState
    from fleet_tools.baselines.training.trajectories import Trajectories

    blueprint = blueprint_of(policy_config(name), samples)
    trajectories = Trajectories(samples, blueprint, options.device)
    config = TrainingConfig(batch_size=options.batch_size, precision=options.precision)
    state = TrainingState.initial(blueprint.create().state_dict())
    batches = len(trajectories.order(config.batch_size, None))
    learning, loading = [], []
    for epoch in range(1 + options.epochs):  # the first warms up
        started = time.perf_counter()
        state = train(blueprint, trajectories, config, state, epochs=1)
        learning.append(time.perf_counter() - started)
        started = time.perf_counter()
        for items in trajectories.order(config.batch_size, np.random.default_rng(epoch)):
            trajectories.batch(items)
        if options.device == "cuda":
            torch.cuda.synchronize()
        loading.append(time.perf_counter() - started)
    learning_s, loading_s = (statistics.median(times[1:]) for times in (learning, loading))
    return {
        "samples_per_second": trajectories.steps / learning_s,
        "batches_per_second": batches / learning_s,
        "loaded_per_second": trajectories.steps / loading_s,
        "times": learning_s / loading_s,
    }


def _make_data(folder: Path, steps: int) -> Path:
    """Makes a dataset of random numbers in the layout of the hammer's state observations."""
    import numpy as np
    import random_data

    def observe(
        header: "Header", number: int, count: int, generator: "np.random.Generator"
    ) -> "Mapping[str, np.ndarray]":
        return {
            name: generator.normal(size=(count + 1, *array.shape)).astype(np.float32)
            for name, array in header.observation.items()
        }

    return random_data.make(folder, steps, _EPISODE_STEPS, observe).folder


PROGRAM = cli.Program(
    "training.py",
    cli.Command(TrainingBenchmarkOptions, _measure_all),
    launcher="python benchmarks/",
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
