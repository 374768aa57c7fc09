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
    making batches alone are measured, too. Policies on clouds also take steps with all points
    beside steps with winners alone (see `policies.encoders`), in turns.

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
    clouds: tuple[str, ...] = ("pointnet_mlp", "pointnet_elman")
    """Architectures of the policies that learn from random clouds."""
    cloud_steps: Count = 512
    """Number of steps with random clouds."""
    points: Count = 1024
    """Number of points of each cloud, all of which are present."""
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
    measured, clouds = [], []
    names = (*options.architectures, *options.clouds)
    with (
        tempfile.TemporaryDirectory() as folder,
        progress_bar(len(names), "policy", quiet=options.quiet) as bar,
    ):
        samples = Samples(options.dataset or _make_data(Path(folder) / "data", options.steps))
        for name in options.architectures:
            measured.append({"architecture": name, **measure(name, samples, options)})
            bar.update()
        samples = Samples(_make_clouds(Path(folder) / "clouds", options))
        for name in options.clouds:
            clouds.append({"architecture": name, **measure_clouds(name, samples, options)})
            bar.update()
    hardware = torch.cuda.get_device_name() if options.device == "cuda" else machine_name()
    threads = f"{options.threads} thread{'s' * (options.threads != 1)}"
    machine = f"{hardware}, {threads}, PyTorch {torch.__version__}"
    options.report(
        {"machine": machine, "policies": measured, "clouds": clouds},
        lambda: "\n".join(
            [f"On {machine}:", *map(_as_text, measured), *map(_clouds_as_text, clouds)]
        ),
    )
    return cli.OK


def _as_text(measured: dict[str, Any]) -> str:
    return (
        f"{measured['architecture']:>20}: {measured['samples_per_second']:9.0f} steps per second "
        f"({measured['batches_per_second']:6.2f} batches); batches alone "
        f"{measured['loaded_per_second']:9.0f}, {measured['times']:.0f} times as many"
    )


def _clouds_as_text(measured: dict[str, Any]) -> str:
    return (
        f"{measured['architecture']:>20}: {measured['all_points']:7.1f} steps per second with all "
        f"points, {measured['winners']:7.1f} by winners ({measured['ratio']:.1f} times), "
        f"{measured['winners_bfloat16']:7.1f} in bfloat16 ({measured['ratio_bfloat16']:.1f} "
        f"times); by winners, the products of the encoder's first pass are "
        f"{measured['share_of_peak']:.0%} of what this processor multiplies in a large product"
    )


def measure_clouds(
    name: str, samples: "Samples", options: TrainingBenchmarkOptions
) -> dict[str, float]:
    """Returns numbers of steps learned from per second with all points, and by winners."""
    import torch

    from fleet_tools.baselines.policies.encoders import PointNetEncoder
    from fleet_tools.baselines.training.demonstrations import Trajectories, blueprint_of
    from fleet_tools.baselines.training.loop import draws, imitation_losses

    blueprint = blueprint_of(policy_config(name), samples)
    trajectories = Trajectories(samples, blueprint, options.device)
    (items, *_) = trajectories.order(options.batch_size, None)
    batch = trajectories.batch(items)
    network = blueprint.create().to(options.device).train()
    encoder = network.get_submodule("clouds")
    assert isinstance(encoder, PointNetEncoder)
    optimizer = torch.optim.Adam(network.parameters())

    def step(by_winners: bool, bfloat16: bool) -> None:
        encoder.by_winners = by_winners
        with torch.autocast(options.device, torch.bfloat16, enabled=bfloat16):
            losses = imitation_losses(network, batch, blueprint.config.head, draws(0, 0, 0))
        optimizer.zero_grad()
        losses.sum().backward()
        optimizer.step()
        if options.device == "cuda":
            torch.cuda.synchronize()

    left, right = (torch.randn(1024, 512, device=options.device) for _ in range(2))
    arms = {
        "all_points": lambda: step(False, False),
        "winners": lambda: step(True, False),
        "winners_bfloat16": lambda: step(True, True),
        "product": lambda: (left @ right.T).sum().item(),
    }
    times: dict[str, list[float]] = {arm: [] for arm in arms}
    for _ in range(1 + options.epochs):  # the first warms up
        for arm, run in arms.items():
            started = time.perf_counter()
            run()
            times[arm].append(time.perf_counter() - started)
    seconds = {arm: statistics.median(each[1:]) for arm, each in times.items()}
    steps = int(batch.mask.sum())
    weights = sum(each.numel() for each in encoder.parameters() if each.dim() == 2)
    peak = left.numel() * len(right) / min(times["product"])
    rates = {arm: steps / seconds[arm] for arm in list(arms)[:3]}
    return {
        **rates,
        "ratio": rates["winners"] / rates["all_points"],
        "ratio_bfloat16": rates["winners_bfloat16"] / rates["all_points"],
        "share_of_peak": rates["winners"] * options.points * weights / peak,
    }


def measure(name: str, samples: "Samples", options: TrainingBenchmarkOptions) -> dict[str, float]:
    """Returns the numbers of steps that are learned from, and that are loaded, per second."""
    import numpy as np
    import torch

    from fleet_tools.baselines.training.config import TrainingConfig
    from fleet_tools.baselines.training.demonstrations import Trajectories, blueprint_of
    from fleet_tools.baselines.training.loop import train
    from fleet_tools.baselines.training.state import TrainingState

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


def _make_clouds(folder: Path, options: TrainingBenchmarkOptions) -> Path:
    """Makes a dataset of random clouds beside the arm's positions."""
    import numpy as np
    import random_data

    from fleet_tools.envs.array_spec import ArraySpec

    points, positions = (options.points, 4), (7,)
    layout = {
        "joint_position": ArraySpec(
            kind="state", shape=positions, dtype="float32", unit="rad", frame=None
        ),
        "point_cloud": ArraySpec(kind="points", shape=points, dtype="float32", unit="m", frame="W"),
    }

    def observe(
        header: "Header", number: int, count: int, generator: "np.random.Generator"
    ) -> "Mapping[str, np.ndarray]":
        cloud = 0.1 * generator.normal(size=(count + 1, options.points, 4))
        cloud[..., 3] = generator.choice([-1, 1], cloud.shape[:-1])
        joints = generator.normal(size=(count + 1, 7))
        return {
            "joint_position": joints.astype(np.float32),
            "point_cloud": cloud.astype(np.float32),
        }

    steps = options.cloud_steps
    return random_data.make(folder, steps, _EPISODE_STEPS, observe, layout).folder


PROGRAM = cli.Program(
    "training.py",
    cli.Command(TrainingBenchmarkOptions, _measure_all),
    launcher="python benchmarks/",
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
