"""How fast policies are trained, and batches made for it: `python benchmarks/training.py`.

Behaviour cloning on one data set, the given one (`--data`) or one of random numbers in the layout
of the hammer's, by policies as they are by default: demonstration steps and batches a second, and
steps a second of the loader alone. Times are of the wall clock, medians of several epochs.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import random_data
import torch

from fleet_tools.baselines.policies.config import policy_config
from fleet_tools.baselines.training.config import TrainingConfig
from fleet_tools.baselines.training.experiment import blueprint_of
from fleet_tools.baselines.training.loop import train
from fleet_tools.baselines.training.state import TrainingState
from fleet_tools.baselines.training.trajectories import Trajectories
from fleet_tools.dataset.samples import Samples
from fleet_tools.utils.machine import machine_name

EPISODE_STEPS = 12
"""About what the expert's hammer takes."""


def main() -> None:
    """Runs the program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, nargs="+", help="data sets; random numbers if left")
    parser.add_argument("--steps", type=int, default=6000, help="of random numbers")
    parser.add_argument("--policies", nargs="+", default=["mlp", "elman", "gru", "transformer"])
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="a line for each policy")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    machine = torch.cuda.get_device_name() if arguments.device == "cuda" else machine_name()
    if not arguments.json:
        threads = f"{arguments.threads} thread{'s' * (arguments.threads != 1)}"
        print(f"On {machine}, {threads}, PyTorch {torch.__version__}.")
    with tempfile.TemporaryDirectory() as folder:
        samples = Samples(arguments.data or make(Path(folder) / "data", arguments.steps))
        for name in arguments.policies:
            took = measure(name, samples, arguments)
            if arguments.json:
                print(json.dumps({"policy": name, **took}), flush=True)
                continue
            print(
                f"{name:>20}: {took['samples_per_second']:9.0f} steps learned from a second "
                f"({took['batches_per_second']:6.2f} batches); the loader alone gives "
                f"{took['loaded_per_second']:9.0f}, {took['times']:.0f} times as many",
                flush=True,
            )


def measure(name: str, samples: Samples, arguments: argparse.Namespace) -> dict[str, float]:
    """Returns how many steps a second are learned from, and how many are loaded."""
    blueprint = blueprint_of(policy_config(name), samples)
    trajectories = Trajectories(samples, blueprint, arguments.device)
    config = TrainingConfig(batch_size=arguments.batch_size, precision=arguments.precision)
    state = TrainingState.initial(blueprint.create().state_dict())
    learning, loading = [], []
    for epoch in range(1 + arguments.epochs):  # the first warms up
        begun = time.perf_counter()
        state = train(blueprint, trajectories, config, state, epochs=1)
        learning.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        order = trajectories.order(config.batch_size, np.random.default_rng(epoch))
        for items in order:
            trajectories.batch(items)
        if arguments.device == "cuda":
            torch.cuda.synchronize()
        loading.append(time.perf_counter() - begun)
    learning, loading = (statistics.median(took[1:]) for took in (learning, loading))
    return {
        "samples_per_second": trajectories.steps / learning,
        "batches_per_second": len(order) / learning,
        "loaded_per_second": trajectories.steps / loading,
        "times": learning / loading,
    }


def make(folder: Path, steps: int) -> Path:
    """Makes a data set of random numbers, as a hammer's state observations are laid out."""

    def observe(header, number, count, generator):
        return {
            name: generator.normal(size=(count + 1, *array.shape)).astype(np.float32)
            for name, array in header.observation.items()
        }

    return random_data.make(folder, steps, EPISODE_STEPS, observe).folder


if __name__ == "__main__":
    main()
