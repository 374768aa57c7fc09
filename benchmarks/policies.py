"""Measures the sizes of policies, and times of their actions: `python benchmarks/policies.py`."""

import statistics
import sys
from typing import Any

from timing import cpu_seconds

from fleet_tools.baselines.policies.config import ARCHITECTURES, policy_config
from fleet_tools.config.values import Count
from fleet_tools.utils import cli
from fleet_tools.utils.machine import machine_name
from fleet_tools.utils.progress import progress_bar

_STEPS = 60


class PolicyBenchmarkOptions(cli.Options):
    """Measures the sizes of policies and the times of their actions, on one thread.

    Weights are new. Times are processor times of `act`, the median over an episode's steps once
    its memory is full. Observations have the layout of the hammer's, with images of all its
    cameras.

    Exit codes:
    0: all policies are measured.
    2: it cannot begin.
    130: Ctrl-C.
    """

    architectures: tuple[str, ...] = tuple(ARCHITECTURES)
    """Architectures of the policies."""
    camera_size: tuple[Count, Count] = (320, 240)
    """Width and height of images, in pixels."""

    aliases = {"architectures": ["--only"]}  # its name in version 0.1


def _measure_all(options: PolicyBenchmarkOptions) -> int:
    import torch

    torch.set_num_threads(1)
    for name in options.architectures:
        policy_config(name)  # raises if there is none
    measured = []
    with progress_bar(len(options.architectures), "policy", quiet=options.quiet) as bar:
        for name in options.architectures:
            measured.append({"architecture": name, **measure(name, options.camera_size)})
            bar.update()
    machine = f"{machine_name()}, PyTorch {torch.__version__}"
    options.report(
        {"machine": machine, "policies": measured},
        lambda: "\n".join([f"On one thread of {machine}:", *map(_as_text, measured)]),
    )
    return cli.OK


def _as_text(measured: dict[str, Any]) -> str:
    return (
        f"{measured['architecture']:>20}: {measured['parameters'] / 1e6:6.2f} M parameters, "
        f"act {measured['act_ms']:6.2f} ms"
    )


def measure(name: str, camera_size: tuple[int, int]) -> dict[str, float]:
    """Returns the number of parameters of a policy, and the median time of `act`, ms."""
    import numpy as np

    from fleet_tools.baselines.policies.blueprint import Blueprint
    from fleet_tools.baselines.policies.checkpoint import Checkpoint
    from fleet_tools.baselines.policies.policy import NetworkPolicy
    from fleet_tools.dataset.header import describe_action, describe_observation
    from fleet_tools.envs.spec import EnvSpec

    config = policy_config(name)
    env_kwargs: dict[str, Any] = {}
    if config.clouds is not None:
        env_kwargs = {"obs_mode": "point_cloud"}
    if config.images is not None:
        env_kwargs = {"obs_mode": "rgbd", "channels": ("rgb",), "camera_size": camera_size}
    env = EnvSpec.of(task="hammer", **env_kwargs).make_tool_use()
    blueprint = Blueprint.of(config, describe_observation(env), describe_action(env))
    env.close()
    network = blueprint.create()
    policy = NetworkPolicy(Checkpoint(blueprint, network.state_dict()))
    generator = np.random.default_rng(0)
    observation = {
        name: generator.integers(0, 256, array.shape, np.uint8)
        if array.dtype == "uint8"
        else generator.normal(size=array.shape).astype(np.float32)
        for name, array in blueprint.observation.items()
    }
    seconds = []
    for _ in range(_STEPS):
        seconds.append(cpu_seconds(lambda: policy.act(observation)))
    return {
        "parameters": sum(tensor.numel() for tensor in network.parameters()),
        "act_ms": 1e3 * statistics.median(seconds[_STEPS // 2 :]),
    }


PROGRAM = cli.Program(
    "policies.py", cli.Command(PolicyBenchmarkOptions, _measure_all), launcher="python benchmarks/"
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
